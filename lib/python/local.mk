# SPDX-License-Identifier: LGPL-3.0-or-later
# The module varjfs, which uses libvarjfs; python3 compiles it when it is first used.

if HAVE_PYTHONDIR
dist_python_DATA = lib/python/varjfs.py
endif
