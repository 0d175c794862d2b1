# SPDX-License-Identifier: LGPL-3.0-or-later
# Installed headers: add each file below.

varjfsincludedir = $(includedir)/varjfs
varjfsinclude_HEADERS = \
	include/varjfs/client-protocol.h \
	include/varjfs/ioctl.h \
	include/varjfs/rwrite.h \
	include/varjfs/varjfs.h

if HAVE_HDF5
varjfsinclude_HEADERS += include/varjfs/hdf5.h
endif
