# SPDX-License-Identifier: MIT
"""A report of a result file: one HTML file with pictures, tables and the deck inside."""

import base64
import html
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from .heading import source_facts
from .pictures import picture_options, save_pictures
from .reader import Groups, ResultFileError
from .series import crossover_table, run_label, summary_table
from .tables import FORMATS, TABLES

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2rem; } h3 { font-size: 1rem; }
p.origin { color: #666; margin-top: .2rem; }
img { max-width: 100%; height: auto; }
div.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #ddd; padding: .2rem .6rem; text-align: right; white-space: nowrap; }
th { background: #f4f4f4; } td.text { text-align: left; white-space: pre-wrap; overflow-wrap: anywhere; }
pre { background: #f7f7f7; padding: .8rem; overflow-x: auto; font-size: .8rem; }
"""
_MOST_ROWS = 500
_MOST_PICTURES = 12


def save_report(groups: Groups, out: str | Path) -> Path:
    """Writes the report of a file that open_results read; returns its path.

    It has the cases, pictures of all of them (at most twelve), the limits of the machine, where the numbers come from, and the
    deck. Nothing is loaded from elsewhere. A part that the file lacks is left out, and so are pictures without data.
    """
    out = Path(out)
    out.write_text(report(groups), encoding="utf-8")
    return out


def report(groups: Groups) -> str:
    """The report as text."""
    root = groups[""].attrs
    title = html.escape(str(root.get("title", "")) or "Kformer results")
    origin = "  ·  ".join([*source_facts(groups), run_label(groups)])
    parts = [f"<h1>{title}</h1>", f'<p class="origin">{html.escape(origin)}</p>']
    parts += _section("Results", _results(groups)) + _section("Pictures", _pictures(groups))
    parts += _section("Machine", _machine(groups)) + _section("Origin", _origin(groups)) + _section("Deck", _deck(groups))
    body = "\n".join(parts)
    return (f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
            f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n")  # fmt: skip


def _section(name: str, content: str) -> list[str]:
    return [f"<h2>{name}</h2>", content] if content else []


def _results(groups: Groups) -> str:
    kind = str(groups[""].attrs.get("kind", ""))
    try:
        table = TABLES[kind](groups) if kind in TABLES else summary_table(groups)
        found = _table(table)
        crossovers = crossover_table(groups)
    except ResultFileError as error:  # of a run that ended early
        return f"<p>{html.escape(str(error))}</p>"
    if not crossovers.empty:
        found += "<p>Flash attention against standard, times faster:</p>" + _table(crossovers)
    return found


def _pictures(groups: Groups) -> str:
    """A picture for each batch, op and configuration of a sweep, and one of other kinds; the first twelve."""
    try:
        options = picture_options(groups)
        parts = [_picture(groups, *one) for one in options[:_MOST_PICTURES]]
    except ResultFileError:
        return ""
    if len(options) > len(parts):
        parts.append(f"<p>The first {len(parts)} of {len(options)}. <code>kformer-results plot FILE.h5 --batch B "
                     "--configuration N</code> draws any of them.</p>")  # fmt: skip
    return "\n".join(parts)


def _picture(groups: Groups, options: dict[str, Any], what: str) -> str:
    heading = f"<h3>{html.escape(what)}</h3>" if what else ""
    with tempfile.TemporaryDirectory() as folder:
        path, = save_pictures(groups, Path(folder) / "picture.png", **options)
        data = base64.b64encode(path.read_bytes()).decode()
    return f'{heading}<p><img alt="{html.escape(what or "picture")}" src="data:image/png;base64,{data}"></p>'


def _machine(groups: Groups) -> str:
    if "machine" not in groups or groups["machine"].sizes.get("space", 0) == 0:
        return ""
    machine = groups["machine"]
    rows = []
    for name, variable in machine.data_vars.items():
        if variable.dtype.kind == "f":
            units = str(variable.attrs.get("units", ""))
            rows.append({"limit": name, "units": "GB/s" if units == "byte/s" else "Gop/s",
                         **dict(zip(machine["execution_space"].values, variable.values / 1e9)),
                         "": variable.attrs.get("long_name", "")})  # fmt: skip
    return _table(pd.DataFrame(rows))


def _origin(groups: Groups) -> str:
    facts = dict(groups[""].attrs)
    if "provenance" in groups:
        facts.update(groups["provenance"].attrs)
        if "command_line" in groups["provenance"]:
            facts["command_line"] = str(groups["provenance"]["command_line"].values)
    rows = "".join(
        f'<tr><th>{html.escape(str(name))}</th><td class="text">{html.escape(str(value))}</td></tr>'
        for name, value in facts.items()
    )
    return f'<div class="table"><table>{rows}</table></div>'


def _deck(groups: Groups) -> str:
    if "provenance" not in groups or "deck_text" not in groups["provenance"]:
        return ""
    return f"<pre>{html.escape(str(groups['provenance']['deck_text'].values))}</pre>"


def _table(table: pd.DataFrame) -> str:
    """The first rows; what stands in it is text, whatever it holds."""
    shown = table.head(_MOST_ROWS)
    formats = {name: text for name, text in FORMATS.items() if name in shown}
    text = shown.to_html(index=False, border=0, na_rep="–", float_format="{:.4g}".format, formatters=formats)
    more = f"<p>The first {_MOST_ROWS} of {len(table)} rows.</p>" if len(table) > _MOST_ROWS else ""
    return f'<div class="table">{text}</div>{more}'
