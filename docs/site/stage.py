#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the source tree of the site: links to docs/, and the pages that are made from other files.

  docs/site/stage.py ROOT STAGE XML     XML is doxygen's output; private members are taken out of it
"""

import gzip
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

# The folders of include/kformer in the order of the reference, and what they are called there.
COMPONENTS = {
    "ops": "Blocks",
    "model": "Models",
    "train": "Training",
    "parallel": "Many ranks",
    "memory": "Memory",
    "core": "Core",
    "load": "Loading checkpoints",
    "io": "Files",
    "text": "Text",
    "data": "Training data",
}


def link_documents(docs, stage):
    """Links every file of docs/ into the stage, so that warnings name lines of the sources."""
    for file in docs.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            target = stage / file.relative_to(docs)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        path.unlink()
    path.write_text(text)


def stage_top_level_pages(root, stage):
    """CONTRIBUTING and CHANGELOG lie beside docs/, and link into it."""
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        write(stage / name.lower(), (root / name).read_text().replace("](docs/", "](").replace("](CHANGELOG", "](changelog"))


def stage_decks(root, stage):
    """The tables of docs/decks/ are what --describe-deck prints; on a page of the site they are one level higher."""
    for page in (root / "docs/decks").glob("*.md"):
        write(stage / "decks" / page.name, page.read_text().replace("\n### ", "\n## "))


def program_of(source):
    """The comment that an example begins with, without the licence, and the code below it, without the markers."""
    lines = [line for line in source.read_text().splitlines()[1:] if not re.fullmatch(r" *// \[\w+\]", line)]
    length = next(i for i, line in enumerate(lines) if not line.startswith("// "))
    return " ".join(line.removeprefix("// ") for line in lines[:length]), "\n".join(lines[length:])


def stage_examples(root, stage):
    """A page for each program of docs/examples; links to a program lead to its page."""
    examples = root / "docs/examples"
    index = (examples / "index.md").read_text()
    pages = []
    for source in sorted(examples.glob("*.cpp")) + [examples / "consumer/main.cpp"]:
        name = source.relative_to(examples)
        page = source.stem if name.parent == Path() else name.parent.name
        if f"]({name})" not in index:
            sys.exit(f"stage.py: docs/examples/index.md does not link {name}")
        text, code = program_of(source)
        body = f"# {page}\n\n{text}\n\n`docs/examples/{name}`\n\n```cpp\n{code}\n```\n"
        if page == "consumer":
            body += "\n`docs/examples/consumer/CMakeLists.txt`\n\n```{literalinclude} consumer/CMakeLists.txt\n:language: cmake\n```\n"
        write(stage / f"examples/{page}.md", body)
        pages.append(page)
    toctree = "\n".join(pages)
    write(stage / "examples/index.md", f"{index}\n```{{toctree}}\n:hidden:\n\n{toctree}\n```\n")
    for page in stage.rglob("*.md"):
        text = page.read_text()
        linked = re.sub(r"(\]\((?:[\w./]*/)?examples/|\]\()(?:consumer/main|(\w+))\.cpp\)",
                        lambda match: f"{match[1]}{match[2] or 'consumer'}.md)", text)
        linked = re.sub(r"\]\(((?:[\w./]*/)?(?:blocks|examples))/?\)", r"](\1/index.md)", linked)
        if linked != text:
            write(page, linked)


def stage_notebooks(root, stage):
    """A page for each notebook, with what its cells show of the stored result files."""
    pages = []
    with tempfile.TemporaryDirectory() as folder:
        samples = max((root / "analysis/tests/samples").iterdir(), key=lambda path: [int(part) for part in path.name.split(".")])
        for packed in samples.glob("*.h5.gz"):
            (Path(folder) / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
        for notebook in sorted((root / "docs/notebooks").glob("*.ipynb")):
            page = stage / f"notebooks/{notebook.stem}.md"
            subprocess.run([sys.executable, "-B", root / "docs/site/notebooks.py", notebook, page], cwd=folder, check=True,
                           env={**os.environ, "PYTHONPATH": str(root / "analysis")})
            pages.append(notebook.stem)
    index = (root / "docs/notebooks/index.md").read_text()
    if missing := [page for page in pages if f"]({page}.ipynb)" not in index]:
        sys.exit(f"stage.py: docs/notebooks/index.md does not link {missing[0]}.ipynb")
    toctree = "\n".join(pages)
    write(stage / "notebooks/index.md", re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", index)
          + f"\n```{{toctree}}\n:hidden:\n\n{toctree}\n```\n")


def brief_of(header):
    """The first sentence of the header's \\file comment, as reStructuredText."""
    found = re.search(r"^/// \\file\n((?:///.*\n)+)", header.read_text(), flags=re.M)
    text = " ".join(line.removeprefix("///").strip() for line in found.group(1).splitlines()) if found else ""
    sentence = re.split(r"(?<=[.])\s", text.split("    ")[0])[0]
    return re.sub(r"`([^`]+)`", r"``\1``", sentence)


