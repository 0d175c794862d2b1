# SPDX-License-Identifier: LGPL-3.0-or-later
# libvarjfs_hdf5.so: a plugin of HDF5, loaded into other people's processes, so no GLib, no sanitizers,
# nothing of src/.  HDF5 itself is in the process already, whichever it is.

if HAVE_HDF5
hdf5plugindir = $(libdir)/varjfs/hdf5
hdf5plugin_LTLIBRARIES = libvarjfs_hdf5.la
varjfs_hdf5_sources = \
	lib/hdf5/attribute.c \
	lib/hdf5/connection.c \
	lib/hdf5/connector.c \
	lib/hdf5/copy.c \
	lib/hdf5/datatype.c \
	lib/hdf5/error.c \
	lib/hdf5/file.c \
	lib/hdf5/format.h \
	lib/hdf5/group.c \
	lib/hdf5/hdf5-private.h \
	lib/hdf5/link.c \
	lib/hdf5/object.c \
	lib/hdf5/path.c \
	lib/hdf5/plist.c \
	lib/hdf5/records.c \
	lib/hdf5/store.c \
	lib/hdf5/token.c \
	lib/hdf5/type-check.c \
	lib/hdf5/visit.c \
	lib/hdf5/blob.c \
	lib/hdf5/chunk.c \
	lib/hdf5/dataset.c \
	lib/hdf5/dataset.h \
	lib/hdf5/direct.c \
	lib/hdf5/extent.c \
	lib/hdf5/filter.c \
	lib/hdf5/io.c \
	lib/hdf5/layout.c \
	lib/hdf5/select.c
libvarjfs_hdf5_la_SOURCES = $(varjfs_hdf5_sources)
libvarjfs_hdf5_la_CPPFLAGS = -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I$(top_srcdir)/include $(HDF5_CFLAGS)
libvarjfs_hdf5_la_CFLAGS = -std=gnu11 -pthread -fexceptions -fvisibility=hidden $(WARN_CFLAGS)
libvarjfs_hdf5_la_LDFLAGS = -module -avoid-version -pthread \
	-Wl,--version-script=$(top_srcdir)/lib/hdf5/hdf5.map
libvarjfs_hdf5_la_LIBADD = lib/client/libvj-client.la $(HDF5_LIBS)
EXTRA_libvarjfs_hdf5_la_DEPENDENCIES = lib/hdf5/hdf5.map

# Nobody links with it, and where HDF5 was when it was built is nobody's business.
install-data-hook:
	sed -i "s|^dependency_libs=.*|dependency_libs=''|" "$(DESTDIR)$(hdf5plugindir)/libvarjfs_hdf5.la"
endif
