# SPDX-License-Identifier: LGPL-3.0-or-later
# HDF5's own tests, tools and users with the connector.

if HAVE_HDF5
TEST_HELPERS += tests/hdf5/content
tests_hdf5_content_CPPFLAGS = $(HDF5_CFLAGS)
tests_hdf5_content_LDADD = $(HDF5_LIBS)
PROGRAM_TESTS += tests/hdf5/h5py.sh
TEST_HELPERS += tests/hdf5/processes
tests_hdf5_processes_CPPFLAGS = $(HDF5_CFLAGS)
tests_hdf5_processes_LDADD = $(HDF5_LIBS)
PROGRAM_TESTS += tests/hdf5/processes.sh
PROGRAM_TESTS += tests/hdf5/tools.sh
PROGRAM_TESTS += tests/hdf5/vol.sh
endif
