# SPDX-License-Identifier: LGPL-3.0-or-later
"""Places to measure beside those of vjbench.py: varjfs over daemons, and NFS.

Loopback   one varjfsd at 127.0.0.1 and a mount of its volume; with TLS, or without
Cluster    scripts/cluster: nodes in network namespaces, and a link that can be limited
Nfs        nfs-ganesha in a node's namespace of a Cluster; its client is libnfs, over the same link
"""

import glob
import os
import shutil
import socket
import subprocess
import sys
import time

import vjbench
from vjbench import Varjfs, program, run

PATIENCE = 60


def until(what, test, process=None):
    """Waits until test() is true; @process must live."""
    end = time.monotonic() + PATIENCE
    while not test():
        if process and process.poll() is not None:
            sys.exit(f"{what}: ended with status {process.returncode}")
        if time.monotonic() > end:
            sys.exit(f"{what}: not within {PATIENCE} s")
        time.sleep(0.02)


def write_file(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def answers(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


class Loopback(Varjfs):
    """@tls: with a pre-shared key; else in clear text, which loopback allows."""
    name = "remote"

    def __init__(self, work, name=None, make=(), options=(), tls=False):
        self.tls = tls
        self.node = os.path.join(work, (name or self.name) + "-node")
        os.makedirs(os.path.join(self.node, "data"))
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        conf = [f"[node]\n{'listen' if tls else 'listen_insecure'} = 127.0.0.1:{self.port}\n",
                "[volume lab]\ndirectory = data\nroles = object,meta\nstore = posix\nmeta = lmdb\n"]
        more = "volume=lab,insecure"
        if tls:
            run(program("varjfsctl"), "keygen", os.path.join(self.node, "lab.key"))
            conf.append("key = lab.key\n")
            more = f"volume=lab,key={self.node}/lab.key"
        write_file(os.path.join(self.node, "varjfsd.conf"), "".join(conf))
        with open(os.path.join(self.node, "log"), "ab") as log:
            self.daemon = subprocess.Popen([program("varjfsd"), "-c", os.path.join(self.node, "varjfsd.conf")],
                                           stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until("varjfsd", lambda: answers(self.port), self.daemon)
        make = [*make, "-o", f"store=remote:127.0.0.1:{self.port}:replicas=1,{more}",
                "-o", f"meta=remote:127.0.0.1:{self.port}:{more}"]
        super().__init__(work, name, make, options)
        self.volume = self.source

    def begin_cold(self):
        self.close_mount()
        vjbench.forget_pages(self.node)
        self.mount()

    def close_mount(self):
        super().close()

    def close(self):
        super().close()
        self.daemon.terminate()
        self.daemon.wait()


class Cluster(Varjfs):
    name = "cluster"

    def __init__(self, work, nodes=1, replicas=1, make="", options=""):
        self.place = os.path.join(work, self.name)
        self.command("--replicas", replicas, *(["--mkfs", make] if make else []),
                     *(["--options", options] if options else []), "up", nodes)
        self.directory, self.source = os.path.join(self.place, "mnt"), self.place
        with open(os.path.join(self.place, "settings"), encoding="ascii") as f:
            self.id = dict(line.strip().split("=", 1) for line in f)["id"]

    def command(self, *arguments):
        return run(os.path.join(vjbench.TOP, "scripts", "cluster"), "--dir", self.place, *arguments,
                   env={**os.environ, "VARJFS_BUILDDIR": vjbench.build_dir()})

    def inside(self, who, *command):
        """The words of a command that runs in the network of a node or of the mount."""
        return ["nsenter", f"--net=/run/netns/varjfs-{self.id}-{who}", "--", *map(str, command)]

    def limit(self, rate):
        self.command("limit", rate)

    def bytes(self):
        """Sent and received over the mount's link."""
        return sum(int(line.split("=")[1]) for line in self.command("bytes").split())

    def begin_cold(self):
        self.command("umount")
        vjbench.forget_pages(self.place)
        self.command("mount")

    def close(self):
        self.command("down", "--destroy")


NFS_CONF = """
NFS_Core_Param {{
    Plugins_Dir = {plugins}; Protocols = 3; NFS_Port = 2049; MNT_Port = 2050;
    Enable_NLM = false; Enable_RQUOTA = false; mount_path_pseudo = true;
}}
NFSv4 {{ Graceless = true; RecoveryRoot = {place}; }}
EXPORT {{
    Export_Id = 1; Path = {export}; Pseudo = /export; Access_Type = RW; Squash = No_Root_Squash;
    Protocols = 3; Transports = TCP; SecType = sys; FSAL {{ Name = VFS; }}
}}
"""

# In a mount namespace: what install-deps has unpacked lies over /usr; rpcbind asks for its own user.
NFS_START = """
set -e
mount --make-rprivate /
mount -t tmpfs -o size=16M none /run
if [ -n "$1" ]; then
    mount -t overlay -o "lowerdir=$1/usr:/usr,ro" none /usr
    PATH=$1/sbin:$PATH
fi
export LD_LIBRARY_PATH=/usr/lib/ganesha
mkdir /run/rpcbind
{ cat /etc/passwd; echo _rpc:x:65533:65533::/run/rpcbind:/bin/false; } >/run/passwd
mount --bind /run/passwd /etc/passwd
rpcbind -w
exec ganesha.nfsd -F -f "$2/conf" -L "$2/log" -p "$2/pid" -N NIV_EVENT
"""


def find_nfs():
    """(where install-deps unpacked the packages, or "" if they are installed; libnfs), or None."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    prefix = os.path.join(os.environ.get("VARJFS_DEPS") or os.path.join(cache, "varjfs-deps"), "nfs")
    for root in ("", prefix):
        library = glob.glob(f"{root}/usr/lib/*/libnfs.so.13")
        if library and os.path.exists(f"{root}/usr/bin/ganesha.nfsd") and \
                (os.path.exists(f"{root}/sbin/rpcbind") or os.path.exists(f"{root}/usr/sbin/rpcbind")):
            return root, library[0]
    return None


class Nfs:
    """The server, in the namespace of node 1 of @cluster; its client is tests/bench/nfs-client.py."""

    def __init__(self, cluster):
        self.cluster = cluster
        root, self.library = find_nfs()
        self.place = os.path.join(cluster.place, "nfs")
        export = os.path.join(self.place, "export")
        os.makedirs(export)
        plugins = "/usr/lib/" + os.path.basename(os.path.dirname(self.library)) + "/ganesha"
        write_file(os.path.join(self.place, "conf"), NFS_CONF.format(plugins=plugins, place=self.place, export=export))
        self.server = subprocess.Popen(
            cluster.inside(1, "unshare", "-m", "bash", "-c", NFS_START, "nfs", root, self.place),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until("ganesha.nfsd", self.is_there, self.server)

    def is_there(self):
        return not subprocess.run(self.cluster.inside("mount", "timeout", 2, "bash", "-c", ": </dev/tcp/10.111.84.1/2049"),
                                  capture_output=True, check=False).returncode

    def client(self, verb, name, *numbers):
        """Milliseconds."""
        return float(run(*self.cluster.inside(
            "mount", sys.executable, os.path.join(vjbench.TOP, "tests", "bench", "nfs-client.py"), self.library,
            "10.111.84.1", "/export", verb, name, *numbers)))

    def close(self):
        # rpcbind, too: it is a daemon of the namespace.
        for pid in run("ip", "netns", "pids", f"varjfs-{self.cluster.id}-1").split():
            with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                if f.read().strip() in ("rpcbind", "ganesha.nfsd"):
                    os.kill(int(pid), 15)
        self.server.wait()
        shutil.rmtree(self.place, ignore_errors=True)
