# SPDX-License-Identifier: LGPL-3.0-or-later
"""exposition.py FILE COUNT: is FILE in the Prometheus text format, as far as varjfsctl uses it,
with COUNT metrics?  Prints what is wrong."""
import re
import sys

name = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
label = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
sample = re.compile(r"(%s)\{(%s(?:,%s)*)\} ([0-9]+)$" % (name, label, label))
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
    m = re.match(r"# TYPE (%s) (counter|gauge)$" % name, line)
    if m:
        if m[1] in typed or m[1] in seen:
            print("TYPE twice or late:", line)
        typed[m[1]] = m[2]
        continue
    m = sample.match(line)
    if not m:
        print("no line of the format:", line)
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
    labels = dict(re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', m[2]))
    if set(labels) - {"label"} != {"volume", "mount"} or len(labels["volume"]) != 36:
        print("labels:", line)
if len(seen) != int(sys.argv[2]):
    print(len(seen), "metrics, not", sys.argv[2])
