/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * needs.c - what a process takes that serves a volume
 *
 * What its two drivers say that they need, and what the place itself does: rename the
 * mark of use, and where the metadata are a file in SOURCE, write checkpoints.
 */
#include "volume/volume-private.h"

VjVolumeNeeds vj_volume_needs(VjDriverNeeds drivers)
{
    VjVolumeNeeds out = {.drivers = drivers.meta | drivers.store};

    if ((drivers.meta & VJ_NEEDS_FILES) != 0) {
        /* Also where checkpoints/ is missing, and is made. */
        out.writes_source = true;
        out.dirs[out.dir_count++] = VJ_META_DIR;
        out.dirs[out.dir_count++] = VJ_CHECKPOINTS_NAME;
    }
    if ((drivers.store & VJ_NEEDS_FILES) != 0) {
        out.dirs[out.dir_count++] = VJ_OBJECTS_DIR;
    }
    g_assert(out.dir_count <= VJ_VOLUME_DIRS_MAX);
    return out;
}

VjDriverNeeds vj_driver_needs(const VjSuperblock *super)
{
    return (VjDriverNeeds){.meta = vj_meta_needs(super->meta),
                           .store = vj_store_needs(super->store)};
}

void vj_driver_files(const VjSuperblock *super, VjOptFiles *files)
{
    vj_meta_files(super->meta, files);
    vj_store_files(super->store, files);
}

bool vj_volume_driver_needs(const VjPlace *p, VjDriverNeeds *out, VjOptFiles *files,
                            GError **error)
{
    VjSuperblock super;

    if (!vj_place_read_superblock(p, &super, error)) {
        return false;
    }
    *out = vj_driver_needs(&super);
    vj_driver_files(&super, files);
    vj_superblock_clear(&super);
    return true;
}
