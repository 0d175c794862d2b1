# SPDX-License-Identifier: LGPL-3.0-or-later
"""Plots of the points that benchmarks handed over (vjbench.point), as SVG, with nothing but Python.

    write(points, directory)    one file NAME.svg for each plot that has points; returns the paths
"""

import math
import os
from xml.sax.saxutils import escape

PLOTS = {  # name: title, x axis, y axis, form
    "insert-latency": ("Insert of 4 KiB in the middle of a file, until it is durable",
                       "size of the file", "ms", {"x": "bytes", "y": "log"}),
    "edit-latency": ("Insert, delete and replace of 4 KiB, without fsync", "size of the file", "µs",
                     {"x": "bytes", "y": "linear"}),
    "write-throughput": ("Sequential write of new content", "bytes of a request", "MB/s",
                         {"x": "bytes", "y": "linear"}),
    "read-throughput": ("Sequential read", "bytes of a request", "MB/s", {"x": "bytes", "y": "linear"}),
    "chunkers": ("Chunkers: speed and what de-duplication saves", "GB/s, one thread",
                 "saved, per cent", {"x": "linear", "y": "linear", "marks": True}),
    "index-lookup": ("Lookups in the index", "objects", "thousand/s", {"x": "log", "y": "log"}),
    "index-insert": ("Inserts into the index, until durable", "objects", "thousand/s",
                     {"x": "log", "y": "log"}),
    "paper-write": ("Initial write by request size (the paper's figures 5 and 13)",
                    "bytes of a request", "MB/s", {"x": "bytes", "y": "linear"}),
    "paper-edit": ("Insert, delete, replace of 1 MiB by size of the file (figures 14, 16, 18)",
                   "size of the file", "ms", {"x": "bytes", "y": "log"}),
    "real": ("Programs that work on trees of files", "", "times as long as on the file system below",
             {"x": "names", "y": "log"}),
}
# Distinct also for those who do not tell red from green; each has a mark of its own besides.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#7f6000", "#555555", "#b8860b"]
MARKS = ["circle", "square", "triangle", "diamond"]
WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 78, 200, 56, 62
NAMES_LEFT, NAME_HEIGHT = 240, 22


def size_text(value):
    for unit, shift in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value >= 1 << shift:
            return f"{value / (1 << shift):g} {unit}"
    return f"{value:g}"


def value_text(value):
    if value >= 10000 or (value and value < 0.001):
        power = math.floor(math.log10(value))
        if abs(value / 10 ** power - 1) < 1e-9:
            return f"10^{power}"
    return f"{value:g}"


class Axis:
    def __init__(self, kind, values, low, high):
        """@kind: linear, log, bytes; @low, @high: its ends in the drawing."""
        self.kind, self.low, self.high = kind, low, high
        values = [v for v in values if v > 0 or kind == "linear"] or [1]
        if kind == "linear":
            self.begin, step = min(0, *values), nice_step(max(values) - min(0, *values))
            self.end = max(step, math.ceil(max(values) / step) * step)
            count = round((self.end - self.begin) / step)
            self.ticks = [self.begin + i * step for i in range(count + 1)]
        else:
            base = 2 if kind == "bytes" else 10
            begin = math.floor(math.log(min(values), base) + 1e-9)
            end = max(math.ceil(math.log(max(values), base) - 1e-9), begin + 1)
            step = max(1, math.ceil((end - begin) / 8))
            self.begin, self.end = begin * math.log(base), end * math.log(base)
            self.ticks = [base ** p for p in range(begin, end + 1, step)]

    def at(self, value):
        place = value if self.kind == "linear" else math.log(value)
        return self.low + (place - self.begin) / (self.end - self.begin) * (self.high - self.low)

    def text(self, tick):
        return size_text(tick) if self.kind == "bytes" else value_text(tick)


def nice_step(span):
    raw = (span or 1) / 6
    power = 10 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= raw)


def mark(kind, x, y, colour):
    if kind == "square":
        return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"/>'
    if kind == "triangle":
        return f'<path d="M{x:.1f} {y - 5:.1f}l5 9h-10z" fill="{colour}"/>'
    if kind == "diamond":
        return f'<path d="M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z" fill="{colour}"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'


