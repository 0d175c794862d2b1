# SPDX-License-Identifier: LGPL-3.0-or-later
"""exposition.py FILE COUNT: is FILE in the Prometheus text format, as far as varjfsctl uses it,
with COUNT metrics, and the figures of calls beside?  Prints what is wrong."""
import re
import sys

name = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
label = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
sample = re.compile(r"(%s)\{(%s(?:,%s)*)\} ([0-9]+(?:\.[0-9]+)?)$" % (name, label, label))
calls = {"varjfs_calls_total", "varjfs_call_failures_total", "varjfs_call_bytes_total",
         "varjfs_call_seconds"}
histograms, last = {}, None
helped, typed, seen = {}, {}, set()
text = open(sys.argv[1], encoding="utf-8").read()
if not text.endswith("\n"):
    print("the last line does not end")
for line in text.splitlines():
    m = re.match(r"# HELP (%s) (\S.*)$" % name, line)
    if m:
        if m[1] in helped or m[1] in seen:
            print("HELP twice or late:", line)
        helped[m[1]] = m[2]
        continue
    m = re.match(r"# TYPE (%s) (counter|gauge|histogram)$" % name, line)
    if m:
        if m[1] in typed or m[1] in seen:
            print("TYPE twice or late:", line)
        typed[m[1]] = m[2]
        continue
    m = sample.match(line)
    if not m:
        print("no line of the format:", line)
        continue
    labels = dict(re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', m[2]))
    family = re.sub("_(bucket|sum|count)$", "", m[1]) if m[1] not in typed else m[1]
    if family in calls:
        if last != family and family in seen:
            print("not together:", line)
        last = family
        if family not in helped or family not in typed:
            print("no HELP or TYPE:", line)
        if set(labels) - {"label", "le"} != {"volume", "mount", "group", "kind"}:
            print("labels:", line)
        if typed.get(family) == "histogram":
            histograms.setdefault((labels["group"], labels["kind"]), []).append(
                (m[1][len(family):], labels.get("le"), float(m[3])))
        elif (family, m[2]) in seen:
            print("twice:", line)
        seen |= {family, (family, m[2])}
        continue
    if m[1] in seen:
        print("twice:", line)
    seen.add(m[1])
    if m[1] not in helped or m[1] not in typed:
        print("no HELP or TYPE:", line)
    if (typed.get(m[1]) == "counter") != m[1].endswith("_total"):
        print("_total is for counters:", line)
    if "newer daemon" in helped.get(m[1], ""):
        print("varjfsctl does not know it:", m[1])
    if set(labels) - {"label"} != {"volume", "mount"} or len(labels["volume"]) != 36:
        print("labels:", line)
if not histograms:
    print("no histogram")
for kind, rows in histograms.items():
    edges = [float(le) for part, le, _ in rows if part == "_bucket"]
    counts = [n for part, _, n in rows if part == "_bucket"]
    if edges != sorted(edges) or edges[-1] != float("inf") or counts != sorted(counts):
        print("no histogram:", kind)
    if [n for part, _, n in rows if part == "_count"] != counts[-1:] or rows[-2][0] != "_sum":
        print("no sum or count:", kind)
seen = {s for s in seen if isinstance(s, str) and s not in calls}
if len(seen) != int(sys.argv[2]):
    print(len(seen), "metrics, not", sys.argv[2])