def stage_reference(root, stage):
    """A page for each public header, by folder."""
    include = root / "include/kformer"
    folders = []
    for component, title in COMPONENTS.items():
        headers = sorted(h for h in (include / component).rglob("*.hpp")
                         if "impl" not in h.relative_to(include).parts and not h.stem.endswith("_impl"))
        if not headers:
            continue
        rows, pages = [], []
        for header in headers:
            name = header.relative_to(include)
            page = name.with_suffix("").as_posix()
            write(stage / f"api/{page}.rst",
                  f"{name}\n{'=' * len(str(name))}\n\n``#include \"kformer/{name}\"``\n\n.. doxygenfile:: kformer/{name}\n")
            rows.append(f"* - :doc:`{name} </api/{page}>`\n     - {brief_of(header)}")
            pages.append(f"/api/{page}")
        table = ".. list-table::\n   :widths: 35 65\n\n   " + "\n   ".join(rows)
        toctree = ".. toctree::\n   :hidden:\n\n   " + "\n   ".join(pages)
        write(stage / f"api/{component}.rst", f"{title}\n{'=' * len(title)}\n\nHeaders in ``kformer/{component}/``.\n\n{table}\n\n{toctree}\n")
        folders.append(component)
    unknown = {f.name for f in include.iterdir() if f.is_dir()} - set(COMPONENTS)
    if unknown:
        sys.exit(f"stage.py: COMPONENTS does not name the folders {sorted(unknown)} of include/kformer")
    toctree = "\n".join(f"   {component}" for component in folders)
    write(stage / "api/index.rst", "C++ reference\n=============\n\nEvery public name, by header. ``kformer/kformer.hpp`` "
          "includes all that needs only Kokkos.\n\n"
          f".. toctree::\n   :maxdepth: 2\n   :includehidden:\n\n{toctree}\n")


def link_blocks_to_reference(root, stage):
    """The page of a block ends with a link to its header."""
    for page in sorted((root / "docs/blocks").glob("*.md")):
        if (stage / f"api/ops/{page.stem}.rst").exists():
            write(stage / f"blocks/{page.name}",
                  f"{page.read_text().rstrip()}\n\n## Reference\n\n[kformer/ops/{page.stem}.hpp](../api/ops/{page.stem}.rst)\n")


def drop_private_members(xml):
    """Breathe shows all that a header contains; what is private is no reference."""
    for file in [*xml.glob("class*.xml"), *xml.glob("struct*.xml")]:
        tree = ElementTree.parse(file)
        for compound in tree.getroot().iter("compounddef"):
            for child in list(compound):
                if child.get("kind", "").startswith("private") or child.get("prot") == "private":
                    compound.remove(child)
        tree.write(file, encoding="utf-8", xml_declaration=True)


def main():
    root, stage, xml = (Path(argument).resolve() for argument in sys.argv[1:])
    drop_private_members(xml)
    link_documents(root / "docs", stage)
    stage_top_level_pages(root, stage)
    stage_decks(root, stage)
    stage_reference(root, stage)
    link_blocks_to_reference(root, stage)
    stage_examples(root, stage)
    stage_notebooks(root, stage)


if __name__ == "__main__":
    main()
