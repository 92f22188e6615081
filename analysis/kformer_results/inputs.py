# SPDX-License-Identifier: MIT
"""What two runs were given, and where that differs: decks, prompts, checkpoints."""

import json
import os.path
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import xarray as xr

# Of the deck: where results go, what the run is called, and for how long it may run.
_NOT_COMPARED = ("output.", "run.name", "run.title", "run.walltime_s")
# What was run at all, before the settings.
_FIRST = ("model.", "weights.", "adapter.", "prompt.", "input ")
_MOST_LETTERS = 60


def input_differences(a: Mapping[str, xr.Dataset], b: Mapping[str, xr.Dataset]) -> list[str]:
    """Each key of the resolved decks that differs, such as "model.hidden_size 2048 against 8192", the value of A first;
    of long values the part around the first letter that differs.

    Without `[output]` and the name and time limit of `[run]`. Of generations also prompts of one name whose texts differ
    although the decks do not say so, because they are in files; of quantised checkpoints their sources. Models, weights
    and prompts come first.
    """
    decks = [dict(_flat(deck_of(groups))) for groups in (a, b)]
    if bool(decks[0]) != bool(decks[1]):
        return [f"the deck is stored in {'A' if decks[0] else 'B'} alone"]
    found = [
        _difference(key, *decks)
        for key in dict.fromkeys((*decks[0], *decks[1]))
        if not key.startswith(_NOT_COMPARED) and decks[0].get(key) != decks[1].get(key)
    ]
    found += _prompts(a, b, found) + _sources(a, b)
    return sorted(found, key=lambda one: not one.startswith(_FIRST))


def text_of(groups: Mapping[str, xr.Dataset], name: str) -> str:
    """A text of /provenance; empty if there is none."""
    provenance = groups.get("provenance", xr.Dataset())
    return str(provenance[name].values) if name in provenance else ""


def deck_of(groups: Mapping[str, xr.Dataset], name: str = "deck_resolved") -> dict[str, Any]:
    """The deck with every key, or "deck_text", as it was read; empty if the file has none that can be read."""
    try:
        return tomllib.loads(text_of(groups, name))
    except (RecursionError, ValueError):
        return {}


def table_of(deck: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A table of a deck; empty if it has none."""
    found = deck.get(name, {})
    return found if isinstance(found, dict) else {}


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Keys with those of the tables around them; tables of an array go by their names, as prompts have them."""
    for key, value in table.items():
        path = f"{above}{key}"
        named = isinstance(value, list) and all(isinstance(one, dict) and "name" in one for one in value)
        if isinstance(value, dict):
            yield from _flat(value, f"{path}.")
        elif value and named:
            for one in value:
                yield from _flat({name: entry for name, entry in one.items() if name != "name"}, f"{path}.{one['name']}.")
        else:
            yield path, value


def _difference(key: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """The key with both values; of long ones the part around the first letter that differs."""
    texts = [json.dumps(found[key], ensure_ascii=False, default=str) if key in found else "nothing" for found in (a, b)]
    begin = 0
    if max(map(len, texts)) > _MOST_LETTERS:
        begin = max(0, len(os.path.commonprefix(texts)) - _MOST_LETTERS // 3)
    return f"{key} " + " against ".join(_part(text, begin) for text in texts)


def _part(text: str, begin: int) -> str:
    end = begin + _MOST_LETTERS
    return f"{'...' if begin else ''}{text[begin:end]}{'...' if end < len(text) else ''}"


def _prompts(a: Mapping[str, xr.Dataset], b: Mapping[str, xr.Dataset], said: list[str]) -> list[str]:
    texts = [_texts(groups) for groups in (a, b)]
    return [
        f"prompt.{name}: another text"
        for name in texts[0]
        if name in texts[1] and texts[0][name] != texts[1][name] and not any(one.startswith(f"prompt.{name}.text ") for one in said)
    ]


def _texts(groups: Mapping[str, xr.Dataset]) -> dict[str, str]:
    generations = groups.get("generations", xr.Dataset())
    if not {"prompt", "prompt_text"} <= set(generations):
        return {}
    return dict(zip(map(str, generations["prompt"].values), map(str, generations["prompt_text"].values)))


def _sources(a: Mapping[str, xr.Dataset], b: Mapping[str, xr.Dataset]) -> list[str]:
    paths = [{"input": groups[""].attrs["input"]} if "input" in groups[""].attrs else {} for groups in (a, b)]
    return [_difference("input", *paths)] if paths[0] != paths[1] else []
