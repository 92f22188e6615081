# SPDX-License-Identifier: MIT
"""Two runs compared case by case."""

import contextlib
import io
import itertools
import unittest
import unittest.mock

import h5py
import numpy as np
import xarray as xr

from kformer_results import CompareError, compare, open_results
from kformer_results.__main__ import main
from kformer_results.compare import _compared
from kformer_results.inputs import input_differences
from kformer_results.ranks import _rank, ratio_interval
from tests import stored, synthetic_attention
from tests.synthetic import flags
from tests.test_memory import plan
from tests.test_results import WithFile, WithMain
from tests.test_tables import GENERATED, QUANTIZED, write
from tests.test_train import TRAINED


class Ranks(unittest.TestCase):
    def test_the_rank_is_that_of_all_orders(self):
        for n, m in ((2, 2), (4, 4), (5, 3), (6, 7)):
            statistics = []
            for places in itertools.combinations(range(n + m), n):
                statistics.append(sum(place - k for k, place in enumerate(places)))
            statistics = np.array(statistics)
            for tail in (0.025, 0.2):
                expected = max(c for c in range(n * m + 1) if np.mean(statistics < c) <= tail)
                self.assertEqual(_rank(n, m, tail), expected, (n, m, tail))

    def test_a_tail_that_is_reached_exactly_counts(self):
        # One sample against three has four orders, each with a probability of exactly 1/4.
        self.assertEqual([_rank(1, 3, tail) for tail in (0.2499, 0.25, 0.4999, 0.5)], [0, 1, 1, 2])
        self.assertEqual(ratio_interval(np.array([1.0]), np.array([2.0, 3.0, 5.0]), 0.5), (2.0, 5.0))

    def test_the_approximation_continues_the_exact_ranks(self):
        self.assertEqual(_rank(50, 50, 0.025), 966)
        self.assertLess(abs(_rank(50, 51, 0.025) - 988), 5)
        self.assertEqual(_rank(51, 51, 0.025), 1007)  # 1300.5 - 1.95996 sqrt(2601 * 103 / 12) = 1007.6
        for n, m in ((51, 51), (40, 80)):
            approximate = _rank(n, m, 0.025)
            with unittest.mock.patch("kformer_results.ranks._MOST_EXACT", n * m):
                self.assertLessEqual(abs(approximate - _rank(n, m, 0.025)), 1)

    def test_three_samples_say_nothing(self):
        self.assertEqual(ratio_interval(np.ones(3), np.full(3, 9.0), 0.95), (0.0, np.inf))
        self.assertEqual(ratio_interval(np.ones(4), np.full(4, 9.0), 0.95)[0], 9.0)
        self.assertEqual(ratio_interval(np.ones(0), np.ones(4), 0.95), (0.0, np.inf))

    def test_the_interval_covers_as_often_as_it_says(self):
        generator = np.random.default_rng(20260101)
        for n, m in ((7, 7), (12, 20)):
            covered = 0
            for _ in range(2000):
                a, b = np.exp(generator.standard_normal(n)), 1.3 * np.exp(generator.standard_normal(m))
                low, high = ratio_interval(a, b, 0.95)
                covered += low <= 1.3 <= high
            self.assertGreater(covered, 1880)
            self.assertLess(covered, 1960)

    def test_many_samples_are_thinned(self):
        low, high = ratio_interval(np.linspace(1, 2, 50000), np.linspace(2, 4, 50000), 0.95)
        self.assertLess(low, 2)
        self.assertGreater(high, 2)
        self.assertLess(high / low, 1.1)
        # From one end to the other, in whatever order they were taken.
        low, high = ratio_interval(np.linspace(1, 2, 50000), np.linspace(4, 2, 50000), 0.95)
        self.assertTrue(low < 2 < high)

    def test_an_interval_that_begins_at_1_decides_nothing(self):
        a, b = np.ones(7), np.array([1.0, 1, 1, 2, 2, 2, 2])
        self.assertEqual(_compared(a, b, exact=False), (1, 2, 2, 1, 2, "undecided"))
        self.assertEqual(_compared(b, a, exact=False), (2, 1, 0.5, 0.5, 1, "undecided"))


