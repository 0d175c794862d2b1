# SPDX-License-Identifier: LGPL-3.0-or-later
"""scripts/bench as a program: the form of a figure, reports, --compare, --plot.  Nothing is measured."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "lib"))
import vjbench  # noqa: E402
import vjplot  # noqa: E402
from vjtap import eq, main, test  # noqa: E402


def report(*figures, points=()):
    build = {"version": "varjfs 0", "commit": "abc", "configure": ""}
    machine = {"kernel": "1", "arch": "x", "cpu": "c", "cpus": 2, "memory": "1 GiB"}
    return {"format": vjbench.FORMAT, "version": vjbench.VERSION, "date": "2026-01-01T00:00:00Z",
            "command": "scripts/bench x", "machine": machine, "build": build,
            "figures": list(figures), "points": list(points)}


def record(name, values, better="higher", theirs=(10,) * 7, aim=None):
    out = vjbench.record_of(name, "MB/s", values, better, "passthrough", theirs, aim)
    out.update(benchmark="b", where="tmpfs")
    return out


def save(directory, name, content):
    path = os.path.join(directory, name)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(content, f)
    return path


def bench(*arguments):
    done = subprocess.run([sys.executable, os.path.join(TOP, "scripts", "bench"), *arguments],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@test
def a_figure_has_ratio_and_spread_of_its_rounds(_):
    r = vjbench.record_of("n", "MB/s", [10, 20, 30, 40, 50], "higher", "b", [10, 10, 10, 10, 10], ">= 3")
    eq((r["median"], r["ratio"], r["spread"], r["met"]), (30, 3, [2, 4], True))
    r = vjbench.record_of("n", "ms", [1, 2, 3], "lower", "b", [1, 1, 1], "<= 1.5")
    eq((r["ratio"], r["spread"], r["met"]), (2, [1, 3], False), "three rounds: all of them")
    r = vjbench.record_of("n", "MB/s", [8, 4, 2], "higher", "b", [2, 2, 2, 2])
    eq((r["ratio"], r["spread"], r["met"]), (2, [1, 4], None), "rounds that do not go together")
    r = vjbench.record_of("n", "s", [1, 2, 3], "lower", "b", [0, 1, 1], "<= 1")
    eq((r["ratio"], r["met"]), (None, None), "nothing can be divided by 0")
    eq("-" in vjbench.row_text(r), True)
    # A round in which the machine was slow for both does not spread the ratio.
    r = vjbench.record_of("n", "MB/s", [10, 1, 10], "higher", "b", [20, 2, 20])
    eq(r["spread"], [0.5, 0.5])


@test
def rounds_are_interleaved_and_take_turns(_):
    order = []
    r = vjbench.interleave(3, {"a": lambda i: order.append("a") or i, "b": lambda i: order.append("b") or -i})
    eq(r, {"a": [0, 1, 2], "b": [0, -1, -2]})
    eq("".join(order), "abbaab")


@test
def what_programs_print_is_read(directory):
    path = os.path.join(directory, "program")
    with open(path, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\necho hello\nprintf 'figure\\tsome name\\tGB/s\\t1 2.5 3e2\\n'\n")
    os.chmod(path, 0o755)
    eq(vjbench.run_figures(path), {"some name": ("GB/s", [1, 2.5, 300])})


@test
def a_program_names_the_baseline_among_its_figures(directory):
    lines = "hello\nfigure\tbase\tms\t2 2 2\nfigure\tours\tms\t1 1 1\tlower\tbase\t<= 1\n"
    out = os.path.join(directory, "out")
    environment = dict(os.environ, **{vjbench.OUT: out})
    done = subprocess.run([sys.executable, vjbench.__file__, "show"], env=environment, input=lines,
                          capture_output=True, text=True, check=True)
    eq("hello" in done.stdout, True)
    with open(out, encoding="utf-8") as f:
        ours = vjbench.report_of(f.read().splitlines())["figures"][1]
    eq((ours["name"], ours["baseline"], ours["ratio"], ours["better"], ours["met"]),
       ("ours", "base", 0.5, "lower", True))


@test
def what_was_measured_twice_is_one_figure(_):
    lines = [json.dumps(record("x", [v] * 2, theirs=[10] * 2)) for v in (10, 20)]
    found = vjbench.report_of([*lines, json.dumps(record("y", [1]))])["figures"]
    eq([(r["name"], r["values"], r["ratio"]) for r in found], [("x", [10, 10, 20, 20], 1.5), ("y", [1], 0.1)])


@test
def figures_are_handed_over_to_scripts_bench(directory):
    out = os.path.join(directory, "out")
    environment = dict(os.environ, **{vjbench.OUT: out, vjbench.NAME: "b", vjbench.WHERE: "ext4"})
    done = subprocess.run([sys.executable, vjbench.__file__, "figure", "n", "ms", "lower", "1 2 3", "base", "2 2 2",
                           "<= 1"], env=environment, capture_output=True, text=True, check=True)
    eq("1.00" in done.stdout and "base" in done.stdout, True, done.stdout)
    with open(out, encoding="utf-8") as f:
        lines = f.read().splitlines()
    r = vjbench.report_of(lines)
    eq((len(r["figures"]), r["points"]), (1, []))
    got = r["figures"][0]
    eq((got["benchmark"], got["where"], got["name"], got["ratio"], got["met"]), ("b", "ext4", "n", 1, True))


@test
def a_report_is_printed(directory):
    path = save(directory, "r.json", report(record("reads", [9] * 7, aim=">= 1.0"), record("writes", [11] * 7)))
    status, text = bench("--from", path)
    eq(status, 0, text)
    for part in ("== b on tmpfs", "reads", "0.90", "MISSED", "passthrough", "scripts/bench x", "2026-01-01",
                 "aims: 0 of 1 met"):
        eq(part in text, True, f"{part} in {text}")


@test
def compare_fails_beyond_the_spread_alone(directory):
    steady, noisy = [10, 10.1, 9.9, 10, 10, 10.1, 9.9], [10, 12, 8, 10, 13, 7, 10]
    old = save(directory, "old.json", report(record("x", steady), record("y", noisy)))

    def verdict(*figures):
        new = save(directory, "new.json", report(*figures))
        return bench("--from", new, "--compare", old)

    eq(verdict(record("x", steady), record("y", noisy))[0], 0, "nothing changed")
    status, text = verdict(record("x", [v * 0.8 for v in steady]), record("y", noisy))
    eq((status, "WORSE" in text, "-20 %" in text), (3, True, True), text)
    status, text = verdict(record("x", steady), record("y", [v * 0.8 for v in noisy]))
    eq((status, "WORSE" in text), (0, False), "within the spread: " + text)
    status, text = verdict(record("x", [v * 1.3 for v in steady]))
    eq((status, "BETTER" in text, "gone" in text), (0, True, True), text)
    eq(verdict(record("x", [v * 0.97 for v in steady]), record("z", steady))[0], 0, "three per cent; a new one")


@test
def less_is_better_where_that_is_said(directory):
    old = save(directory, "old.json", report(record("ms", [10] * 7, "lower")))
    new = save(directory, "new.json", report(record("ms", [20] * 7, "lower")))
    eq(bench("--from", new, "--compare", old)[0], 3)
    eq(bench("--from", old, "--compare", new)[0], 0)


def beside(theirs, *ours):
    return {**report(*ours), "against": {"directory": "/b", "build": report()["build"], "figures": theirs}}


@test
def another_build_in_the_same_rounds(directory):
    def verdict(theirs, *ours):
        return bench("--from", save(directory, "r.json", beside(theirs, *ours)))

    status, text = verdict([record("x", [10] * 7)], record("x", [9.8] * 7), record("new", [1] * 7))
    eq((status, "0.980" in text, "1 of 1" in text, "SLOWER" in text), (0, True, True, False), text)
    status, text = verdict([record("x", [10, 1, 10])], record("x", [9, 0.9, 9]))
    eq((status, "0.90 .. 0.90" in text, "SLOWER" in text), (3, True, True), "a slow round is so for both: " + text)
    eq(verdict([record("x", [9] * 7, "lower")], record("x", [10] * 7, "lower"))[0], 3, "less is better")
    eq(verdict([record("x", [10] * 7, "lower")], record("x", [9] * 7, "lower"))[0], 0)
    for values in ([0] * 7, [9]):
        status, text = verdict([record("x", values)], record("x", values[:1] * len(values)))
        eq((status, "0 of 0" in text), (0, True), "nothing to divide, or no rounds: " + text)


# What a benchmark does: who ran what when stands in a file.
STEPS = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import vjbench
name = os.environ["VARJFS_BUILDDIR"]
def step(what):
    with open(sys.argv[2], "a") as f:
        f.write(f"{name}{what} ")
    time.sleep(0.01)
    with open(sys.argv[2], "a") as f:
        f.write("end ")
vjbench.interleave(2, {"a": lambda i: step(f"a{i}"), "b": lambda i: step(f"b{i}")})
sys.exit(int(name == "fails"))
"""


