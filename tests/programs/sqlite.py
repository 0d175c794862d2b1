# SPDX-License-Identifier: LGPL-3.0-or-later
"""What sqlite.sh runs: sqlite.py {create|write|check|busy} DATABASE MODE ...

create DATABASE MODE               two empty tables
write DATABASE MODE WRITER COUNT   COUNT transactions; after each commit its number is printed
check DATABASE MODE LEDGER...      each commit that a ledger names is there, whole
stop DATABASE MODE WRITER COUNT    the same, and end without closing the database
busy DATABASE MODE                 readers and a writer see only whole transactions

MODE is a journal mode; "+mmap" behind it maps the database, "+full" has synchronous=FULL instead of EXTRA.

SQLITE_MARK=COMMAND: instead of printing, "COMMAND !MODE WRITER NUMBER" is run after each commit.
"""

import os
import sqlite3
import subprocess
import sys

ROWS = 3  # of each transaction; their sum is 0


def open_database(path, mode):
    mapped = "+mmap" in mode
    db = sqlite3.connect(path, timeout=120, isolation_level=None)
    db.execute("PRAGMA busy_timeout=120000")
    journal = mode.split("+")[0]
    got = db.execute(f"PRAGMA journal_mode={journal}").fetchone()[0]
    assert got == journal, f"journal_mode is {got} instead of {journal}"
    db.execute("PRAGMA synchronous=" + ("FULL" if "+full" in mode else "EXTRA"))
    if mapped:
        size = db.execute("PRAGMA mmap_size=67108864").fetchone()
        assert size and size[0] > 0, "this sqlite maps no files"
    return db


def create(path, mode):
    db = open_database(path, mode)
    db.execute("CREATE TABLE entry (writer INT, number INT, amount INT, filler BLOB)")
    db.execute("CREATE INDEX by_writer ON entry (writer, number)")
    db.execute("CREATE TABLE total (id INTEGER PRIMARY KEY, commits INT)")
    db.execute("INSERT INTO total VALUES (1, 0)")
    db.close()


def tell(mode, writer, number):
    """The commit has returned."""
    mark = os.environ.get("SQLITE_MARK")
    if mark:
        subprocess.run([*mark.split(), f"!{mode} {writer} {number}"], check=True)
    else:
        os.write(1, b"%d %d\n" % (writer, number))


def is_there(directory):
    """
    sqlite takes a directory that it cannot open for one that needs no synchronising (unixDelete):
    in mode delete a commit "succeeds" when the file system died right after the journal was
    removed.  A directory that still opens after the commit, below the descriptor @directory and not
    by its path, below which another file system may be by then, was open to sqlite as well.
    """
    os.close(os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory))


def write(path, mode, writer, count, stop):
    db = open_database(path, mode)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    for number in range(count):
        db.execute("BEGIN IMMEDIATE")
        for amount in (number, 1, -number - 1):
            db.execute("INSERT INTO entry VALUES (?, ?, ?, ?)",
                       (writer, number, amount, os.urandom(200 + number * 37 % 6000)))
        db.execute("UPDATE total SET commits = commits + 1")
        db.execute("COMMIT")
        is_there(directory)
        tell(mode, writer, number)
    if stop:
        os._exit(0)
    db.close()


def may_lose_last(path, mode):
    """
    In mode delete a commit is the removal of the journal.  With FULL nothing is synchronised after
    that, so a crash may bring the journal back, and sqlite rolls back what it belongs to.  The
    next transaction synchronises the directory before it changes the database: it is the last
    commit alone that can be lost, and only where the journal is there again.
    """
    return mode == "delete+full" and os.path.exists(path + "-journal")


def check(path, mode, ledgers):
    losable = 1 if may_lose_last(path, mode) else 0
    db = open_database(path, mode)
    result = db.execute("PRAGMA integrity_check").fetchone()[0]
    assert result == "ok", result
    there = {}
    db.execute("BEGIN")
    for writer, number, rows, total in db.execute(
            "SELECT writer, number, count(*), sum(amount) FROM entry GROUP BY writer, number"):
        assert rows == ROWS and total == 0, f"transaction {writer} {number}: {rows} rows, {total}"
        there[writer, number] = True
    promised = lost = 0
    for ledger in ledgers:
        with open(ledger, encoding="ascii") as f:
            commits = [tuple(map(int, line.split())) for line in f if line.endswith("\n")]
        for commit in commits:
            promised += 1
            if commit not in there:
                assert commit == commits[-1] and losable > lost, f"commit {commit} is lost"
                lost += 1
    commits = db.execute("SELECT commits FROM total").fetchone()[0]
    db.execute("COMMIT")
    assert commits == len(there), f"{commits} counted, {len(there)} there"
    print(f"{promised} made, {commits} there, {lost} rolled back")
    db.close()


def busy(path, mode):
    """A reader that never sees half a transaction."""
    db = open_database(path, mode)
    for _ in range(40):
        db.execute("BEGIN")
        commits = db.execute("SELECT commits FROM total").fetchone()[0]
        rows, total = db.execute("SELECT count(*), coalesce(sum(amount), 0) FROM entry").fetchone()
        assert rows == ROWS * commits and total == 0, f"{commits} commits, {rows} rows, sum {total}"
        db.execute("COMMIT")
    db.close()


def main():
    what, path, mode, *rest = sys.argv[1:]
    if what == "create":
        create(path, mode)
    elif what in ("write", "stop"):
        write(path, mode, int(rest[0]), int(rest[1]), what == "stop")
    elif what == "check":
        check(path, mode, rest)
    elif what == "busy":
        busy(path, mode)
    else:
        sys.exit(2)


main()
