# SPDX-License-Identifier: MIT
"""Treemap of a profile: areas are times, regions hold their parts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib.axes
import numpy as np
import pandas as pd
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from .style import BLOCK_COLOURS, GREY, OWN_COLOUR

_OWN = "(own)"  # what a region does outside of the regions in it
_LEAST_LABEL = 0.006  # share of the area that a name needs
_LINE = 0.14  # inches that a line of a label is high
_LEAST_SHOWN = 1e-6  # share of the area below which nothing is drawn


@dataclass
class Node:
    """A region, or the kernels of one: its name, seconds, and parts whose seconds add up to no more."""

    name: str
    seconds: float
    parts: list["Node"] = field(default_factory=list)


@dataclass(frozen=True)
class Tile:
    """A part of the picture: x, y, width and height are shares of the whole."""

    path: tuple[str, ...]
    seconds: float
    x: float
    y: float
    width: float
    height: float


def tree_of(regions: pd.DataFrame, kernels: pd.DataFrame | None = None) -> Node:
    """The profile of one case: rows of /regions, and of /kernels, which divide what regions do themselves."""
    root = Node("", 0.0)
    nodes = {-1: root}
    by_path: dict[str, Node] = {}
    for number, row in regions.iterrows():
        node = Node(str(row["path"]).rsplit("/", 1)[-1], float(row["inclusive"]))
        nodes[int(row["parent"])].parts.append(node)
        nodes[int(str(number))] = by_path[str(row["path"])] = node
    if kernels is not None:
        for _, row in kernels.iterrows():
            if (region := by_path.get(str(row["region"]))) is not None:
                region.parts.append(Node(str(row["name"]), float(row["time_total"])))
    root.seconds = sum(part.seconds for part in root.parts)
    return root


def tiles_of(root: Node) -> list[Tile]:
    """The leaves of the tree as tiles that cover the unit square; what no part accounts for is a tile of its own.

    Parts whose clocks add up to more than their region are made smaller, so that they fit.
    """
    found: list[Tile] = []
    if root.seconds > 0:
        _lay_out(root, (), (0.0, 0.0, 1.0, 1.0), found)
    return found


def draw_treemap(
    axes: matplotlib.axes.Axes, root: Node, title: str, which: str = "", blocks: Sequence[str] = ()
) -> None:
    """Tiles coloured by the outermost regions but one; the largest have names and shares.

    `which` says of what case. Regions that `blocks` names have the colours of the bars of these blocks.
    """
    tiles = tiles_of(root)
    box, dpi = axes.get_window_extent(), axes.figure.dpi
    wide, high = box.width / dpi, box.height / dpi
    groups = list(dict.fromkeys([*blocks, *(_group(tile, blocks) for tile in tiles)]))
    for tile in tiles:
        group = _group(tile, blocks)
        colour = OWN_COLOUR if blocks and group == _OWN else BLOCK_COLOURS[groups.index(group) % len(BLOCK_COLOURS)]
        axes.add_patch(
            Rectangle((tile.x, tile.y), tile.width, tile.height, fc=colour, ec="white", lw=1.2, alpha=0.85)
        )
        share = tile.width * tile.height
        lines = int(tile.height * high / _LINE)
        if share < _LEAST_LABEL or lines == 0:
            continue
        text = axes.text(
            tile.x + 0.004, tile.y + tile.height - 0.01, "", va="top",
            fontsize=8, color="white" if _is_dark(colour) else "black", clip_on=True, parse_math=False,
        )  # fmt: skip
        _write(text, tile.path, (tile.width - 0.008) * wide)
        if lines > 1:
            text.set_text(f"{text.get_text()}\n{100 * share:.1f} %")
        text.set_clip_path(axes.patches[-1])
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.axis("off")
    axes.set_title(title, loc="left", parse_math=False)
    axes.set_title(which, loc="right", fontsize=9.5, fontweight="normal", color=GREY, parse_math=False)


def _group(tile: Tile, blocks: Sequence[str]) -> str:
    """The block of a tile, in any pass; without blocks its pass, too."""
    return "/".join(tile.path[1:2] if blocks else tile.path[:2])


def _write(text: Text, path: tuple[str, ...], width: float) -> None:
    """The last two names if they are no wider than so many inches, else the last, or its beginning."""
    figure: Any = text.get_figure()
    for names in (path[-2:], path[-1:]):
        text.set_text("/".join(names).replace("kformer::", ""))
        wide = text.get_window_extent().width / figure.dpi
        if wide <= width:
            return
    name = text.get_text()
    text.set_text(f"{name[: max(int(len(name) * width / wide) - 2, 1)]}…")


def _is_dark(colour: str) -> bool:
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 125


def _lay_out(node: Node, path: tuple[str, ...], box: tuple[float, float, float, float], found: list[Tile]) -> None:
    if not node.parts:
        found.append(Tile(path, node.seconds, *box))
        return
    parts = [part for part in node.parts if part.seconds > _LEAST_SHOWN * node.seconds]
    rest = node.seconds - sum(part.seconds for part in parts)
    if rest > _LEAST_SHOWN * node.seconds:
        parts.append(Node(_OWN, rest))
    parts.sort(key=lambda part: -part.seconds)
    for part, inner in zip(parts, squarified([part.seconds for part in parts], box)):
        _lay_out(part, (*path, part.name), inner, found)


def squarified(
    sizes: list[float], box: tuple[float, float, float, float]
) -> list[tuple[float, float, float, float]]:
    """Divides a box (x, y, width, height) into boxes of areas in proportion to descending sizes, none too narrow.

    M. Bruls, K. Huizing and J. J. van Wijk, "Squarified treemaps", 2000: rows grow along the shorter side as long as
    that makes their boxes squarer.
    """
    x, y, width, height = box
    left = list(np.asarray(sizes) * (width * height / sum(sizes)))
    boxes: list[tuple[float, float, float, float]] = []
    while left:
        side = min(width, height)
        count = 1
        while count < len(left) and _worst(left[: count + 1], side) <= _worst(left[:count], side):
            count += 1
        row, left = left[:count], left[count:]
        depth = sum(row) / side
        along = 0.0
        for area in row:
            length = area / depth
            boxes.append((x, y + along, depth, length) if width >= height else (x + along, y, length, depth))
            along += length
        if width >= height:
            x, width = x + depth, width - depth
        else:
            y, height = y + depth, height - depth
    return boxes


def _worst(row: list[float], side: float) -> float:
    """The largest ratio of the sides of the boxes of a row."""
    total = sum(row)
    return max(max(side**2 * area / total**2, total**2 / (side**2 * area)) for area in row)
