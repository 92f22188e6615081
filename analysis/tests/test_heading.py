# SPDX-License-Identifier: MIT
"""What stands around the panels of pictures: title, model, origin."""

import unittest
from unittest import mock

import matplotlib.pyplot as plt
import xarray as xr

from kformer_results import heading, open_results, schema
from kformer_results.pictures import save_pictures
from tests import stored
from tests.test_results import WithFile


def groups_of(attributes=None, **texts):
    return {"": xr.Dataset(attrs=attributes or {}), "provenance": xr.Dataset({name: ((), text) for name, text in texts.items()})}


class Models(unittest.TestCase):
    def test_where_their_names_are(self):
        weights = '[weights]\npath = "/models/Llama-3.2-1B"'
        config = '[model]\nconfig = "../Qwen2.5-0.5B/config.json"'
        called = '[run]\nname = "memory-llama-3.1-8b"'
        for name, groups in (
            ("Llama-3.2-1B", groups_of(deck_resolved=weights, deck_text=config)),
            ("Qwen2.5-0.5B", groups_of(deck_resolved="[model]\nhidden_size = 896", deck_text=config)),
            ("llama-3.2-1b", groups_of(command_line="kformer-layer --model llama-3.2-1b --dry-run")),
            ("llama-3.2-1b", groups_of(command_line="kformer-layer deck.toml -m llama-3.2-1b", deck_text=config)),
            ("Llama-3.2-1B", groups_of(command_line="kformer-layer --model=meta-llama/Llama-3.2-1B")),
            ("llama-3.1-8b", groups_of(command_line="bin/kformer-memory meta-llama/Llama-3.1-8B -f csv", deck_text=called)),
            ("", groups_of(command_line="kformer-memory memory-llama-3.1-8b.toml", deck_text=called)),
            ("", groups_of(command_line="kformer-layer llama-3.1-8b", deck_text=called)),
            ("tiny-llama", groups_of({"input": "/models/tiny-llama/"})),
            ("", groups_of(deck_resolved="[model]\nhidden_size = 896", command_line="kformer-layer deck.toml -m")),
            ("", groups_of(deck_resolved="weights = 1", deck_text="no deck")),
            ("", {"": xr.Dataset()}),
        ):
            self.assertEqual(heading.model_name(groups), name)

    def test_the_part_of_a_path_that_tells_them_apart(self):
        for path, name in {
            "models/a.Q4_1.gguf": "a.Q4_1.gguf",
            "models/a/model.safetensors": "a",
            "models/a/config.json": "a",
            "config.json": "",
            "/hub/models--meta-llama--Llama-3.2-1B/snapshots/0a1b2c": "meta-llama/Llama-3.2-1B",
            "/hub/models--meta-llama--Llama-3.2-1B/snapshots/0a1b2c/model.safetensors": "meta-llama/Llama-3.2-1B",
        }.items():
            self.assertEqual(heading.name_of(path), name)


class Headings(WithFile):
    def figure(self, groups):
        with mock.patch.object(plt, "close"), mock.patch.object(plt.Figure, "savefig"):
            save_pictures(groups, self.folder / "a.png")
        figure = plt.gcf()
        self.addCleanup(plt.close, figure)
        return figure

    def texts(self, figure):
        return [text for part in (figure, *figure.subfigs) for text in part.texts]

    def test_every_picture_has_a_title_the_model_and_the_origin(self):
        expected = {"generate": "model tiny-llama, f32, openmp, batch 2", "quantize": "model tiny-llama, 11.72 bits per weight",
                    "memory_plan": "hidden size 576, 30 layers", "train": "2 layers", "scaling": "2 layers",
                    "layer_sweep": "model llama-3.2-1b, batch 1", "attention_compare": "tensors qkv.safetensors, batch 1"}  # fmt: skip
        self.assertEqual(set(expected), set(schema.kinds(stored.NEWEST)))
        for kind, words in expected.items():
            with self.subTest(kind=kind):
                groups = open_results(stored.unpack(self.folder, kind))
                if kind == "layer_sweep":
                    groups["provenance"]["command_line"] = ((), "kformer-layer deck.toml --model llama-3.2-1b")
                if kind == "attention_compare":
                    groups["provenance"]["deck_resolved"] = ((), '[tensors]\ninput = "/data/qkv.safetensors"')
                found = [text.get_text() for text in self.texts(self.figure(groups))]
                self.assertEqual(found[0], groups[""].attrs["title"])
                self.assertIn(words, found[1])
                self.assertIn(f"{groups['provenance'].attrs['cpu_model']}, 2 threads", found[-1])

    def test_long_texts_fit(self):
        for kind in ("generate", "layer_sweep"):
            groups = open_results(stored.unpack(self.folder, kind))
            groups[""].attrs.update(title="a run with a long name " * 8, softwareVersion="1" * 150)
            groups["provenance"]["deck_resolved"] = ((), f'[weights]\npath = "{"model" * 50}"')
            figure = self.figure(groups)
            figure.draw_without_rendering()  # with its own dots per inch, not those of the file
            for text in self.texts(figure):
                box = text.get_window_extent()
                self.assertGreaterEqual(box.x0, 0, text.get_text())
                self.assertLessEqual(box.x1, figure.bbox.x1, text.get_text())


if __name__ == "__main__":
    unittest.main()
