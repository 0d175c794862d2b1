# SPDX-License-Identifier: LGPL-3.0-or-later
"""What the benchmarks of scripts/bench.d share: the common form of a figure, and places to measure.

A figure is what varjfs did in several rounds of one run, and what a baseline did in the same
rounds, in turn with it.  figure() prints it as a row and, under scripts/bench, hands it over;
what scripts/bench writes as JSON, compares and plots is made of these alone.  A benchmark in another
language prints lines as tests/bench/figure.h has them, and calls this file: vjbench.py run PROGRAM.

    ratio    the median over the rounds of (varjfs / baseline); to the baseline's median where the rounds of
             the two do not go together; None where a baseline is 0
    spread   the ratios without the lowest and the highest one (with fewer than 5: all of them)
    aim      ">= 0.9" or "<= 3": what the ratio is to be

Under scripts/bench --against a second process runs the same benchmark with the programs of another build.  The two
take turns: each runs one candidate of one round and waits until the other has run its own (pass_turn).
"""

import datetime
import contextlib
import json
import os
import resource
import select
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

FORMAT = "varjfs-bench"
VERSION = 1
OUT = "VARJFS_BENCH_OUT"  # scripts/bench: file that records are added to, a line of JSON each
NAME = "VARJFS_BENCH_NAME"  # the same: which benchmark this is
WHERE = "VARJFS_BENCH_WHERE"  # the same: the type of file system below, "" where none is measured
TURN = "VARJFS_BENCH_TURN"  # --against: "READ WRITE", descriptors over which the turn comes and goes
TOOLS = "VARJFS_BENCH_TOOLS"  # the same: the build whose bench-io measures both builds
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WIDTH = 44


# ---- figures ---------------------------------------------------------------------------------


def trimmed(values):
    """(low, high) of the values without the extremes."""
    ordered = sorted(values)
    if len(ordered) >= 5:
        ordered = ordered[1:-1]
    return [ordered[0], ordered[-1]]


def is_met(ratio, aim):
    if ratio is None or not aim:
        return None
    way, bound = aim.split()
    return ratio >= float(bound) if way == ">=" else ratio <= float(bound)


def record_of(name, unit, values, better, baseline=None, baseline_values=None, aim=None, note=None):
    """The common form: a dictionary of what JSON knows."""
    values = [float(v) for v in values]
    record = {"name": name, "unit": unit, "better": better, "values": values,
              "median": statistics.median(values), "baseline": baseline, "aim": aim}
    if note:
        record["note"] = note
    if baseline is not None:
        theirs = [float(v) for v in baseline_values]
        record["baseline_values"] = theirs
        record["baseline_median"] = statistics.median(theirs)
        if 0 in theirs:
            record["ratio"] = record["spread"] = None
        elif len(theirs) == len(values):
            ratios = [a / b for a, b in zip(values, theirs)]
            record["ratio"] = statistics.median(ratios)
            record["spread"] = trimmed(ratios)
        else:
            middle = record["baseline_median"]
            record["ratio"] = record["median"] / middle
            record["spread"] = [v / middle for v in trimmed(values)]
        record["met"] = is_met(record["ratio"], aim)
    return record


def number(value):
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1000:
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 100 else f"{value:.2f}" if size >= 1 else f"{value:.3g}"


def head_text():
    return (f"   {'':{WIDTH}} {'varjfs':>10} {'baseline':>10}  {'ratio':>7} {'spread':>15}  "
            f"{'aim':8} unit, baseline")


def row_text(record):
    ours = number(record["median"])
    if record.get("baseline") is None:
        return f"   {record['name']:{WIDTH}} {ours:>10} {'':10}  {'':7} {'':15}  {'':8} {record['unit']}"
    if record["ratio"] is None:
        ratio = spread = "-"
    else:
        ratio, spread = f"{record['ratio']:.2f}", f"{record['spread'][0]:.2f} .. {record['spread'][1]:.2f}"
    aim = record.get("aim") or ""
    missed = " MISSED" if record.get("met") is False else ""
    return (f"   {record['name']:{WIDTH}} {ours:>10} {number(record['baseline_median']):>10}  "
            f"{ratio:>7} {spread:>15}  {aim:8} "
            f"{record['unit']}, {record['baseline']}"
            f"{missed}").rstrip() + (f" ({record['note']})" if record.get("note") else "")


