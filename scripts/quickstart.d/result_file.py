# SPDX-License-Identifier: MIT
"""result_file.py DECK MARKER: prints the result file of DECK that was written after the file MARKER.

The name in the deck may hold placeholders such as {name} and {date}, which only the driver fills in.
"""

import glob
import os
import re
import sys
import tomllib

deck_path, marker = sys.argv[1:]
with open(deck_path, "rb") as deck_file:
    name = tomllib.load(deck_file).get("output", {}).get("file", "{name}.h5")
pattern = "*".join(glob.escape(part) for part in re.split(r"\{[a-z]+\}", name))
written = [path for path in glob.glob(pattern) if os.path.getmtime(path) >= os.path.getmtime(marker)]
if not written:
    sys.exit(f"quickstart: the driver wrote no result file {name}")
print(max(written, key=os.path.getmtime))
