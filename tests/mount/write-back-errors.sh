#!/bin/bash
# SPDX-License-Identifier: LGPL-3.0-or-later
# When writing back fails, each descriptor that was open at the time hears of it once at fsync(2), and at
# each close(2) before; no other does, nothing is lost, and all is durable when the store works again.

. "${VARJFS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/mount.sh"
requires_fuse
requires command python3

cat >"$T/errors.py" <<-'END'
	import ctypes, errno, os, subprocess, sys, time
	mnt, broken = sys.argv[1:]
	libc = ctypes.CDLL(None, use_errno=True)
	expected = {}

	def called(call, *arguments):
	    try:
	        call(*arguments)
	    except OSError as e:
	        return errno.errorcode[e.errno]
	    return "0"

	def close(fd):
	    # os.close tells as well, but the descriptor has to be counted as gone.
	    return "0" if libc.close(fd) == 0 else errno.errorcode[ctypes.get_errno()]

	asked = subprocess.Popen(["sh", "-c", 'while read -r line; do varjfsctl stats "$1"; echo end; done', "-", mnt],
	                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

	def failures():
	    asked.stdin.write("stats\n")
	    asked.stdin.flush()
	    stats = list(iter(asked.stdout.readline, "end\n"))
	    return int([l for l in stats if "write_back_errors" in l][0].split()[-1])

	def name(file):
	    return os.path.join(mnt, file)

	def opened(file, count):
	    return [os.open(name(file), os.O_RDWR | os.O_CREAT) for _ in range(count)]

	def write(fd, file, size):
	    data = os.urandom(size)
	    os.pwrite(fd, data, 0)
	    expected[file] = data

	def store(works):
	    os.unlink(broken) if works else open(broken, "w").close()

	def say(what, *outcomes):
	    print(f"{what}: {' '.join(outcomes)}", flush=True)

	# fsync fails: who asked hears of it at once, the others once, whenever they ask.
	a = opened("a", 5)
	b = opened("b", 1)
	write(a[0], "a", 1 << 20)
	store(works=False)
	say("fsync", called(os.fsync, a[0]))
	say("another descriptor, where it fails again", called(os.fsync, a[1]))
	say("a file that was not written", called(os.fsync, b[0]))
	store(works=True)
	say("the first one, after that failure", called(os.fsync, a[0]), called(os.fsync, a[0]))
	say("by fsync", called(os.fsync, a[2]), called(os.fsync, a[2]))
	copy = os.dup(a[3])
	say("by close", close(copy), close(a[3]))
	say("by fdatasync", called(os.fdatasync, a[4]), called(os.fdatasync, a[4]))
	late = os.open(name("a"), os.O_RDONLY)
	say("opened later", called(os.fsync, late))

	# It fails while nobody waits.
	c = opened("c", 3)
	os.fsync(c[0])
	before = failures()
	store(works=False)
	write(c[0], "c", 1 << 20)
	while failures() == before:
	    time.sleep(0.05)
	late = os.open(name("c"), os.O_RDWR)
	store(works=True)
	say("in the background", called(os.fsync, c[0]), called(os.fsync, c[0]))
	say("close, for who did not write", close(c[1]))
	child = os.fork()
	if child == 0:
	    os.kill(os.getpid(), 9)
	os.waitpid(child, 0)
	say("somebody else of the same descriptor", close(os.dup(c[2])), called(os.fsync, c[2]), close(c[2]))
	say("the writer again", called(os.fsync, c[0]), close(c[0]))

	# Small content, whose place is the metadata, is nobody's trouble.
	store(works=False)
	d = opened("d", 1)
	write(d[0], "d", 1000)
	say("content that needs no object", called(os.fsync, d[0]), close(d[0]))
	store(works=True)
	for file, data in expected.items():
	    with open(os.path.join(os.path.dirname(broken), file), "wb") as f:
	        f.write(data)
	END

# shellcheck disable=SC2119 # without options
make_fs
VARJFS_TEST_WRAP_STORE="fault:kinds=put+flush,every=1,if=$T/broken" mount_varjfs
mkdir "$T/expected"
is "who hears of a failure, and how often" "$(python3 "$T/errors.py" "$MNT" "$T/broken" 2>&1)" \
    "fsync: EIO
another descriptor, where it fails again: EIO
a file that was not written: 0
the first one, after that failure: EIO 0
by fsync: EIO 0
by close: EIO EIO
by fdatasync: EIO 0
opened later: 0
in the background: EIO 0
close, for who did not write: EIO
somebody else of the same descriptor: EIO EIO 0
the writer again: 0 0
content that needs no object: 0 0"
kill_varjfs
fsck_clean "killed"
mount_varjfs
for file in a c d; do
    check "$file: durable since its last fsync" cmp "$T/$file" "$MNT/$file"
done
umount_varjfs
fsck_clean "at the end"
tap_done