# scripts/bench prints the head itself.
_state = {"head": OUT in os.environ, "targets": []}


def _hand_over(record):
    record.setdefault("benchmark", os.environ.get(NAME) or os.path.basename(sys.argv[0]))
    record.setdefault("where", os.environ.get(WHERE, ""))
    record["date"] = now()
    if os.environ.get(OUT):
        with open(os.environ[OUT], "a", encoding="utf-8") as f:
            f.write(json.dumps(record) + "\n")


def figure(name, unit, values, better="higher", baseline=None, baseline_values=None, aim=None, note=None):
    """Reports one figure; returns its record.  @better: "higher" or "lower"."""
    record = record_of(name, unit, values, better, baseline, baseline_values, aim, note)
    if not _state["head"]:
        print(head_text())
        _state["head"] = True
    print(row_text(record), flush=True)
    _hand_over(record)
    return record


def point(plot, series, x, y, label=None):
    """One point of the plot @plot (vjplot.PLOTS)."""
    _hand_over({"plot": plot, "series": series, "x": x, "y": y, "label": label})


def say(text):
    print("   " + text, flush=True)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- measuring -------------------------------------------------------------------------------


def interleave(rounds, candidates):
    """{name: [what candidates[name](round) returned in each]}; who begins changes."""
    names = list(candidates)
    results = {n: [] for n in names}
    for i in range(rounds):
        at = i % len(names)
        for name in names[at:] + names[:at]:
            results[name].append(candidates[name](i))
            pass_turn()
    return results


def pass_turn():
    """--against: the other build's process measures, while this one waits.  What was written here is made durable
    before, so that nothing of it is left to do beside the other.  Without --against: nothing."""
    if TURN not in os.environ:
        return
    for target in _state["targets"]:
        target.sync()
    comes, goes = (int(word) for word in os.environ[TURN].split())
    os.write(goes, b".")
    if not os.read(comes, 1):
        sys.exit("scripts/bench has ended")


class Turns:
    """Processes of which one runs at a time, in the order in which they were started; each passes the turn on by a byte
    (pass_turn)."""

    def __init__(self):
        self.children = []  # (the process, where its bytes come, where it waits for the turn)

    def start(self, begin):
        """begin(environment, descriptors to inherit) starts a process; it has the first turn at once."""
        comes, child_writes = os.pipe()
        child_reads, goes = os.pipe()
        child = begin({TURN: f"{child_reads} {child_writes}"}, (child_reads, child_writes))
        os.close(child_reads)
        os.close(child_writes)
        self.children.append((child, comes, goes))
        self.wait(child, comes)

    @staticmethod
    def wait(child, comes):
        """Until it passes the turn on or ends."""
        # A daemon may have inherited the pipe: then it does not close when the process ends.
        end = os.pidfd_open(child.pid)
        poll = select.poll()
        poll.register(comes, select.POLLIN)
        poll.register(end, select.POLLIN)
        ready = [fd for fd, _ in poll.poll()]
        os.close(end)
        if comes not in ready or not os.read(comes, 1):
            child.wait()

    def run(self):
        """Until all have ended; their statuses."""
        while any(child.poll() is None for child, _, _ in self.children):
            for child, comes, goes in self.children:
                if child.poll() is None:
                    os.write(goes, b".")
                    self.wait(child, comes)
        for _, comes, goes in self.children:
            os.close(comes)
            os.close(goes)
        return [child.wait() for child, _, _ in self.children]


def run(*command, **options):
    command = [str(c) for c in command]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {shlex.join(command)}: status {done.returncode}: "
                 f"{(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def figure_lines(text):
    """Lines of figure.h in @text: (name, unit, values, better or "", baseline or "", aim or "")."""
    for line in text.splitlines():
        field = line.split("\t")
        if field[0] == "figure" and len(field) in (4, 7):
            name, unit, values, better, baseline, aim = (field[1:] + ["", "", ""])[:6]
            yield name, unit, [float(v) for v in values.split()], better, baseline, aim