def turns_of(directory, *names):
    """What processes of STEPS with these names did, in order, and their statuses."""
    out = os.path.join(directory, "steps")
    open(out, "w", encoding="utf-8").close()
    turns = vjbench.Turns()
    for name in names:
        environment = dict(os.environ, VARJFS_BUILDDIR=name)
        command = [sys.executable, "-c", STEPS, os.path.dirname(vjbench.__file__), out]
        turns.start(lambda more, fds: subprocess.Popen(command, env={**environment, **more},  # noqa: B023
                                                       pass_fds=fds))
    statuses = turns.run()
    with open(out, encoding="utf-8") as f:
        return f.read(), statuses


@test
def two_builds_take_turns_and_never_run_at_once(directory):
    text, statuses = turns_of(directory, "X", "Y")
    eq((text.split(), statuses), ([w for s in ("a0", "b0", "b1", "a1") for n in "XY" for w in (n + s, "end")], [0, 0]))
    eq(turns_of(directory, "X", "fails")[1], [0, 1], "both go on to their ends")


@test
def an_aim_that_is_lost_is_said(directory):
    old = save(directory, "old.json", report(record("x", [10, 8, 12, 10, 9, 11, 10.1], aim=">= 1.0")))
    new = save(directory, "new.json", report(record("x", [9, 8, 12, 10, 9, 11, 9], aim=">= 1.0")))
    status, text = bench("--from", new, "--compare", old)
    eq((status, "MISSED" in text.split("== against")[1]), (0, True), text)