def text(x, y, words, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def head(title, height):
    return [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" fill="#222">',
            f'<title>{escape(title)}</title>',
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            text(LEFT, 28, title, "start", ' font-size="15"')]


def frame(x_axis, y_axis, title, x_name, y_name):
    out = head(title, HEIGHT)
    for tick in y_axis.ticks:
        y = y_axis.at(tick)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e4e4e4"/>')
        out.append(text(LEFT - 8, y + 4, y_axis.text(tick), "end"))
    for tick in x_axis.ticks:
        x = x_axis.at(tick)
        out.append(f'<path d="M{x:.1f} {HEIGHT - BOTTOM}v5" stroke="#888"/>')
        out.append(text(x, HEIGHT - BOTTOM + 20, x_axis.text(tick)))
    out.append(f'<path d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}" stroke="#888"/>')
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18, x_name))
    out.append(text(0, 0, y_name, extra=f' transform="translate(20 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) '
                                        'rotate(-90)"'))
    return out


def series_svg(points, x_axis, y_axis, colour, kind, joined):
    places = sorted((x_axis.at(p["x"]), y_axis.at(p["y"]), p.get("label")) for p in points)
    out = []
    if joined and len(places) > 1:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in places)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for x, y, label in places:
        out.append(mark(kind, x, y, colour))
        if label:
            out.append(text(x + 8, y + 4, str(label), "start", ' font-size="11"'))
    return out


def form_of(name):
    return PLOTS.get(name, (name, "", "", {"x": "linear", "y": "linear"}))


def drawable(name, points):
    """Those that have a place on the axes: a logarithmic one has none for 0."""
    form = form_of(name)[3]
    return [p for p in points if all(form[axis] in ("linear", "names") or p[axis] > 0 for axis in "xy")]


def legend(series, i, colour, kind):
    y = TOP + 10 + i * 22
    return [mark(kind, WIDTH - RIGHT + 22, y - 4, colour), text(WIDTH - RIGHT + 34, y, series, "start")]


def names_svg(name, points):
    """A line for each name (x of a point), with the marks of all series at their values (y)."""
    title, _, value_name, form = form_of(name)
    names = list(dict.fromkeys(p["x"] for p in points))
    series = list(dict.fromkeys(p["series"] for p in points))
    bottom = TOP + NAME_HEIGHT * max(len(names), len(series))
    height = bottom + BOTTOM
    axis = Axis(form["y"], [p["y"] for p in points], NAMES_LEFT, WIDTH - RIGHT)
    out = head(title, height)
    for tick in axis.ticks:
        x = axis.at(tick)
        out.append(f'<path d="M{x:.1f} {TOP}V{bottom}" stroke="#e4e4e4"/>')
        out.append(text(x, bottom + 18, axis.text(tick)))
    out.append(text((NAMES_LEFT + WIDTH - RIGHT) / 2, height - 18, value_name))
    for i, row in enumerate(names):
        y = TOP + NAME_HEIGHT * (i + 0.5)
        out.append(f'<path d="M{NAMES_LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#eee"/>')
        out.append(text(NAMES_LEFT - 10, y + 4, str(row), "end"))
    for i, one in enumerate(series):
        colour, kind = COLOURS[i % len(COLOURS)], MARKS[i % len(MARKS)]
        for p in points:
            if p["series"] == one:
                out.append(mark(kind, axis.at(p["y"]), TOP + NAME_HEIGHT * (names.index(p["x"]) + 0.5), colour))
        out += legend(one, i, colour, kind)
    return "\n".join(out + ["</svg>", ""])


def svg(name, points):
    """The text of one plot."""
    title, x_name, y_name, form = form_of(name)
    if form["x"] == "names":
        return names_svg(name, drawable(name, points))
    x_axis = Axis(form["x"], [p["x"] for p in points], LEFT, WIDTH - RIGHT)
    y_axis = Axis(form["y"], [p["y"] for p in points], HEIGHT - BOTTOM, TOP)
    points = drawable(name, points)
    out = frame(x_axis, y_axis, title, x_name, y_name)
    for i, series in enumerate(dict.fromkeys(p["series"] for p in points)):
        colour, kind = COLOURS[i % len(COLOURS)], MARKS[i % len(MARKS)]
        own = [p for p in points if p["series"] == series]
        out += series_svg(own, x_axis, y_axis, colour, kind, not form.get("marks"))
        out += legend(series, i, colour, kind)
    return "\n".join(out + ["</svg>", ""])


def write(points, directory):
    paths = []
    for name in dict.fromkeys((p["plot"], p.get("where", "")) for p in points):
        own = [p for p in points if (p["plot"], p.get("where", "")) == name]
        if not drawable(name[0], own):
            continue
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, "-".join(n for n in name if n) + ".svg")
        with open(path, "w", encoding="utf-8") as f:
            f.write(svg(name[0], own))
        paths.append(path)
    return paths