def run_figures(*command, **options):
    """What a program of tests/bench printed: {name: (unit, values)}."""
    return {f[0]: (f[1], f[2]) for f in figure_lines(run(*command, **options))}


def show_figures(text):
    """Reports the figures in the output of a program; other lines are shown as they are."""
    known = {}
    for line in text.splitlines():
        found = list(figure_lines(line))
        if not found and line.strip():
            say(line.strip())
        for name, unit, values, better, baseline, aim in found:
            known.setdefault(name, values)
            figure(name, unit, values, better or "higher", baseline or None, known.get(baseline), aim or None)


def build_dir():
    return os.environ.get("VARJFS_BUILDDIR") or os.path.join(TOP, "build")


def program(name):
    return os.path.join(build_dir(), name)


def tool(name):
    """A program that measures and is no part of what is measured."""
    return os.path.join(os.environ.get(TOOLS) or build_dir(), name)


def find_passthrough(name="passthrough_ll"):
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    prefix = os.environ.get("VARJFS_DEPS") or os.path.join(cache, "varjfs-deps")
    path = os.path.join(prefix, "bin", name)
    return path if os.path.exists(path) else None


def file_system_of(directory):
    """The type of the file system that holds @directory."""
    best, kind = "", ""
    real = os.path.realpath(directory)
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        for line in f:
            left, _, right = line.partition(" - ")
            where = left.split()[4].replace("\\040", " ")
            inside = real == where or real.startswith(where.rstrip("/") + "/")
            if inside and len(where) >= len(best):
                best, kind = where, right.split()[0]
    return kind


def forget_pages(path):
    """A file, or each below a directory: what the page cache holds of it goes."""
    files = [path]
    if os.path.isdir(path):
        files = [os.path.join(d, n) for d, _, names in os.walk(path) for n in names]
    for name in files:
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def find_daemon(command, directory):
    """The process of @command that serves @directory."""
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except (OSError, NotADirectoryError):
            continue
        if os.path.basename(words[0]) == os.fsencode(command) and os.fsencode(directory) in words:
            try:
                with open(f"/proc/{entry}/comm", encoding="ascii", errors="replace") as f:
                    if f.read().strip() == "varjfs-guard":  # it has the daemon's arguments
                        continue
            except OSError:
                continue
            return int(entry)
    return None


def bind(processors, targets):
    os.sched_setaffinity(0, processors)
    for pid in filter(None, (t.pid() for t in targets)):
        for _ in range(2):  # also what a thread that was not yet bound has started
            for thread in os.listdir(f"/proc/{pid}/task"):
                try:
                    os.sched_setaffinity(int(thread), processors)
                except ProcessLookupError:
                    pass


@contextlib.contextmanager
def on_one_processor(*targets):
    """This process, its children and the daemons of @targets: where a caller and a daemon take turns,
    a wake-up on another processor takes longer than all the rest, or not, as the scheduler likes."""
    processors = os.sched_getaffinity(0)
    bind({max(processors)}, targets)
    try:
        yield
    finally:
        bind(processors, targets)


class Below:
    """The directory itself."""
    name = "below"

    def __init__(self, work, name=None):
        self.name = name or self.name
        self.directory = os.path.join(work, self.name)
        self.source = self.directory  # where its bytes are in the end
        os.makedirs(self.directory)

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def sync(self):
        run("sync", "-f", self.source)

    def begin_cold(self):
        """Nothing is cached, neither here nor below."""
        self.sync()
        forget_pages(self.source)

    def pid(self):
        """The daemon's; None: there is none."""
        return None

    def close(self):
        pass


class Passthrough(Below):
    """libfuse's passthrough_ll over a directory, as it comes."""
    name = "passthrough"
    program = "passthrough_ll"

    def __init__(self, work, name=None):
        super().__init__(work, name)
        self.source = os.path.join(work, self.name + "-source")
        os.makedirs(self.source)
        self.mount()

    def mount(self):
        run(find_passthrough(self.program), "-o", f"source={self.source}", self.directory)

    def pid(self):
        return find_daemon(self.program, self.directory)

    def begin_cold(self):
        self.close()
        super().begin_cold()
        self.mount()

    def close(self):
        run("umount", "-i", self.directory)


