# SPDX-License-Identifier: MIT
"""What stands around the panels of a picture: its title, what was run, and where the numbers come from."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

from .inputs import deck_of, table_of, text_of
from .reader import Groups
from .series import run_label
from .style import GREY

_ABOVE, _BELOW = 0.85, 0.35  # inches for the title with the facts, and for the origin
_MARGIN = 0.15
_SHAPE = {
    "hidden_size": "hidden size {}", "num_hidden_layers": "{} layers", "num_attention_heads": "{} heads",
    "num_key_value_heads": "{} key/value heads",
}  # fmt: skip
# Names of files of which every model has one.
_OF_ANY_MODEL = ("config.json", "model.safetensors")


def title_of(groups: Groups, otherwise: str = "Kformer results") -> str:
    """The title of a run, or its name."""
    root = groups[""].attrs
    return str(root.get("title", "")) or str(root.get("run_name", "")) or otherwise


def model_name(groups: Groups) -> str:
    """The model that a run was given, as far as the file says: of its weights, its config.json, or the call; else empty.

    A deck whose table [model] has the shape of a published model does not say its name; that of the run may.
    """
    if "input" in groups[""].attrs:
        return name_of(str(groups[""].attrs["input"]))
    if path := table_of(deck_of(groups), "weights").get("path"):
        return name_of(str(path))
    words = text_of(groups, "command_line").split()
    if named := [after for word, after in zip(words, words[1:]) if word in ("-m", "--model")]:
        return name_of(named[0])
    if named := [word.partition("=")[2] for word in words if word.startswith("--model=")]:
        return name_of(named[0])
    deck = deck_of(groups, "deck_text")
    # kformer-memory MODEL names its run after the model, which a file of a deck cannot do with the word of the call.
    called = str(table_of(deck, "run").get("name", "")).removeprefix("memory-")
    if words[:1] and name_of(words[0]) == "kformer-memory" and called.lower() in [name_of(word).lower() for word in words[1:]]:
        return called
    return name_of(str(table_of(deck, "model").get("config", "")))


def source_facts(groups: Groups) -> list[str]:
    """The names of model, adapter, and file of tensors, as far as the file has them."""
    deck = deck_of(groups)
    named = {
        "model": model_name(groups), "adapter": name_of(str(table_of(deck, "adapter").get("path", ""))),
        "tensors": name_of(str(table_of(deck, "tensors").get("input", ""))),
    }  # fmt: skip
    return [f"{what} {name}" for what, name in named.items() if name]


def model_facts(groups: Groups) -> list[str]:
    """Names and shape of the model, as far as the file has them."""
    shape = table_of(deck_of(groups), "model")
    return source_facts(groups) + [text.format(shape[key]) for key, text in _SHAPE.items() if key in shape]


def constant_facts(frame: pd.DataFrame, texts: Mapping[str, str]) -> list[str]:
    """What all rows have in common, of the columns that `texts` names, each with a format such as "batch {}"."""
    same = [name for name in texts if name in frame and frame[name].nunique() == 1]
    return [texts[name].format(frame[name].iloc[0]) for name in same]


def add_heading(figure: Figure, groups: Groups, facts: list[str]) -> None:
    """Title and facts above what a figure of layout "constrained" has, and the origin below; makes it that much higher."""
    width, height = figure.get_size_inches()
    whole = height + _ABOVE + _BELOW
    figure.set_size_inches(width, whole)
    layout: Any = figure.get_layout_engine()
    layout.set(rect=(0, _BELOW / whole, 1, height / whole))
    left = _MARGIN / width
    title = figure.text(left, 1 - _MARGIN / whole, title_of(groups), fontsize=16, fontweight="bold", va="top", parse_math=False)
    what = figure.text(left, 1 - 0.5 / whole, ", ".join(facts), fontsize=10.5, color=GREY, va="top", parse_math=False)
    origin = figure.text(0.5, _MARGIN / whole, run_label(groups), fontsize=9.5, color=GREY, ha="center", parse_math=False)
    for text in (title, what, origin):
        shrink(text, width - 2 * _MARGIN)


def shrink(text: Text, width: float) -> None:
    """Makes a text smaller that is wider than so many inches."""
    figure: Any = text.get_figure()
    wide = text.get_window_extent().width / figure.dpi
    if wide > width:
        text.set_fontsize(float(text.get_fontsize()) * width / wide)


def name_of(path: str) -> str:
    """The part of a path that tells models apart: of "models/Llama-3.2-1B/model.safetensors" it is "Llama-3.2-1B"."""
    place = PurePosixPath(path)
    if place.name in _OF_ANY_MODEL:
        place = place.parent
    if place.parent.name == "snapshots":  # in the cache of the Hugging Face Hub, where the last part is a hash
        return place.parent.parent.name.removeprefix("models--").replace("--", "/")
    return place.name