@test
def what_is_no_report_is_refused(directory):
    eq(bench("--from", save(directory, "r.json", {"format": "other"}))[0], 1)
    eq(bench("--no-such-option")[0], 2)
    eq(bench("no-such-benchmark")[0], 1)


@test
def json_comes_out_as_it_went_in(directory):
    content = report(record("x", [1] * 7))
    again = os.path.join(directory, "again.json")
    eq(bench("--from", save(directory, "r.json", content), "--json", again)[0], 0)
    eq(vjbench.load(again), content)


def circles(root):
    return [e for e in root.iter() if e.tag.endswith("circle")]


@test
def plots_are_svg(directory):
    points = [{"plot": "insert-latency", "series": s, "x": 1 << x, "y": y, "label": None, "where": "ext4"}
              for s, y in (("varjfs", 1.5), ("rewriting <the tail> & more", 300.0)) for x in (24, 28, 30)]
    points += [{"plot": "chunkers", "series": "mincdc", "x": 8, "y": 41, "label": "64 KiB", "where": ""}]
    status, text = bench("--from", save(directory, "r.json", report(points=points)), "--plot",
                         os.path.join(directory, "plots"))
    eq(status, 0, text)
    eq(sorted(os.listdir(os.path.join(directory, "plots"))), ["chunkers.svg", "insert-latency-ext4.svg"])
    root = xml.etree.ElementTree.parse(os.path.join(directory, "plots", "insert-latency-ext4.svg")).getroot()
    eq(root.tag, "{http://www.w3.org/2000/svg}svg")
    words = "".join(root.itertext())
    for part in ("rewriting <the tail> & more", "varjfs", "256 MiB", "1 GiB", "ms"):
        eq(part in words, True, f"{part} in {words}")
    eq(len(circles(root)), 4, "three points of the first series, one in the legend")
    places = [float(c.get("cx")) for c in circles(root)[:3]]
    eq(places, sorted(places), "x grows")
    for c in circles(root):
        eq(0 < float(c.get("cx")) < vjplot.WIDTH and 0 < float(c.get("cy")) < vjplot.HEIGHT, True)


@test
def a_plot_of_rows_has_a_line_for_each(directory):
    points = [{"plot": "real", "series": s, "x": row, "y": y, "label": None, "where": "ext4"}
              for s, y in (("varjfs", 1.5), ("bindfs", 30.0)) for row in ("untar", "grep <-r>, warm", "du")]
    status, text = bench("--from", save(directory, "r.json", report(points=points)), "--plot", directory)
    eq(status, 0, text)
    root = xml.etree.ElementTree.parse(os.path.join(directory, "real-ext4.svg")).getroot()
    words = "".join(root.itertext())
    for part in ("grep <-r>, warm", "untar", "bindfs"):
        eq(part in words, True, f"{part} in {words}")
    eq(len(circles(root)), 4, "three points of the first series, one in the legend")
    eq(len({c.get("cx") for c in circles(root)[:3]}), 1, "equal values stand below one another")
    heights = [float(c.get("cy")) for c in circles(root)[:3]]
    eq(heights, sorted(set(heights)), "in the order of the rows")


@test
def a_plot_of_nothing_says_so(directory):
    plots = os.path.join(directory, "plots")
    nowhere = {"plot": "insert-latency", "series": "s", "x": 0, "y": 0, "label": None, "where": ""}
    for points in ([], [nowhere]):
        status, text = bench("--from", save(directory, "r.json", report(points=points)), "--plot", plots)
        eq(status, 1, text)
        eq("nothing is drawn" in text, True, text)
        eq(os.path.exists(plots), False)


@test
def axes_take_single_and_equal_values(_):
    for name in (*vjplot.PLOTS, "unknown"):
        for points in ([(5, 5)], [(1, 0.001), (1, 0.001)], [(1, 7), (1 << 40, 7)]):
            text = vjplot.svg(name, [{"series": "s", "x": x, "y": y} for x, y in points])
            xml.etree.ElementTree.fromstring(text)


@test
def each_benchmark_says_its_question(_):
    status, text = bench("--list")
    eq(status, 0, text)
    for line in text.splitlines():
        eq("?" in line or len(line.split(None, 1)[1]) > 20, True, line)


sys.exit(main(sys.argv[1]))