class PassthroughNosplice(Passthrough):
    """Without splice.  A request of 1 MiB does not fit into a pipe of 1 MiB, all that pipe-max-size allows as a rule; so
    libfuse makes a pipe for each request and does not use it, and who is compared with that alone looks fast."""
    name = "passthrough-nosplice"
    program = "passthrough_ll_nosplice"


def passthroughs():
    """Those that there are; the one without splice first."""
    return [kind for kind in (PassthroughNosplice, Passthrough) if find_passthrough(kind.program)]


class Varjfs(Below):
    """varjfs over a directory; @make, @options: of mkfs.varjfs and of the mount, with "-o"."""
    name = "varjfs"
    make = ()  # options of mkfs.varjfs for those that say nothing else
    mounted = ()  # options of each mount, besides its own

    def __init__(self, work, name=None, make=(), options=(), preload=None):
        super().__init__(work, name)
        self.source = os.path.join(work, self.name + "-source")
        self.options, self.environment = [*self.mounted, *options], dict(os.environ)
        self.environment.update(preload or {})
        self.most_kib = 0
        run(program("mkfs.varjfs"), *(make or self.make), self.source)
        self.mount()

    def mount(self):
        run(program("varjfs"), self.source, self.directory, *self.options, env=self.environment)

    def sync(self):
        run(program("varjfsctl"), "sync", self.directory)

    def begin_cold(self):
        self.close()
        forget_pages(self.source)
        self.mount()

    def stats(self):
        text = run(program("varjfsctl"), "stats", "--json", self.directory)
        return json.loads(text)

    def pid(self):
        return find_daemon("varjfs", self.directory)

    def anonymous_kib(self):
        """RssAnon of the daemon."""
        with open(f"/proc/{self.pid()}/status", encoding="utf-8") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("RssAnon:"))

    def close(self):
        run(program("umount.fuse.varjfs"), self.directory)


