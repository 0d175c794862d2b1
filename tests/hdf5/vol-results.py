#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-3.0-or-later
"""vol-results.py SECTION - h5_api_test's output on stdin, as lines "passed|skipped|failed TAB name"

And "summary TAB ..." of the counts that the program itself prints, if it came so far and they agree with the lines.
A name is SECTION / TEST, or SECTION / TEST / PART.
"""

import collections
import re
import sys

RESULTS = {"PASSED": "passed", "-SKIP-": "skipped", "*FAILED*": "failed"}


def main():
    section, test, part, counts, own = sys.argv[1], None, None, collections.Counter(), {}

    def report(result):
        counts[result] += 1
        print(result + "\t" + " / ".join(filter(None, (section, test, part))))

    waiting = False  # a test has begun, and has not said how it ended
    for line in sys.stdin:
        line = line.rstrip("\n")
        begun = re.match(r"( *)Testing (.*?)( *|  .*| PASSED| -SKIP-|\*FAILED\*)$", line)
        if begun:
            if waiting and part:
                report("failed")  # of its first part or the last: neither of them said anything
            test, part = (test, begun[2]) if begun[1] else (begun[2], None)
            waiting = True
        ended = re.search(r"(PASSED|-SKIP-|\*FAILED\*)$", line)
        if ended and test:
            report(RESULTS[ended[1]])
            waiting = False
        count = re.match(r"(\d+)/(\d+) \(.*\) API tests (passed|did not pass|were skipped) with", line)
        if count:
            own[count[3]] = int(count[1])
    if (own.get("passed"), own.get("were skipped")) == (counts["passed"], counts["skipped"]):
        print(f"summary\t{own['passed']} passed, {own['were skipped']} skipped, {own.get('did not pass')} failed")


main()
