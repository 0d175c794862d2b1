# SPDX-License-Identifier: LGPL-3.0-or-later
# Programs that use HDF5, with the connector and varjfsd of this build.

if HAVE_HDF5
UNIT_TESTS += tests/unit/hdf5/test-dataset
tests_unit_hdf5_test_dataset_SOURCES = tests/unit/hdf5/test-dataset.c tests/unit/hdf5/requests.h \
	tests/unit/hdf5/volume.h
tests_unit_hdf5_test_dataset_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CFLAGS) \
	-DVARJFS_SBINDIR='"$(abs_top_builddir)"'
tests_unit_hdf5_test_dataset_LDADD = lib/client/libvj-client.la $(LDADD_base) $(CMOCKA_LIBS) $(HDF5_LIBS)
tests_unit_hdf5_test_dataset_LDFLAGS = $(AM_LDFLAGS) -rdynamic -Wl,-rpath,$(hdf5_prefix)/lib
EXTRA_tests_unit_hdf5_test_dataset_DEPENDENCIES = libvarjfs_hdf5.la varjfsd mkfs.varjfs

UNIT_TESTS += tests/unit/hdf5/test-records
tests_unit_hdf5_test_records_SOURCES = tests/unit/hdf5/test-records.c \
	lib/hdf5/connection.c lib/hdf5/error.c lib/hdf5/plist.c lib/hdf5/records.c \
	lib/hdf5/type-check.c
tests_unit_hdf5_test_records_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CFLAGS)
tests_unit_hdf5_test_records_LDADD = lib/client/libvj-client.la $(LDADD_base) $(CMOCKA_LIBS) $(HDF5_LIBS)
tests_unit_hdf5_test_records_LDFLAGS = $(AM_LDFLAGS) -Wl,-rpath,$(hdf5_prefix)/lib

UNIT_TESTS += tests/unit/hdf5/test-processes
tests_unit_hdf5_test_processes_SOURCES = tests/unit/hdf5/test-processes.c tests/unit/hdf5/volume.h
tests_unit_hdf5_test_processes_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CFLAGS) \
	-DVARJFS_SBINDIR='"$(abs_top_builddir)"'
tests_unit_hdf5_test_processes_LDADD = $(LDADD_base) $(CMOCKA_LIBS) $(HDF5_LIBS)
tests_unit_hdf5_test_processes_LDFLAGS = $(AM_LDFLAGS) -Wl,-rpath,$(hdf5_prefix)/lib
EXTRA_tests_unit_hdf5_test_processes_DEPENDENCIES = libvarjfs_hdf5.la varjfsd mkfs.varjfs

UNIT_TESTS += tests/unit/hdf5/test-objects
tests_unit_hdf5_test_objects_SOURCES = tests/unit/hdf5/test-objects.c tests/unit/hdf5/volume.h
tests_unit_hdf5_test_objects_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CFLAGS) \
	-DVARJFS_SBINDIR='"$(abs_top_builddir)"'
tests_unit_hdf5_test_objects_LDADD = lib/client/libvj-client.la $(LDADD_base) $(CMOCKA_LIBS) $(HDF5_LIBS)
tests_unit_hdf5_test_objects_LDFLAGS = $(AM_LDFLAGS) -Wl,-rpath,$(hdf5_prefix)/lib
EXTRA_tests_unit_hdf5_test_objects_DEPENDENCIES = libvarjfs_hdf5.la varjfsd mkfs.varjfs

UNIT_TESTS += tests/unit/hdf5/test-others
tests_unit_hdf5_test_others_SOURCES = tests/unit/hdf5/test-others.c tests/unit/hdf5/requests.h \
	tests/unit/hdf5/volume.h
tests_unit_hdf5_test_others_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CFLAGS) \
	-DVARJFS_SBINDIR='"$(abs_top_builddir)"'
tests_unit_hdf5_test_others_LDADD = lib/client/libvj-client.la $(LDADD_base) $(CMOCKA_LIBS) $(HDF5_LIBS)
tests_unit_hdf5_test_others_LDFLAGS = $(AM_LDFLAGS) -rdynamic -Wl,-rpath,$(hdf5_prefix)/lib
EXTRA_tests_unit_hdf5_test_others_DEPENDENCIES = libvarjfs_hdf5.la varjfsd mkfs.varjfs

UNIT_TESTS += tests/unit/hdf5/test-rivals
tests_unit_hdf5_test_rivals_SOURCES = tests/unit/hdf5/test-rivals.c tests/unit/hdf5/requests.h \
	tests/unit/hdf5/volume.h
tests_unit_hdf5_test_rivals_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CFLAGS) \
	-DVARJFS_SBINDIR='"$(abs_top_builddir)"'
tests_unit_hdf5_test_rivals_LDADD = lib/client/libvj-client.la $(LDADD_base) $(CMOCKA_LIBS) $(HDF5_LIBS)
tests_unit_hdf5_test_rivals_LDFLAGS = $(AM_LDFLAGS) -Wl,-rpath,$(hdf5_prefix)/lib
EXTRA_tests_unit_hdf5_test_rivals_DEPENDENCIES = libvarjfs_hdf5.la varjfsd mkfs.varjfs

# The connector and libvarjfs, compiled into the test so that their allocations can fail.
UNIT_TESTS += tests/unit/hdf5/test-memory
tests_unit_hdf5_test_memory_SOURCES = $(varjfs_hdf5_sources) $(varjfs_sources) \
	tests/unit/hdf5/test-memory.c tests/unit/hdf5/volume.h
tests_unit_hdf5_test_memory_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CFLAGS) \
	-DVARJFS_SBINDIR='"$(abs_top_builddir)"'
tests_unit_hdf5_test_memory_LDADD = $(LDADD_base) $(CLIENT_TLS_LIBS) $(CMOCKA_LIBS) $(HDF5_LIBS)
tests_unit_hdf5_test_memory_LDFLAGS = $(AM_LDFLAGS) -Wl,-rpath,$(hdf5_prefix)/lib \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign,--wrap=free \
	-Wl,--wrap=strdup,--wrap=strndup,--wrap=asprintf,--wrap=H5allocate_memory,--wrap=varjfs_sync
EXTRA_tests_unit_hdf5_test_memory_DEPENDENCIES = varjfsd mkfs.varjfs
endif
