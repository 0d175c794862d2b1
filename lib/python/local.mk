# SPDX-License-Identifier: LGPL-3.0-or-later
# The module varjfs, which uses libvarjfs; python3 compiles it when it is first used.

EXTRA_DIST += lib/python/varjfs.py
if HAVE_PYTHONDIR
python_DATA = lib/python/varjfs.py
endif
