# SPDX-License-Identifier: MIT
"""Plot of a memory plan."""

import unittest

import numpy as np

from kformer_results import ResultFileError, memory_plots, open_results
from tests.test_results import WithFile, WithMain, WithPlots
from tests.test_tables import write

GIB = 2.0**30
POLICIES = ["none", "layer", "nested"]
CASES = len(POLICIES)


def plan(**changes):
    columns = {
        "op": ["train"] * CASES, "execution_space": ["openmp"] * CASES, "dtype": ["f32"] * CASES,
        "weights": ["same"] * CASES, "kv_cache": ["contiguous"] * CASES, "recompute": POLICIES,
        "prefill_chunk": [0] * CASES, "batch": [4] * CASES, "context": [1024] * CASES,
        "weights_bytes": [GIB] * CASES, "activations_bytes": [8 * GIB, 2 * GIB, GIB],
        "workspace_bytes": [0.0] * CASES, "predicted_bytes": [9 * GIB, 2.5 * GIB, 2 * GIB],
        "available_bytes": [4 * GIB] * CASES, "status": ["skipped_memory", "ok", "ok"],
    }  # fmt: skip
    return {"cases": ("case", {**columns, **changes})}


class Memory(WithFile, WithPlots, WithMain):
    def frame(self, groups):
        write(self.folder / "plan.h5", "memory_plan", groups)
        return open_results(self.folder / "plan.h5")["cases"].to_dataframe()

    def draw(self, **changes):
        axes = self.axes()
        memory_plots.draw_plan(axes, self.frame(plan(**changes)))
        return axes

    def test_classes_are_stacked_and_the_total_is_a_mark(self):
        axes = self.draw()
        bars = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
        self.assertEqual(bars, [(0, 1)] * 3 + [(1, 8), (1, 2), (1, 1)])
        names = [text.get_text() for text in axes.get_legend().get_texts()]
        self.assertEqual(set(names), {"weights", "activations", "all together", "available"})
        self.assertEqual(self.lines(axes)["all together"][:, 0].tolist(), [9, 2.5, 2])
        self.assertEqual(self.lines(axes)["available"][:, 0].tolist(), [4, 4, 4])

    def test_what_lies_in_device_memory_has_a_mark_where_there_is_more(self):
        axes = self.draw(execution_space=["cuda"] * CASES, space_bytes=[9 * GIB, 2 * GIB, 2 * GIB])
        self.assertEqual(self.lines(axes)["in device memory"].tolist(), [[2, 1]])
        self.assertNotIn("in device memory", self.lines(self.draw(execution_space=["cuda"] * CASES)))

    def test_cases_say_why_they_would_not_run(self):
        notes = [text.get_text().strip() for text in self.draw(status=["skipped_memory", "unsupported", "ok"]).texts]
        self.assertEqual(notes, ["does not fit", "unsupported", ""])

    def test_memory_that_nobody_reported_has_no_mark(self):
        axes = self.draw(available_bytes=[np.nan] * CASES)
        self.assertNotIn("available", self.lines(axes))

    def test_memory_of_which_there_is_far_more_lies_outside(self):
        for available, right in ((18, 18), (19, 1.25 * 9 * 1.12)):
            axes = self.draw(available_bytes=[available * GIB] * CASES, predicted_bytes=[8 * GIB] * CASES)
            self.assertGreaterEqual(axes.get_xlim()[1], right)
            self.assertLess(axes.get_xlim()[1], right + 4)
            (self.folder / "plan.h5").unlink()

    def test_labels_are_what_differs(self):
        self.assertEqual(memory_plots.labels(self.frame(plan())), POLICIES)
        (self.folder / "plan.h5").unlink()
        frame = self.frame(plan(op=["train", "generate", "train"], batch=[1, 2, 2]))
        self.assertEqual(
            memory_plots.labels(frame),
            ["train, batch 1, none", "generate, batch 2, contiguous", "train, batch 2, nested"],
        )

    def test_labels_have_nothing_that_goes_without_saying(self):
        frame = self.frame(plan(op=["generate", "generate", "train"], weights=["same", "q8_0", "same"], prefill_chunk=[512, 512, 0]))
        self.assertEqual(
            memory_plots.labels(frame), ["generate, chunk 512, contiguous", "generate, weights q8_0, chunk 512, contiguous", "train, nested"]
        )

    def test_the_command_line_draws(self):
        self.frame(plan())
        code, out, _ = self.run_main("plot", self.folder / "plan.h5")
        self.assertEqual((code, out.strip()), (0, str(self.folder / "plan.png")))
        self.assertTrue((self.folder / "plan.png").read_bytes().startswith(b"\x89PNG"))

    def test_a_plan_without_cases_is_refused(self):
        with self.assertRaisesRegex(ResultFileError, "no cases"):
            memory_plots.save_memory_plot({}, self.folder / "out.png")


if __name__ == "__main__":
    unittest.main()
