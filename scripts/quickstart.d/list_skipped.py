# SPDX-License-Identifier: MIT
"""list_skipped.py REPORT.xml...: the tests that were skipped in ctest's JUnit reports, and why; then the kernels of
instruction sets that ran in any of the tests, and those that ran in none.
"""

import re
import sys
import xml.etree.ElementTree

WHOLLY = re.compile(r"skipped: (.*)|(there is no such device here|libcuda\.so\.1: .*)")
IN_PART = re.compile(r"^skipped in part: (.*)")  # see tests/support/run_unittests.py and skipped.hpp
# See tests/support/main.cpp. Kernels with other names ask for no instruction set.
KERNELS = re.compile(r"^kernels that (ran|did not run):(.*)", re.MULTILINE)
SIMD_KERNEL = re.compile(r"(?<=\s)simd_(?:decode_)?(\w+)")


def reasons_in(output, pattern):
    """What the lines of a test's output tell of why something was skipped."""
    matches = map(pattern.search, output.splitlines())
    return [next(group for group in match.groups() if group) for match in matches if match]


def kernels_in(output, what):
    """(instruction set, name) of each kernel that the output says `ran` or `did not run`."""
    lists = [names for how, names in KERNELS.findall(output) if how == what]
    return {(kernel[1], kernel[0]) for names in lists for kernel in SIMD_KERNEL.finditer(names)}


def by_instruction_set(kernels):
    sets = {}
    for isa, name in sorted(kernels):
        sets.setdefault(isa, []).append(name)
    return ", ".join(f"{isa} ({' '.join(names)})" for isa, names in sets.items())


def main(reports):
    skipped = {}  # names, each once however many reports have it, by how and why
    ran, refused = set(), set()
    for report in reports:
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            output = case.findtext("system-out") or ""
            ran |= kernels_in(output, "ran")
            refused |= kernels_in(output, "did not run")
            if case.find("skipped") is not None:
                reasons = reasons_in(output, WHOLLY)[:1] or ["no reason given"]
                found = [("skipped", reason) for reason in reasons]
            else:
                found = [("skipped in part", reason) for reason in reasons_in(output, IN_PART)]
            for key in found:
                skipped.setdefault(key, {})[case.get("name")] = None
    for (how, why), names in skipped.items():
        print(f"{how}, {why}: {', '.join(names)}")
    # What one test refuses, another may run.
    for what, kernels in ("ran", ran), ("did not run", refused - ran):
        if kernels:
            print(f"kernels that {what}: {by_instruction_set(kernels)}")


if __name__ == "__main__":
    main(sys.argv[1:])
