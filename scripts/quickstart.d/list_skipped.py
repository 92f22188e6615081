# SPDX-License-Identifier: MIT
"""list_skipped.py REPORT.xml...: the tests that were skipped in ctest's JUnit reports, and why."""

import re
import sys
import xml.etree.ElementTree

WHOLLY = re.compile(r"skipped: (.*)|(there is no such device here|libcuda\.so\.1: .*)")
IN_PART = re.compile(r"^skipped in part: (.*)")  # see tests/support/run_unittests.py and skipped.hpp


def reasons_in(output, pattern):
    """What the lines of a test's output tell of why something was skipped."""
    matches = map(pattern.search, output.splitlines())
    return [next(group for group in match.groups() if group) for match in matches if match]


def main(reports):
    skipped = {}  # names, each once however many reports have it, by how and why
    for report in reports:
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            output = case.findtext("system-out") or ""
            if case.find("skipped") is not None:
                reasons = reasons_in(output, WHOLLY)[:1] or ["no reason given"]
                found = [("skipped", reason) for reason in reasons]
            else:
                found = [("skipped in part", reason) for reason in reasons_in(output, IN_PART)]
            for key in found:
                skipped.setdefault(key, {})[case.get("name")] = None
    for (how, why), names in skipped.items():
        print(f"{how}, {why}: {', '.join(names)}")


if __name__ == "__main__":
    main(sys.argv[1:])
