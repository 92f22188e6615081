# SPDX-License-Identifier: MIT
"""What figures belong to."""

import platform
import re
from pathlib import Path


def processor():
    """The name of its kind, with the numbers that names leave out."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    value = dict(re.findall(r"^(\S[^\t:]*)\s*: (.*)$", text.split("\n\n")[0], re.MULTILINE))
    parts = [f"{key} {value[key]}" for key in ("cpu family", "model") if key in value]
    return ", ".join([value.get("model name", platform.machine()), *parts])
