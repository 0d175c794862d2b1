/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * varjfs/hdf5.h - what a program that uses HDF5 can ask of the connector varjfs
 *
 * The connector is a plugin that a program does not link with, so these functions are
 * here entirely: they need HDF5 1.14 alone.  Without the connector they change nothing.
 *
 * C99 and C++.
 */
#ifndef VARJFS_HDF5_H
#define VARJFS_HDF5_H

#include <string.h>

#include <hdf5.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A property of dataset creation property lists: text with its NUL, in as many bytes. */
#define VARJFS_HDF5_TRANSFORM "varjfs_transform"
#define VARJFS_HDF5_TRANSFORM_BYTES 128

/*
 * varjfs_hdf5_set_transform - how the data of a dataset are stored
 *
 * @dcpl     a dataset creation property list
 * @value    as user.varjfs.transform of files: "lz4", "zstd:9"; "": as the volume has it
 * Returns   0; negative: not such a list, or the text has more than 127 bytes.  Whether
 *           the volume knows it is found when a dataset is created
 */
static inline herr_t varjfs_hdf5_set_transform(hid_t dcpl, const char *value)
{
    char text[VARJFS_HDF5_TRANSFORM_BYTES] = {0};
    size_t len = strlen(value);
    htri_t is_there;

    if (len >= sizeof text || H5Pisa_class(dcpl, H5P_DATASET_CREATE) <= 0) {
        return -1;
    }
    memcpy(text, value, len);
    is_there = H5Pexist(dcpl, VARJFS_HDF5_TRANSFORM);
    if (is_there < 0) {
        return -1;
    }
    return is_there > 0 ? H5Pset(dcpl, VARJFS_HDF5_TRANSFORM, text)
                        : H5Pinsert2(dcpl, VARJFS_HDF5_TRANSFORM, sizeof text, text, NULL,
                                     NULL, NULL, NULL, NULL, NULL);
}

/* What was set, also for a list that H5Dget_create_plist returned; "" if nothing was. */
static inline herr_t varjfs_hdf5_get_transform(hid_t dcpl,
                                               char value[VARJFS_HDF5_TRANSFORM_BYTES])
{
    size_t size = 0;
    htri_t is_there = H5Pexist(dcpl, VARJFS_HDF5_TRANSFORM);

    memset(value, 0, VARJFS_HDF5_TRANSFORM_BYTES);
    if (is_there <= 0) {
        return is_there < 0 ? -1 : 0;
    }
    if (H5Pget_size(dcpl, VARJFS_HDF5_TRANSFORM, &size) < 0 ||
        size != VARJFS_HDF5_TRANSFORM_BYTES ||
        H5Pget(dcpl, VARJFS_HDF5_TRANSFORM, value) < 0) {
        return -1;
    }
    value[VARJFS_HDF5_TRANSFORM_BYTES - 1] = '\0';
    return 0;
}

#ifdef __cplusplus
}
#endif

#endif
