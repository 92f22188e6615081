# SPDX-License-Identifier: MIT
"""Treemaps of profiles."""

import unittest

import pandas as pd
from matplotlib.colors import to_hex, to_rgb

from kformer_results import open_results, plots, series, train_plots
from kformer_results.style import BLOCK_COLOURS, OWN_COLOUR
from kformer_results.treemap import Node, draw_treemap, squarified, tiles_of, tree_of
from tests import stored, synthetic
from tests.test_results import WithFile, WithPlots


def _contrast(one, other):
    """Of two colours, from 1 to 21: WCAG 2.1, "contrast ratio"."""
    luminances = []
    for colour in (one, other):
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        luminances.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(luminances) + 0.05) / (min(luminances) + 0.05)


class Treemap(WithFile, WithPlots):
    def tree(self, case=1, **options):
        regions = open_results(self.written(**options))["regions"].to_dataframe()
        return tree_of(regions[regions["case"] == case])

    def test_areas_are_shares_of_the_time(self):
        tiles = {"/".join(tile.path): tile.width * tile.height for tile in tiles_of(self.tree())}
        self.assertAlmostEqual(sum(tiles.values()), 1)
        self.assertAlmostEqual(tiles["forward/mlp"], synthetic.BLOCKS["mlp"])
        self.assertAlmostEqual(tiles["forward/attention/scores"], 0.1)
        self.assertAlmostEqual(tiles["forward/attention/(own)"], synthetic.BLOCKS["attention"] - 0.1)
        self.assertAlmostEqual(tiles["forward/(own)"], 1 - synthetic.ATTRIBUTED)

    def test_the_longest_part_is_in_the_corner(self):
        parts = [Node(name, seconds) for name, seconds in (("a", 1.0), ("b", 3.0), ("c", 2.0))]
        corner = min(tiles_of(Node("", 6.0, parts)), key=lambda tile: (tile.x, tile.y))
        self.assertEqual(corner.path, ("b",))

    def test_tiles_do_not_overlap(self):
        tiles = tiles_of(self.tree())
        for k, a in enumerate(tiles):
            self.assertTrue(-1e-9 <= a.x and a.x + a.width <= 1 + 1e-9 and -1e-9 <= a.y and a.y + a.height <= 1 + 1e-9)
            for b in tiles[:k]:
                wide = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
                high = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
                self.assertTrue(wide < 1e-9 or high < 1e-9, (a, b))

    def test_the_example_of_the_paper(self):
        boxes = squarified([6, 6, 4, 3, 2, 2, 1], (0, 0, 6, 4))
        self.assertEqual([round(w * h, 9) for _, _, w, h in boxes], [6, 6, 4, 3, 2, 2, 1])
        self.assertEqual(boxes[0], (0, 0, 3, 2))
        self.assertEqual(boxes[1], (0, 2, 3, 2))
        self.assertLess(max(max(w / h, h / w) for _, _, w, h in boxes), 3)

    def test_kernels_divide_their_region(self):
        regions = pd.DataFrame({"path": ["step", "step/a"], "parent": [-1, 0], "inclusive": [4.0, 3.0]})
        kernels = pd.DataFrame({"name": ["k", "lost"], "region": ["step/a", "elsewhere"], "time_total": [2.0, 9.0]})
        tiles = {tile.path: tile.width * tile.height for tile in tiles_of(tree_of(regions, kernels))}
        self.assertEqual({path: round(area, 9) for path, area in tiles.items()},
                         {("step", "(own)"): 0.25, ("step", "a", "k"): 0.5, ("step", "a", "(own)"): 0.25})  # fmt: skip

    def test_clocks_that_disagree_still_fit(self):
        tiles = tiles_of(Node("", 1.0, [Node("a", 0.8), Node("b", 0.4)]))
        self.assertAlmostEqual(sum(tile.width * tile.height for tile in tiles), 1)
        self.assertEqual(tiles_of(Node("", 0.0)), [])

    def test_large_tiles_have_names_and_shares(self):
        axes = self.axes()
        root = Node("", 1.0, [Node("large", 0.995), Node("small", 0.005)])
        draw_treemap(axes, root, "title")
        self.assertEqual([text.get_text() for text in axes.texts], ["large\n99.5 %"])
        self.assertEqual((axes.get_title("left"), axes.get_title("center")), ("title", ""))  # room for which case it is
        self.assertEqual(len(axes.patches), 2)

    def test_names_are_as_light_as_their_tile_is_dark(self):
        axes = self.axes()
        names = [f"part {k:02}" for k in range(13)]
        draw_treemap(axes, Node("", 13.0, [Node(name, 1.0) for name in names]), "title")
        fills = {text.get_text().split("\n")[0]: to_hex(patch.get_facecolor()) for text, patch in zip(axes.texts, axes.patches)}
        # More parts than colours begin anew.
        self.assertEqual([fills[name] for name in names], [colour.lower() for colour in [*BLOCK_COLOURS, BLOCK_COLOURS[0]]])
        for text, patch in zip(axes.texts, axes.patches):
            contrast = {letters: _contrast(letters, patch.get_facecolor()) for letters in ("white", "black")}
            self.assertEqual(text.get_color(), max(contrast, key=contrast.get), to_hex(patch.get_facecolor()))

    def test_what_a_region_does_itself_is_grey_only_beside_blocks(self):
        root = Node("", 4.0, [Node("forward", 4.0, [Node("a", 3.0)])])
        for blocks, colours in (((), BLOCK_COLOURS[:2]), (("a",), [BLOCK_COLOURS[0], OWN_COLOUR])):
            axes = self.axes()
            draw_treemap(axes, root, "title", blocks=blocks)
            self.assertEqual([to_hex(patch.get_facecolor()) for patch in axes.patches], [colour.lower() for colour in colours])

    def test_parts_that_nobody_could_see_are_left_out(self):
        for share, count in ((2e-6, 2), (5e-7, 1)):
            tiles = tiles_of(Node("", 1.0, [Node("all", 1 - share), Node("speck", share)]))
            self.assertEqual(len(tiles), count)
            tiles = tiles_of(Node("", 1.0, [Node("all", 1 - share)]))
            self.assertEqual([tile.path for tile in tiles], [("all",), ("(own)",)][:count])

    def test_names_fit_their_tiles(self):
        region, kernel = "standard_attention_backward", "standard_attention_backward_scores[simd_avx512]"
        parts = [Node(region, 1.0, [Node(kernel, 1.0)]) for _ in range(4)]
        wide = {1.0: f"{region}/{kernel}", 0.6: kernel, 0.4: None}
        for share, whole in wide.items():
            axes = self.axes()
            axes.figure.set_size_inches(6, 4)
            axes.set_position((0, 0, share, 1))
            draw_treemap(axes, Node("", 1.0, parts[:1]), "title")
            name = axes.texts[0].get_text().split("\n")[0]
            if whole:
                self.assertEqual(name, whole)
            else:
                self.assertRegex(name, r"^standard_attention_backward_.*…$")
            self.assertLess(axes.texts[0].get_window_extent().x1, axes.get_window_extent().x1)

    def test_tiles_without_the_height_for_it_have_no_share(self):
        axes = self.axes()
        axes.set_position((0.1, 0.1, 0.8, 0.1))
        draw_treemap(axes, Node("", 1.0, [Node(f"part {k}", 0.05) for k in range(20)]), "title")
        self.assertTrue(all("%" not in text.get_text() for text in axes.texts))

    def test_blocks_have_the_colours_of_their_bars(self):
        groups = open_results(self.written())
        frame = series.case_frame(groups)
        bars, areas = self.axes(), self.axes()
        areas.figure.set_size_inches(12, 8)  # names are whole
        plots.draw_breakdown(bars, series.breakdown(groups, frame))
        plots._treemap_rows(groups, frame)[0]["panels"][0](areas)
        colours = {container.get_label(): container.patches[0].get_facecolor()[:3] for container in bars.containers}
        colours["(own)"] = colours.pop(series.UNATTRIBUTED)
        for text, patch in zip(areas.texts, areas.patches):
            path = text.get_text().split("\n")[0].split("/")
            self.assertEqual(patch.get_facecolor()[:3], colours["attention" if path[0] == "attention" else path[1]], path)

    def test_the_longest_profiled_case_is_drawn(self):
        groups = open_results(self.written())
        frame = series.case_frame(groups)
        for noise, said in (("no", ""), ("yes", "; noise decides its time")):
            axes = self.axes()
            plots._treemap_rows(groups, frame.assign(noisy=noise))[0]["panels"][0](axes)
            self.assertEqual(axes.get_title("right"), f"backward bf16 standard OpenMP, sequence length 4096{said}")

    def test_the_memory_of_a_training_is_drawn_over_time(self):
        groups = open_results(stored.unpack(self.folder, "train"))
        axes = self.axes()
        train_plots.draw_bookings(axes, groups)
        bookings = groups["memory/bookings"]
        used = [str(name) for name in bookings["memory_class"].values if bookings["bytes"].sel(memory_class=name).any()]
        self.assertEqual([text.get_text() for text in axes.get_legend().get_texts()], used)
        highest = max(area.get_datalim(axes.transData).ymax for area in axes.collections)
        self.assertAlmostEqual(highest, float(bookings["total_bytes"].max()) / 2**20)


if __name__ == "__main__":
    unittest.main()