class Compare(WithFile, WithMain):
    def pair(self, change=None, **options):
        """A run, and the same after a change."""
        first, second = self.written("a.h5"), self.written("b.h5", **options)
        if change:
            with h5py.File(second, "a") as file:
                change(file)
        return first, second

    def slower(self, factor, case=5):
        def change(file):
            file["cases/time"][case] = file["cases/time"][case] * factor

        return self.pair(change)

    def compared(self, paths, **options):
        return compare(*map(open_results, paths), **options)

    def test_a_run_is_undecided_against_itself(self):
        found = self.compared(self.pair())
        self.assertEqual(len(found.table), 32)
        self.assertEqual(set(found.table["verdict"]), {"undecided"})
        np.testing.assert_array_equal(found.table["ratio"], 1)
        self.assertTrue((found.table["low"] < 1).all() and (found.table["high"] > 1).all())
        self.assertEqual(found.notes, [])

    def test_what_a_run_says_of_its_noise_is_repeated(self):
        def disturb(file):
            noisy = file["cases"].create_dataset("noisy", data=np.arange(32) % 4 == 0, dtype="i1")
            noisy.attrs["flag_values"] = np.array([0, 1], dtype="i1")
            noisy.attrs["flag_meanings"] = "no yes"
            noisy.dims[0].attach_scale(file["cases/case"])

        paths = self.pair(disturb)
        self.assertEqual(set(self.compared(paths).table["noisy"].iloc[::4]), {"B"})
        self.assertIn("Noise decides the times of 8 of 32 cases of B: repeat the run on an idle machine.", self.compared(paths).notes)

    def test_noisy_cases_decide_nothing_unless_that_is_asked_for(self):
        def disturb(file):
            file["cases/time"][5] = file["cases/time"][5] * 2
            flags(file["cases"], "noisy", np.arange(32) == 5, ("no", "yes"))

        paths = self.pair(disturb)
        found = self.compared(paths)
        self.assertEqual((len(found.beyond(1.05)), len(found.beyond(1.05, strict=True))), (0, 1))
        code, out, _ = self.run_main("compare", *paths)
        self.assertEqual(code, 0)
        self.assertIn("1 noisy case is beyond 1.05 and left out: --strict counts it.", out)
        self.assertRegex(out, r"more +B\n")
        self.assertEqual(self.run_main("compare", *paths, "--strict")[0], 1)

    def test_what_differs_between_the_decks_is_said(self):
        deck = """[run]
name = "{0}"
title = "{0}"
walltime_s = {1}
[model]
hidden_size = {1}
[output]
file = "{2}"
[[prompt]]
name = "p"
text = "{3}"
"""
        paths = self.pair()
        for path, values in zip(paths, (("a", 2048, "a.h5", "Once"), ("b", 8192, "b.h5", "Twice"))):
            with h5py.File(path, "a") as file:
                file["provenance"]["deck_resolved"] = deck.format(*values)
        wanted = ["model.hidden_size 2048 against 8192", 'prompt.p.text "Once" against "Twice"']
        self.assertEqual(self.compared(paths).inputs, wanted)
        self.assertEqual(self.compared((paths[0], paths[0])).inputs, [])
        out = self.run_main("compare", *paths)[1]
        self.assertLess(out.index("Different decks, A against B:\n  model.hidden_size 2048"), out.index("32 cases"))
        with h5py.File(paths[1], "a") as file:
            del file["provenance/deck_resolved"]
        self.assertEqual(self.compared(paths).inputs, ["the deck is stored in A alone"])

    def test_of_long_values_the_part_that_differs_is_shown(self):
        texts = [50 * "long " + word + 50 * " text" for word in ("one", "two")]
        decks = [{"": xr.Dataset(), "provenance": xr.Dataset({"deck_resolved": f'[a]\nb = "{text}"\n'})} for text in texts]
        found, = input_differences(*decks)
        self.assertRegex(found, r"^a\.b \.\.\..{0,20}long one text.*\.\.\. against \.\.\..{0,20}long two text.*\.\.\.$")
        decks[1]["provenance"] = xr.Dataset({"deck_resolved": '[a]\nb = "short"\n'})
        found, = input_differences(*decks)
        self.assertEqual(found, f'a.b "{texts[0][:59]}... against "short"')
        decks[1]["provenance"] = xr.Dataset({"deck_resolved": f'[a]\nb = "{"x" * 58}"\n'})
        found, = input_differences(*decks)
        self.assertEqual(found, f'a.b "{texts[0][:59]}... against "{"x" * 58}"')

    def test_a_dozen_differences_are_shown(self):
        paths = self.pair()
        for keys, more in ((12, False), (13, True)):
            for path, value in zip(paths, (1, 2)):
                with h5py.File(path, "a") as file:
                    file["provenance"].pop("deck_resolved", None)
                    file["provenance"]["deck_resolved"] = "[a]\n" + "".join(f"k{k} = {value}\n" for k in range(keys))
            out = self.run_main("compare", *paths)[1]
            self.assertEqual((out.count(" 1 against 2"), "  and 1 more\n" in out, " more\n\n" in out), (12, more, more))

    def test_prompts_stand_in_the_order_of_the_file(self):
        names = [f"prompt{number}" for number in range(20)]
        runs = [{"": xr.Dataset(), "generations": xr.Dataset({"prompt": ("generation", names),
                                                              "prompt_text": ("generation", [f"{name} {run}" for name in names])})}
                for run in "ab"]  # fmt: skip
        self.assertEqual(input_differences(*runs), [f"prompt.{name}: another text" for name in names])

    def test_a_prompt_of_another_text_is_said(self):
        paths = [stored.unpack(self.folder, "generate").rename(self.folder / "a.h5"), stored.unpack(self.folder, "generate")]
        self.assertEqual(self.compared(paths).inputs, [])
        with h5py.File(paths[1], "r+") as file:
            name = file["generations/prompt"].asstr()[0]
            file["generations/prompt_text"][...] = np.array(["Twice"] * len(file["generations/prompt_text"]), object)
        self.assertIn(f"prompt.{name}: another text", self.compared(paths).inputs)

    def test_a_prompt_is_noisy_if_one_of_its_repeats_is(self):
        def case(run, noisy):
            columns = {"prompt": ["p", "p", "q"], "repeat": [0, 1, 0], "noisy": noisy}
            columns = {name: ("case", values) for name, values in columns.items()}
            rates = ("case", [10.0, 20.0, 30.0 / run])
            return {"": xr.Dataset(attrs={"kind": "generate"}),
                    "cases": xr.Dataset({**columns, "decode_rate": rates, "peak_bytes": rates}, {"case": [0, 1, 2]})}

        runs = case(1, ["no", "no", "no"]), case(2, ["no", "yes", "no"])
        found = compare(*runs)
        self.assertEqual(found.table["prompt"].tolist(), ["p", "q"])
        self.assertEqual(found.table["noisy"].tolist(), ["B", ""])
        self.assertEqual(found.table["ratio"].tolist(), [1, 2])
        self.assertEqual(set(compare(*runs, metric="memory").table["noisy"]), {""})

    def test_a_training_may_be_noisy(self):
        runs = [{"": xr.Dataset(attrs={"kind": "train"}),
                 "cases": xr.Dataset({"op": ("case", ["train"]), "noisy": ("case", [noisy])}, {"case": [0]}),
                 "steps": xr.Dataset({"time": ("step", [1.0, 2.0]), "tokens": ("step", [8, 8])})} for noisy in ("yes", "no")]  # fmt: skip
        self.assertEqual(compare(*runs).table["noisy"].tolist(), ["A"])

    def test_grids_of_ranks_are_told_apart(self):
        path = stored.unpack(self.folder, "scaling")
        found = self.compared((path, path))
        self.assertEqual(len(found.table), open_results(path)["cases"].sizes["case"])
        self.assertIn("data", found.table)

    def test_quantised_checkpoints_are_compared_by_tensor(self):
        paths = [stored.unpack(self.folder, "quantize").rename(self.folder / "a.h5"), stored.unpack(self.folder, "quantize")]
        with h5py.File(paths[1], "r+") as file:
            row = int(np.flatnonzero(file["tensors/quantized"][()])[0])
            file["tensors/rel_rms_err"][row] *= 2
            file["tensors/format_after"][row] = "Q4_0"
            file["tensors/bytes_after"][row] *= 3
        found = self.compared(paths)
        self.assertEqual((found.metric, found.unit), ("error", "1"))
        self.assertEqual(found.table["ratio"].max(), 2)
        self.assertEqual(found.notes, ["1 tensor is Q8_0 in A and Q4_0 in B."])
        self.assertEqual(self.compared(paths, metric="memory").table["ratio"].max(), 3)

    def test_one_case_that_takes_twice_as_long(self):
        found = self.compared(self.slower(2))
        decided = found.table[found.table["verdict"] != "undecided"]
        self.assertEqual(decided["verdict"].tolist(), ["more"])
        self.assertAlmostEqual(decided["ratio"].item(), 2)
        self.assertTrue(1.5 < decided["low"].item() < 2 < decided["high"].item() < 2.5)
        self.assertEqual((decided["impl"].item(), decided["seq_len"].item()), ("flash", 1024))
        self.assertEqual(len(found.beyond(1.9)), 1)
        self.assertEqual(len(found.beyond(2.1)), 0)

    def test_cases_match_by_what_they_ran_and_not_by_number(self):
        def reverse(file):
            for name, column in file["cases"].items():
                if name not in ("case", "repeat"):
                    column[()] = column[()][::-1]

        found = self.compared(self.pair(reverse))
        np.testing.assert_array_equal(found.table["ratio"], 1)

    def test_a_case_that_no_longer_runs_is_lost(self):
        def fail(file):
            file["cases/time"][3] = np.nan

        paths = self.pair(fail)
        found = self.compared(paths)
        self.assertEqual(found.beyond(100)["verdict"].tolist(), ["lost"])
        self.assertIn("gained", set(self.compared(paths[::-1]).table["verdict"]))

    def test_what_could_not_be_matched_is_said(self):
        found = self.compared(self.pair(cases=31))
        self.assertEqual(found.notes, ["1 case of A is not in B: " + found.notes[0].split(": ", 1)[1]])
        self.assertIn("dtype bf16", found.notes[0])
        self.assertIn("seq_len 4096", found.notes[0])
        for cases, more in ((29, False), (28, True)):
            note, = self.compared(self.pair(cases=cases)).notes
            self.assertEqual((note.count("seq_len"), note.endswith("; ...")), (3, more), note)

    def test_a_case_that_is_not_in_b_decides_the_exit_code(self):
        paths = self.pair(cases=30)
        self.assertEqual(self.compared(paths).missing, 2)
        code, out, _ = self.run_main("compare", *paths)
        self.assertEqual(code, 1)
        self.assertIn("0 beyond 1.05. 2 of A did not run in B.", " ".join(out.split()))
        self.assertEqual(self.compared(paths[::-1]).missing, 0)
        self.assertEqual(self.run_main("compare", *paths[::-1])[0], 0)

    def test_a_case_that_ran_in_neither_is_not_missing(self):
        first, second = self.written("a.h5", out_of_memory=(30, 31)), self.written("b.h5", cases=30)
        self.assertEqual(self.compared((first, second)).missing, 0)
        self.assertEqual(self.run_main("compare", first, second)[0], 0)

    def test_faults_of_the_second_file_name_both(self):
        def change(file):
            del file["cases/time"]
            file["cases"]["time"] = 1.0

        paths = self.pair(change)
        code, _, error = self.run_main("compare", *paths)
        self.assertEqual(code, 4)
        self.assertIn(f"{paths[0]} or {paths[1]}: its groups are not those", error)

    def test_other_commits_and_machines_are_said(self):
        def move(file):
            file.attrs["git_sha"] = "fedc"
            file["provenance"].attrs["cpu_model"] = "Another CPU"
            file.attrs["complete"] = np.int8(0)

        self.assertEqual(self.compared(self.pair(move)).notes, [
            "git_sha differs: 0123456789abcdef0123 in A, fedc in B.",
            "cpu_model differs: Example CPU in A, Another CPU in B.",
            "Run B did not end.",
        ])  # fmt: skip

    def test_memory_is_exact(self):
        for name in "ab":
            write(self.folder / f"{name}.h5", "memory_plan", plan(predicted_bytes=[4.0, 8.0, 8.0 + (name == "b")]))
        found = self.compared([self.folder / "a.h5", self.folder / "b.h5"])
        self.assertEqual((found.metric, found.unit), ("memory", "byte"))
        self.assertEqual(found.table["verdict"].tolist(), ["equal", "equal", "more"])
        self.assertEqual(found.table["ratio"].tolist(), [1, 1, 1.125])
        self.assertEqual(found.table["low"].tolist(), [1, 1, 1.125])
        self.assertEqual([len(found.beyond(threshold)) for threshold in (1.124, 1.125)], [1, 0])
        out = self.run_main("compare", self.folder / "a.h5", self.folder / "b.h5")[1]
        self.assertRegex(out, r"B/A +verdict\n")

    def test_what_did_not_run_has_no_memory(self):
        ends = ["ok", "failed_check", "unchecked", "out_of_memory", "error", "skipped_memory", "unsupported"]
        columns = {"batch": range(7), "peak_bytes": np.ones(7), "predicted_bytes": np.ones(7), "status": ends}
        for kind, without in (("layer_sweep", ends[3:]), ("generate", ends[3:]), ("memory_plan", ["unsupported"]),
                              ("train", ["out_of_memory", "skipped_memory", "unsupported"])):
            found = columns if kind != "memory_plan" else {name: column for name, column in columns.items() if name != "peak_bytes"}
            run = {"": xr.Dataset(attrs={"kind": kind}),
                   "cases": xr.Dataset({name: ("case", values) for name, values in found.items()}, {"case": range(7)})}
            self.assertEqual(compare(run, run, "memory").table["verdict"].tolist(),
                             ["none" if end in without else "equal" for end in ends], kind)

    def test_repeats_of_a_generation_are_samples(self):
        columns = {name: list(values[:1]) * 5 for name, values in GENERATED["cases"][1].items()}
        for name, factor in (("a", 1), ("b", 2)):
            rates = list(100 / factor * np.linspace(0.9, 1.1, 5))
            changed = {**columns, "repeat": range(5), "decode_rate": rates}
            write(self.folder / f"{name}.h5", "generate", {"cases": ("case", changed)})
        found = self.compared([self.folder / "a.h5", self.folder / "b.h5"])
        self.assertEqual(found.table["verdict"].tolist(), ["more"])
        self.assertAlmostEqual(found.table["ratio"].item(), 2)
        self.assertAlmostEqual(found.table["a"].item(), 0.01)
        self.assertEqual(found.unit, "s/token")

    def test_steps_of_a_training_are_samples(self):
        case = {"cases": ("case", {"op": ["train"], "dtype": ["f32"], "peak_bytes": [100]})}
        steps = TRAINED["steps"][1]
        write(self.folder / "a.h5", "train", {**TRAINED, **case})
        write(self.folder / "b.h5", "train", {**case, "steps": ("step", {**steps, "time": steps["time"] / 2})})
        found = self.compared([self.folder / "a.h5", self.folder / "b.h5"])
        self.assertEqual(found.table[["verdict", "ratio"]].values.tolist(), [["less", 0.5]])

    def test_columns_can_be_ignored(self):
        def move(file):
            file["cases/execution_space"][()] = np.array(["Cuda"] * 32, dtype=object)

        paths = self.pair(move)
        wanted = "no case of A is in B: execution_space is OpenMP in A and Cuda in B; 'ignore' can leave it out"
        with self.assertRaises(CompareError) as caught:
            self.compared(paths)
        self.assertEqual(str(caught.exception), wanted)
        for ignore in (["execution_space"], "execution_space"):
            self.assertEqual(len(self.compared(paths, ignore=ignore).table), 32)
        with self.assertRaisesRegex(CompareError, "run A has several cases with the same .*; ignore fewer columns"):
            self.compared(paths, ignore=["execution_space", "impl"])

    def test_lengths_of_queries_match_whatever_else_a_run_has(self):
        for name, options in (("a.h5", {}), ("b.h5", {"cases": 1})):
            synthetic_attention.write(self.folder / name, **options)
            with h5py.File(self.folder / name, "r+") as file:
                file["cases/q_len"][...] = 512
        found = self.compared((self.folder / "a.h5", self.folder / "b.h5"))
        self.assertEqual(found.table[["q_len", "seq_len", "ratio"]].values.tolist(), [[512, 512, 1]])

    def test_what_cannot_be_compared_is_said_in_a_sentence(self):
        write(self.folder / "q.h5", "quantize", QUANTIZED)
        packed, layer = open_results(self.folder / "q.h5"), open_results(self.written())
        for words, call in {
            "kind 'layer_sweep' cannot be compared with one of kind 'quantize'": lambda: compare(layer, packed),
            "kind 'quantize' are compared by error or memory, not by time": lambda: compare(packed, packed, "time"),
            "kind 'layer_sweep' are compared by time or memory, not by error": lambda: compare(layer, layer, "error"),
            "'impls' is not a column that identifies cases; these are: op, ": lambda: compare(layer, layer, ignore=["impls"]),
            "no metric 'speed'; there are: time, memory, error": lambda: compare(layer, layer, "speed"),
            "has no column 'predicted_bytes'": lambda: compare(layer, layer, "memory"),
        }.items():
            with self.assertRaises(CompareError) as caught:
                call()
            self.assertIn(words, str(caught.exception))

    def test_the_exit_code_is_that_of_the_threshold(self):
        paths = self.slower(2)
        code, out, _ = self.run_main("compare", *paths, "--threshold", "2.1")
        self.assertEqual(code, 0)
        self.assertIn("32 cases compared, 31 undecided (the interval contains 1), 0 beyond 2.1.", out)
        code, out, _ = self.run_main("compare", *paths)
        self.assertEqual(code, 1)
        self.assertRegex(out, r"f32 +forward +flash +1024 .* 2\.000 +1\.[0-9]+ 2\.[0-9]+ +more")
        self.assertIn("op layer, execution_space OpenMP", out)
        self.assertEqual(self.run_main("compare", paths[0], self.folder / "none.h5")[0], 4)
        for threshold, ratio in (("5%", 1.05), ("0.05", 1.05), ("1.05", 1.05), ("110%", 2.1), ("1", 1), ("0", 1)):
            _, out, _ = self.run_main("compare", *paths, "--fail-above", threshold)
            self.assertIn(f"beyond {ratio}.", out)
        for wrong in (["--threshold", "-1"], ["--threshold", "all"], ["--metric", "speed"]):
            with self.assertRaises(SystemExit) as caught:
                self.run_main("compare", *paths, *wrong)
            self.assertEqual(caught.exception.code, 2)

    def test_a_threshold_that_is_none_is_refused_in_words(self):
        said = io.StringIO()
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(said):
            main(["compare", "a.h5", "b.h5", "--threshold", "all"])
        self.assertIn("expected 5%, 0.05 or the ratio 1.05, got 'all'", said.getvalue())


if __name__ == "__main__":
    unittest.main()
