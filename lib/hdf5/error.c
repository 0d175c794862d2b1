/* SPDX-License-Identifier: LGPL-3.0-or-later */
/*
 * Errors: a text that is kept until the callback ends, and then goes on HDF5's error
 * stack
 *
 * Most functions of HDF5 empty the stack when they begin, so what is pushed before the
 * cleanup is lost.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "hdf5-private.h"

static hid_t class_id = H5I_INVALID_HID;
static hid_t major_id = H5I_INVALID_HID;
static hid_t minor_id = H5I_INVALID_HID;
/* The error that @text is of; 0: none. */
static int text_error;
static char text[512];

int vjh_error(int error, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    text_error = error;
    return error;
}

const char *vjh_error_text(int error)
{
    return error == text_error ? text : varjfs_strerror(error);
}

herr_t vjh_return(int error, const char *function)
{
    const char *what = vjh_error_text(error);

    if (error >= 0) {
        text_error = 0;
        return 0;
    }
    vjh_connections_failed(error);
    if (class_id >= 0) {
        H5Epush2(H5E_DEFAULT, "varjfs", function, 0, class_id, major_id, minor_id, "%s",
                 what);
    }
    text_error = 0;
    return -1;
}

void *vjh_return_pointer(int error, void *pointer, const char *function)
{
    return vjh_return(error, function) < 0 ? NULL : pointer;
}

/*
 * HDF5 1.14 pushes "native files only" with H5E_VOL, a major number, as the minor one,
 * and gives back a reference of it that was not taken when the stack is emptied.  After
 * two such errors the number is gone, no stack can be emptied or printed any more.  So
 * that many more references are taken; those of applications do not keep HDF5 from
 * ending.
 */
static void keep_major_number(void)
{
    for (int i = 0; i < 10000; i++) {
        H5Iinc_ref(H5E_VOL);
    }
}

int vjh_error_init(void)
{
    class_id = H5Eregister_class("varjfs", "varjfs", varjfs_version());
    if (class_id >= 0) {
        major_id = H5Ecreate_msg(class_id, H5E_MAJOR, "varjfs");
        minor_id = H5Ecreate_msg(class_id, H5E_MINOR, "operation refused or failed");
    }
    if (class_id < 0 || major_id < 0 || minor_id < 0) {
        vjh_error_term();
        return -ENOMEM;
    }
    keep_major_number();
    return 0;
}

void vjh_error_term(void)
{
    if (minor_id >= 0) {
        H5Eclose_msg(minor_id);
    }
    if (major_id >= 0) {
        H5Eclose_msg(major_id);
    }
    if (class_id >= 0) {
        H5Eunregister_class(class_id);
    }
    class_id = major_id = minor_id = H5I_INVALID_HID;
}
