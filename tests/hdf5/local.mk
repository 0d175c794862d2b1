# SPDX-License-Identifier: LGPL-3.0-or-later
# HDF5's own tests, tools and users with the connector.

if HAVE_HDF5
PROGRAM_TESTS += tests/hdf5/vol.sh
endif
