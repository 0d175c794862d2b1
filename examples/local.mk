# SPDX-License-Identifier: LGPL-3.0-or-later
# Programs that show how rwrite(2) and libvarjfs(3) are used.  Built by make check and not
# installed: each is one file that compiles alone, with pkg-config, as C99.

example_programs = examples/csv-insert examples/edit-lines examples/log-trim \
	examples/key-table examples/object-files
TEST_HELPERS += $(example_programs)
example_cppflags = -D_POSIX_C_SOURCE=200809L -D_FILE_OFFSET_BITS=64 -I$(top_srcdir)/include
example_cflags = -std=c99 -pedantic $(WARN_CFLAGS) $(SAN_CFLAGS)

examples_csv_insert_CPPFLAGS = $(example_cppflags)
examples_csv_insert_CFLAGS = $(example_cflags)
examples_csv_insert_LDADD = librwrite.la
examples_edit_lines_CPPFLAGS = $(example_cppflags)
examples_edit_lines_CFLAGS = $(example_cflags)
examples_edit_lines_LDADD = librwrite.la
examples_log_trim_CPPFLAGS = $(example_cppflags)
examples_log_trim_CFLAGS = $(example_cflags)
examples_log_trim_LDADD = librwrite.la
examples_key_table_CPPFLAGS = $(example_cppflags)
examples_key_table_CFLAGS = $(example_cflags)
examples_key_table_LDADD = libvarjfs.la
examples_object_files_CPPFLAGS = $(example_cppflags)
examples_object_files_CFLAGS = $(example_cflags)
examples_object_files_LDADD = libvarjfs.la
