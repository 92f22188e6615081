# SPDX-License-Identifier: MIT
"""list_skipped.py REPORT.xml...: the tests that were skipped in ctest's JUnit reports, and why."""

import re
import sys
import xml.etree.ElementTree

REASONS = re.compile(
    r"skipped: (.*)|skipped '(.*)'|(No module named \S+|there is no such device here|libcuda\.so\.1: .*)"
)


def reason_of(output):
    """The first line of a test's output that tells why it was skipped."""
    for line in output.splitlines():
        if match := REASONS.search(line):
            return next(group for group in match.groups() if group)
    return "no reason given"


def main(reports):
    skipped = {}
    for report in reports:
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            if case.find("skipped") is not None:
                names = skipped.setdefault(reason_of(case.findtext("system-out") or ""), {})
                names[case.get("name")] = None  # once, however many reports have it
    for reason, names in skipped.items():
        print(f"skipped, {reason}: {', '.join(names)}")


if __name__ == "__main__":
    main(sys.argv[1:])
