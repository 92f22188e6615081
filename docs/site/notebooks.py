# SPDX-License-Identifier: MIT
"""Runs the notebooks of docs/notebooks without Jupyter, and writes what they show as pages of the site.

  docs/site/notebooks.py NOTEBOOK OUT.md     in a folder with the files that it opens
"""

import ast
import contextlib
import io
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt


def shown(value):
    """A value as a notebook shows it: a table as HTML, other things as text."""
    if hasattr(value, "to_html"):
        return f'<div class="table">\n{value.to_html(border=0)}\n</div>'
    return f"```text\n{value!r}\n```"


def run_cell(source, names):
    """Runs a cell; returns what it printed and the value of its last line, as Markdown."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    parts = [f"```text\n{printed.getvalue().rstrip()}\n```"] if printed.getvalue().strip() else []
    return parts + ([] if value is None else [shown(value)])


def run(notebook, out):
    """Runs all cells in the working directory; writes the page, and beside it the pictures of its figures."""
    names, parts, pictures = {"__name__": "__main__"}, [], []
    for cell in json.loads(Path(notebook).read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += run_cell(source, names)
        for number in plt.get_fignums():
            pictures.append(out.with_name(f"{out.stem}-{len(pictures) + 1}.png"))
            plt.figure(number).savefig(pictures[-1], dpi=110)
            parts.append(f"![{pictures[-1].stem}]({pictures[-1].name})")
        plt.close("all")
    out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return pictures


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]))
