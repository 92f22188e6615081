# SPDX-License-Identifier: MIT
"""The schemas of result files: JSON that the programs print (`--describe-results`), by version and kind."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "schemas"
# A schema, or one group, attribute or dataset of it.
Entry = Mapping[str, Any]


def versions() -> list[str]:
    """The versions of the format that have schemas, ascending."""
    return sorted((path.name for path in FOLDER.iterdir() if path.is_dir()), key=_numbers)


def is_later(version: str) -> bool:
    """Whether this is a minor version after the newest one that has schemas."""
    newest = _numbers(versions()[-1])
    numbers = _numbers(version) if all(part.isdecimal() for part in version.split(".")) else ()
    return len(numbers) == len(newest) and numbers[0] == newest[0] and numbers > newest


def kinds(version: str) -> list[str]:
    """The kinds of files of a version."""
    return sorted(path.stem for path in (FOLDER / version).glob("*.json"))


@cache
def schema_of(kind: str, version: str) -> Entry:
    """What a file of this kind and version contains.

    "groups" has an entry for each group by its path ("/cases"), with "attributes" and "datasets" by name. A dataset has
    "type" (f64, i64, i32, u64, flag or text), "dims", "units" (not of texts), "description", and perhaps "meanings" of
    flags, "fill", "nan" ("never", or "unless ok": only in rows whose status is not ok) and "when": where files have it.
    A name with * stands for any number of datasets.

    Raises KeyError if there is no such schema.
    """
    path = FOLDER / version / f"{kind}.json"
    if version not in versions() or kind not in kinds(version):
        raise KeyError(f"{version}/{kind}")
    found: Entry = json.loads(path.read_text(encoding="utf-8"))
    return found


def entry_of(entries: Mapping[str, Entry], name: str) -> Entry | None:
    """The entry of a name, or of the pattern that it matches."""
    if name in entries:
        return entries[name]
    return next((entry for pattern, entry in entries.items() if "*" in pattern and fnmatchcase(name, pattern)), None)


def markdown(version: str) -> str:
    """The tables of docs/results.md: every group once, or once for each kind of file where they differ."""
    by_group: dict[str, dict[str, list[str]]] = {}
    for kind in kinds(version):
        for path, group in schema_of(kind, version)["groups"].items():
            by_group.setdefault(path, {}).setdefault(_group_text(group), []).append(kind)
    parts = []
    for path, texts in sorted(by_group.items()):
        everywhere = len(texts) == 1 and len(next(iter(texts.values()))) == len(kinds(version))
        for text, of in texts.items():
            where = "" if everywhere else " of " + ", ".join(f"`{kind}`" for kind in of)
            parts.append(f"### `{path}`{where}\n\n{text}")
    return "\n\n".join(parts)


def _group_text(group: Entry) -> str:
    lines = []
    if "rows" in group:
        lines.append(f"A row is a {group['rows']}.")
    if "when" in group:
        lines.append(f"Only {group['when']}.")
    parts = [" ".join(lines)] if lines else []
    if group["attributes"]:
        rows = [f"| `{name}` | {entry['type']} | {entry['description']} |" for name, entry in group["attributes"].items()]
        parts.append("\n".join(["| attribute | type | |", "|---|---|---|", *rows]))
    if group["datasets"]:
        rows = [_dataset_row(name, entry) for name, entry in group["datasets"].items()]
        parts.append("\n".join(["| dataset | type | units | |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _dataset_row(name: str, entry: Entry) -> str:
    dims = f"({', '.join(entry['dims'])})" if len(entry["dims"]) > 1 else ""
    text = entry["description"]
    if "meanings" in entry:
        text += ": " + ", ".join(entry["meanings"])
    if "fill" in entry:
        text += f"; {entry['fill']}: none"
    if "when" in entry:
        text += f"; only {entry['when']}"
    return f"| `{name}{dims}` | {entry['type']} | {entry.get('units', '')} | {text.replace('|', '/')} |"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
