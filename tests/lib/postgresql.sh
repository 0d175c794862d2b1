# SPDX-License-Identifier: LGPL-3.0-or-later
# shellcheck shell=bash
#
# postgresql.sh - where the programs of a PostgreSQL server are
#
#   bin=$(postgresql_bin) || skip_all "needs PostgreSQL's server programs"
#
# Debian keeps them out of PATH; install-deps may have unpacked them.

postgresql_bin()
{
    local dir
    for dir in "$(pg_config --bindir 2>/dev/null)" /usr/lib/postgresql/*/bin /usr/pgsql-*/bin \
        "${VARJFS_DEPS:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/varjfs-deps}"/postgresql/usr/lib/postgresql/*/bin; do
        if [ -x "$dir/initdb" ] && [ -x "$dir/pgbench" ] && [ -x "$dir/pg_amcheck" ]; then
            echo "$dir"
            return 0
        fi
    done
    return 1
}