class Work:
    """A directory below $VARJFS_BENCH_DIR (else the temporary one) and the targets made in it; all
    goes at the end, also when it is ended by a signal."""

    def __init__(self, name):
        self.name, self.targets = name, []

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        raise_descriptor_limit()
        base = (os.environ.get("VARJFS_BENCH_DIR") or "").split(":")[0] or None
        self.directory = tempfile.mkdtemp(prefix=self.name + ".", dir=base)
        os.chmod(self.directory, 0o755)
        _state["targets"] = self.targets
        return self

    def add(self, kind, *arguments, **options):
        target = kind(self.directory, *arguments, **options)
        self.targets.append(target)
        return target

    def drop(self, target):
        self.targets.remove(target)
        target.close()
        shutil.rmtree(target.source, ignore_errors=True)
        shutil.rmtree(target.directory, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def __exit__(self, *_):
        for target in self.targets:
            subprocess.run(["umount", "-i", target.directory], capture_output=True, check=False)
        for target in self.targets:
            wait_released(target)
        shutil.rmtree(self.directory, ignore_errors=True)


def wait_released(target):
    """umount returns before a daemon has ended."""
    if isinstance(target, Varjfs):
        subprocess.run([program("umount.fuse.varjfs"), target.directory], capture_output=True,
                       check=False)


def raise_descriptor_limit():
    """passthrough_ll keeps a descriptor for each inode that the kernel knows."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, 500000), max(hard, 500000)))
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# ---- a run of scripts/bench, as JSON ---------------------------------------------------------


def first_line(*command):
    try:
        out = subprocess.run(command, capture_output=True, text=True, check=False)
        return (out.stdout or out.stderr).strip().split("\n")[0]
    except OSError:
        return ""


def machine():
    cpu = memory = ""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo", encoding="utf-8") as f:
        memory = f"{int(f.readline().split()[1]) >> 20} GiB"
    name = os.uname()
    return {"kernel": name.release, "arch": name.machine, "cpu": cpu, "cpus": os.cpu_count(),
            "memory": memory}


def build(directory=None):
    directory = directory or build_dir()
    return {"version": first_line(os.path.join(directory, "varjfs"), "--version"),
            "commit": first_line("git", "-C", source_of(directory), "describe", "--always", "--dirty"),
            "configure": first_line(os.path.join(directory, "config.status"), "--config")}


def source_of(directory):
    """The source tree that the build in @directory is made of."""
    try:
        with open(os.path.join(directory, "Makefile"), encoding="utf-8") as f:
            found = next((line.split("=", 1)[1].strip() for line in f if line.startswith("abs_top_srcdir =")), None)
    except OSError:
        found = None
    return found or TOP


def load(path):
    with open(path, encoding="utf-8") as f:
        report = json.load(f)
    if report.get("format") != FORMAT or report.get("version") != VERSION:
        sys.exit(f"bench: {path}: not a report of this program, version {VERSION}")
    return report


def report_of(lines, other_lines=(), command="", against=None):
    """@lines: what figure() and point() handed over; @against: another build, @other_lines: what it handed over."""
    records, others = ([json.loads(line) for line in some] for some in (lines, other_lines))
    report = {"format": FORMAT, "version": VERSION, "date": now(), "command": command,
              "machine": machine(), "build": build(),
              "figures": joined(records),
              "points": list({(r["where"], r["plot"], r["series"], r["x"]): r for r in records if "plot" in r}.values())}
    if against:
        report["against"] = {"directory": against, "build": build(against), "figures": joined(others)}
    return report


def joined(records):
    """The figures among @records; what was measured twice (--against) is one, with the rounds of both times."""
    out = {}
    for new in (r for r in records if "name" in r):
        old = out.get(key_of(new))
        if old is not None:
            of_baseline = old["baseline_values"] + new["baseline_values"] if "baseline_values" in old else None
            new = {**new, **record_of(old["name"], old["unit"], old["values"] + new["values"], old["better"],
                                      old["baseline"], of_baseline, old["aim"], old.get("note"))}
        out[key_of(new)] = new
    return list(out.values())


def key_of(record):
    return (record.get("benchmark", ""), record.get("where", ""), record["name"],
            record.get("baseline") or "")


def compare(old, new):
    """[(key, verdict, old record, new record)]; verdicts: "worse" and "better" where the spreads of
    the ratios do not touch and the medians differ by 5 %, "same", "new", "gone", "missed": an aim
    that was met is not met any more, although not beyond the spread."""
    before = {key_of(r): r for r in old["figures"] if r.get("ratio") is not None}
    after = {key_of(r): r for r in new["figures"] if r.get("ratio") is not None}
    out = []
    for key, record in after.items():
        was = before.get(key)
        out.append((key, "new" if was is None else verdict(was, record), was, record))
    return out + [(k, "gone", r, None) for k, r in before.items() if k not in after]


def verdict(was, record):
    low, high = record["spread"]
    if record["better"] == "higher":
        worse, better = high < was["spread"][0], low > was["spread"][1]
    else:
        worse, better = low > was["spread"][1], high < was["spread"][0]
    if was["ratio"] and abs(record["ratio"] / was["ratio"] - 1) < 0.05:
        worse = better = False
    if worse or better:
        return "worse" if worse else "better"
    return "missed" if was.get("met") and record.get("met") is False else "same"


def comparison_text(rows):
    lines = [f"   {'':{WIDTH}} {'ratio was':>9} {'spread':>15}  {'is':>7} {'spread':>15}  change"]
    for key, word, was, record in rows:
        name = " ".join(k for k in (key[0], key[1], key[2]) if k)
        if was is None or record is None:
            lines.append(f"   {name:{WIDTH}} {word}")
            continue
        spreads = [f"{r['spread'][0]:.2f} .. {r['spread'][1]:.2f}" for r in (was, record)]
        change = (record["ratio"] / was["ratio"] - 1) * 100 if was["ratio"] else float("inf")
        lines.append(f"   {name:{WIDTH}} {was['ratio']:9.2f} {spreads[0]:>15}  {record['ratio']:7.2f} "
                     f"{spreads[1]:>15}  {change:+.0f} %"
                     + ("" if word == "same" else f"  {word.upper()}"))
    return "\n".join(lines)


def table_text(report):
    """All of a report, for people."""
    lines, last = [], None
    for record in report["figures"]:
        group = (record.get("benchmark", ""), record.get("where", ""))
        if group != last:
            where = f" on {group[1]}" if group[1] else ""
            lines += ["", f"== {group[0]}{where}", head_text()]
            last = group
        lines.append(row_text(record))
    return "\n".join(lines + ["", summary_text(report)])


def summary_text(report):
    aims = [r for r in report["figures"] if r.get("met") is not None]
    met = sum(1 for r in aims if r["met"])
    m, b = report["machine"], report["build"]
    return "\n".join([
        f"aims: {met} of {len(aims)} met" if aims else "no aims",
        f"date: {report['date']}   command: {report['command']}",
        f"machine: {m['cpus']} x {m['cpu']}, {m['memory']}, Linux {m['kernel']}",
        f"build: {b['version']}, commit {b['commit'] or 'unknown'}"])


# ---- two builds in turn ----------------------------------------------------------------------

SPEED_LEAST = 0.97  # a row whose speed is less is slower


def speed_of(record, other):
    """(median, spread) of how many times as fast as @other @record is, round by round; (None, None) where one has a 0,
    or where it was not measured in rounds but once each time (the most memory)."""
    ours, theirs = record["values"], other["values"]
    if record["better"] == "lower":
        ours, theirs = theirs, ours
    if 0 in ours or 0 in theirs or len(ours) != len(theirs) or len(ours) < 3:
        return None, None
    ratios = [a / b for a, b in zip(ours, theirs)]
    return statistics.median(ratios), trimmed(ratios)


def speeds(report):
    """[(record, the other build's, speed, spread)] of the rows that both builds have; one that stands beside several
    baselines comes once."""
    def row(record):
        return record["benchmark"], record["where"], record["name"]

    theirs = {row(r): r for r in report["against"]["figures"]}
    ours = {row(r): r for r in report["figures"] if row(r) in theirs}
    return [(r, theirs[key], *speed_of(r, theirs[key])) for key, r in ours.items()]


def is_slower(speed):
    return speed is not None and speed < SPEED_LEAST


def speeds_text(report):
    lines, last, rows = [], None, speeds(report)
    for record, other, speed, spread in rows:
        group = " on ".join(word for word in (record["benchmark"], record["where"]) if word)
        if group != last:
            lines += ["", f"== {group}",
                      f"   {'':{WIDTH}} {'this':>10} {'other':>10}  {'speed':>7} {'spread':>15}  unit"]
            last = group
        shown = f"{speed:7.3f} {spread[0]:7.2f} .. {spread[1]:.2f}" if speed is not None else f"{'-':>7}"
        lines.append(f"   {record['name']:{WIDTH}} {number(record['median']):>10} {number(other['median']):>10}  "
                     f"{shown:23}  {record['unit']}{'  SLOWER' if is_slower(speed) else ''}")
    compared = [speed for _, _, speed, _ in rows if speed is not None]
    fast = sum(1 for speed in compared if not is_slower(speed))
    other = report["against"]
    return "\n".join([*lines, "", f"rows at {SPEED_LEAST} of the other build or above: {fast} of {len(compared)}",
                      f"other build: {other['directory']}, {other['build']['version']}, "
                      f"commit {other['build']['commit'] or 'unknown'}"])


USAGE = """usage: vjbench.py figure NAME UNIT lower|higher VALUES BASELINE VALUES [AIM]
       vjbench.py run PROGRAM [ARGUMENT...]
       vjbench.py show <LINES"""


def main(arguments):
    if arguments[:1] == ["run"] and len(arguments) > 1:
        show_figures(run(*arguments[1:]))
    elif arguments == ["show"]:
        show_figures(sys.stdin.read())
    elif arguments[:1] == ["figure"] and len(arguments) in (7, 8) and arguments[3] in ("lower", "higher"):
        _, name, unit, better, ours, baseline, theirs, *aim = arguments
        figure(name, unit, ours.split(), better, baseline or None, theirs.split() or None, aim[0] if aim else None)
    else:
        sys.exit(USAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
