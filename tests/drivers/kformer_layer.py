# SPDX-License-Identifier: MIT
"""The driver kformer-layer from outside: command line, decks, exit codes, result files, and what a kill leaves behind.

ctest runs this with the program in KFORMER_LAYER, the sources in KFORMER_SOURCE and the given data in KFORMER_DATA.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

try:
    import h5py
    import numpy as np
except ImportError:
    h5py = None

PROGRAM = os.environ["KFORMER_LAYER"]
SOURCE = Path(os.environ["KFORMER_SOURCE"])
LAYER_CASE = Path(os.environ.get("KFORMER_DATA", "")) / "layer_case"
SMOKE = SOURCE / "inputs/smoke"

# A layer whose cases take milliseconds; the cases come from the test.
SMALL = """schema = 1
kind = "layer_sweep"
[model]
hidden_size = 64
num_attention_heads = 4
num_key_value_heads = 2
intermediate_size = 96
[timing]
repeats = 2
min_time_s = 0.0
"""

needs_h5py = unittest.skipIf(h5py is None, "h5py is not installed")


class DriverTest(unittest.TestCase):
    """Has an empty folder and runs the driver in it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_driver(self, *arguments, expect=0):
        done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def deck(self, text, name="deck.toml"):
        path = self.folder / name
        path.write_text(SMALL + text)
        return path

    def files(self):
        return sorted(path.name for path in self.folder.iterdir())


class CommandLine(DriverTest):
    def test_help_names_options_and_exit_codes(self):
        text = self.run_driver("--help").stdout
        for word in ["--set", "--output", "--dry-run", "--print-deck", "--describe-deck", "--deck-schema", "--version",
                     "--kokkos-", "3 deck invalid", "75 stopped"]:
            self.assertIn(word, text)

    def test_version(self):
        first, kokkos, *_ = self.run_driver("--version").stdout.splitlines()
        self.assertRegex(first, r"^kformer-layer \d+\.\d+\.\d+ ")
        self.assertRegex(kokkos, r"^Kokkos \d+\.\d+\.\d+ with ")

    def test_usage_errors(self):
        self.assertIn("error: no deck given", self.run_driver(expect=2).stderr)
        self.assertIn("--frobnicate", self.run_driver("--frobnicate", expect=2).stderr)
        self.run_driver("a.toml", "b.toml", expect=2)

    def test_the_page_of_decks_holds_what_the_program_says(self):
        page = (SOURCE / "docs/decks.md").read_text()
        begin, end = "<!-- begin kformer-layer --describe-deck -->", "<!-- end kformer-layer --describe-deck -->"
        self.assertEqual(page.split(begin)[1].split(end)[0].strip(), self.run_driver("--describe-deck").stdout.strip())

    def test_the_schema_is_json(self):
        schema = json.loads(self.run_driver("--deck-schema").stdout)
        self.assertIn("sweep", schema["properties"])

    def test_a_printed_deck_is_a_deck_that_means_the_same(self):
        deck = SMOKE / "layer.toml"
        printed = self.run_driver(deck, "--print-deck").stdout
        (self.folder / "printed.toml").write_text(printed)
        self.assertEqual(self.run_driver("printed.toml", "--dry-run").stdout, self.run_driver(deck, "--dry-run").stdout)
        self.assertEqual(self.run_driver("printed.toml", "--print-deck").stdout, printed)


class Decks(DriverTest):
    def test_every_deck_of_the_project_is_good(self):
        decks = sorted(SOURCE.glob("inputs/**/*.toml"))
        self.assertGreater(len(decks), 5)
        for deck in decks:
            with self.subTest(deck=deck.name):
                self.assertRegex(self.run_driver(deck, "--dry-run").stdout, r"^\d+ cases? of ")
        self.assertEqual(self.files(), [])

    def test_an_unknown_key_is_refused_with_its_place(self):
        self.deck("[sweep]\nseqlen = 4\n")
        text = self.run_driver("deck.toml", expect=3).stderr
        self.assertIn("deck.toml:12:1: error: unknown key 'seqlen' in [sweep]", text)
        self.assertIn("did you mean 'seq_len'?", text)
        self.assertEqual(self.files(), ["deck.toml"])

    def test_a_bad_override_is_refused(self):
        self.deck("[sweep]\nseq_len = 4\n")
        text = self.run_driver("deck.toml", "--set", "timing.repeats=0", expect=3).stderr
        self.assertIn("--set[1]:1:16: error: 'timing.repeats' must be an integer in [1, 100000], got integer 0", text)

    def test_a_missing_deck_is_a_file_error(self):
        self.assertIn("no-deck.toml", self.run_driver("no-deck.toml", expect=4).stderr)


class Output(DriverTest):
    """Where results must not or cannot go; known before any work."""

    def setUp(self):
        super().setUp()
        self.deck("[sweep]\nseq_len = 4\n")

    def test_what_exists_is_kept(self):
        kept = self.folder / "deck.h5"
        kept.write_text("mine")
        done = self.run_driver("deck.toml", expect=4)
        self.assertIn("deck.h5", done.stderr)
        self.assertNotIn("matrix product", done.stdout)
        self.assertEqual(kept.read_text(), "mine")
        self.assertEqual(self.files(), ["deck.h5", "deck.toml"])

    def test_what_exists_is_replaced_on_demand(self):
        (self.folder / "deck.h5").write_text("mine")
        self.run_driver("deck.toml", "--set", "output.overwrite=true")
        self.assertTrue((self.folder / "deck.h5").read_bytes().startswith(b"\x89HDF"))

    def test_a_place_that_is_no_folder(self):
        done = self.run_driver("deck.toml", "-o", "deck.toml/out.h5", expect=4)
        self.assertNotIn("matrix product", done.stdout)

    @unittest.skipIf(os.geteuid() == 0, "root may write anywhere")
    def test_a_folder_that_is_read_only(self):
        locked = self.folder / "locked"
        locked.mkdir(mode=0o555)
        self.addCleanup(locked.chmod, 0o755)
        done = self.run_driver("deck.toml", "-o", "locked/out.h5", expect=4)
        self.assertNotIn("matrix product", done.stdout)


def texts(dataset):
    return [value.decode() for value in dataset[()]]


def words(dataset):
    """The meanings of a flag column."""
    meanings = dict(zip(np.atleast_1d(dataset.attrs["flag_values"]).tolist(), dataset.attrs["flag_meanings"].split()))
    return [meanings[value] for value in dataset[()].tolist()]


@needs_h5py
class Results(DriverTest):
    def test_smoke_decks(self):
        for deck in sorted(SMOKE.glob("*.toml")):
            with self.subTest(deck=deck.name):
                self.check_smoke_deck(deck)

    def check_smoke_deck(self, deck):
        listed = self.run_driver(deck, "--dry-run").stdout.splitlines()[1:]
        self.run_driver(deck, "-o", "out.h5")
        with h5py.File(self.folder / "out.h5") as file:
            cases = file["cases"]
            self.assertEqual(file.attrs["complete"], 1)
            self.assertEqual(words(cases["status"]), ["ok"] * len(listed))
            columns = zip(texts(cases["execution_space"]), texts(cases["dtype"]), words(cases["direction"]),
                          cases["batch"][()].tolist(), cases["seq_len"][()].tolist(), texts(cases["impl"]))
            self.assertEqual([line.split() for line in listed],
                             [[space, dtype, direction, "batch", str(batch), "seq_len", str(seq_len), impl]
                              for space, dtype, direction, batch, seq_len, impl in columns])
            np.testing.assert_allclose(cases["time_median"][()], np.median(cases["time"][()], axis=1), rtol=1e-15)
            self.assertTrue((cases["time"][()] > 0).all() and (cases["flops"][()] > 0).all())
            self.assertTrue((cases["max_rel_err"][()] < 0.1).all())
            np.testing.assert_array_equal(cases["predicted_bytes"][()], cases["peak_bytes"][()])
            self.check_kernels(cases)
            self.check_memory(file)
            self.assertIn('kind = "layer_sweep"', file["provenance/deck_text"][()].decode())
            spaces = set(texts(cases["execution_space"]))
            self.assertEqual(set(texts(file["machine/execution_space"])), spaces)
            self.assertTrue((file["machine/matmul_rate_f32"][()] > 0).all())
            if "kernels = true" in deck.read_text():
                self.check_profile(file)

    def check_kernels(self, cases):
        for kernels, impl, direction in zip(texts(cases["kernels"]), texts(cases["impl"]), words(cases["direction"])):
            functions = {entry.split(":")[0] for entry in kernels.split()}
            attention = {"flash": "attention", "standard": "standard_attention"}[impl]
            self.assertIn(f"{attention}_forward", functions)
            self.assertIn("linear_forward", functions)
            self.assertEqual(f"{attention}_backward" in functions, direction == "backward")

    def check_memory(self, file):
        names, peaks = texts(file["memory/classes/memory_class"]), file["memory/classes/peak_bytes"][()]
        self.assertEqual(names, ["weights", "gradients", "optimizer", "activations", "kv_cache", "workspace",
                                 "communication", "io"])
        np.testing.assert_array_equal(peaks.sum(axis=1), file["cases/peak_bytes"][()])
        backward = np.array(words(file["cases/direction"])) == "backward"
        np.testing.assert_array_equal(peaks[:, names.index("gradients")] > 0, backward)
        # What Kokkos saw holds at least what the ledger booked.
        witnessed = np.zeros(len(peaks), dtype=np.uint64)
        np.add.at(witnessed, file["memory/spaces/case"][()], file["memory/spaces/peak_bytes"][()])
        self.assertTrue((witnessed >= file["cases/peak_bytes"][()]).all())

    def check_profile(self, file):
        paths = set(texts(file["regions/path"]))
        for path in ["forward", "forward/attention", "backward", "backward/attention", "forward/gate_up"]:
            self.assertIn(path, paths)
        self.assertEqual({name.split("::")[0] for name in texts(file["kernels/name"])}, {"kformer"})
        self.assertTrue((file["kernels/time_total"][()] > 0).all())

    def test_flash_needs_less_memory_and_grows_linearly(self):
        self.deck("""[sweep]
impl = ["standard", "flash"]
direction = ["forward", "backward"]
execution_space = "default"
seq_len = [512, 1024, 2048]
[check]
reference = "none"
""")
        self.run_driver("deck.toml", "--set", "timing.repeats=1", "--set", "timing.warmup=0")
        with h5py.File(self.folder / "deck.h5") as file:
            names, peaks = texts(file["memory/classes/memory_class"]), file["memory/classes/peak_bytes"][()]
            held = peaks[:, names.index("activations")] + peaks[:, names.index("workspace")]
            of = {key: int(value) for *key, value in zip(texts(file["cases/impl"]), words(file["cases/direction"]),
                                                         file["cases/seq_len"][()].tolist(), held)
                  for key in [tuple(key)]}
        for direction in ["forward", "backward"]:
            with self.subTest(direction=direction):
                self.assertLess(of["flash", direction, 2048], 0.2 * of["standard", direction, 2048])
                self.assertLess(of["flash", direction, 2048], 2.01 * of["flash", direction, 1024])
                self.assertGreater(of["standard", direction, 2048], 3 * of["standard", direction, 1024])

    def test_a_case_that_does_not_fit_is_recorded_or_aborts(self):
        self.deck('[sweep]\nseq_len = [16777216, 4]\nexecution_space = "default"\ndirection = "forward"\n')
        self.run_driver("deck.toml", "-o", "recorded.h5")
        with h5py.File(self.folder / "recorded.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["out_of_memory", "ok"])
            self.assertIn("the longest sequence that fits is", texts(file["cases/message"])[0])
            self.assertTrue(np.isnan(file["cases/time_median"][0]))
        done = self.run_driver("deck.toml", "-o", "aborted.h5", "--set", "run.on_oom=abort", expect=6)
        self.assertIn("the longest sequence that fits is", done.stderr)


@needs_h5py
class Interruption(DriverTest):
    def start(self):
        """Starts a run that takes long, and returns it when two cases are finished."""
        self.deck('[sweep]\nseq_len = [4, 5, 6, 7, 8, 9, 10, 11]\nimpl = ["standard", "flash"]\n')
        run = subprocess.Popen([PROGRAM, "deck.toml", "--set", "timing.repeats=50", "--set", "timing.min_time_s=0.02"],
                               cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.kill)
        finished = 0
        for line in run.stdout:
            finished += bool(re.search(r"  ok$", line))
            if finished == 2:
                return run
        self.fail("the run ended by itself")

    def check_part(self):
        self.assertEqual([name for name in self.files() if name.endswith(".h5")], [])
        part, = [name for name in self.files() if "part" in name]
        with h5py.File(self.folder / part) as file:
            self.assertEqual(file.attrs["complete"], 0)
            finished = len(file["cases/time_median"])
            self.assertGreaterEqual(finished, 2)
            self.assertTrue((file["cases/time_median"][:2] > 0).all())
            self.assertEqual(file["memory/classes/peak_bytes"].shape[0], finished)
        return part

    def test_a_kill_leaves_the_finished_cases(self):
        run = self.start()
        run.send_signal(signal.SIGKILL)
        run.wait()
        self.check_part()

    def test_a_request_to_stop_leaves_the_finished_cases_and_says_where(self):
        run = self.start()
        begin = time.monotonic()
        run.send_signal(signal.SIGTERM)
        rest = run.stdout.read()
        self.assertEqual(run.wait(), 75)
        self.assertLess(time.monotonic() - begin, 10)
        part = self.check_part()
        self.assertIn(f"the finished cases are in {part}", rest)

    def test_the_time_limit_stops(self):
        self.deck("[sweep]\nseq_len = [4, 5, 6, 7]\n")
        done = self.run_driver("deck.toml", "--set", "run.walltime_s=1e-3", expect=75)
        self.assertIn("walltime_s", done.stdout)


def read_safetensors(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    types = {"F32": "<f4", "F64": "<f8"}
    return {name: np.frombuffer(data[8 + length:][slice(*entry["data_offsets"])], types[entry["dtype"]])
            .reshape(entry["shape"]).astype(np.float64) for name, entry in header.items()}


@needs_h5py
@unittest.skipUnless(LAYER_CASE.is_dir(), "KFORMER_DATA names no folder with a layer_case")
class Tensors(DriverTest):
    INPUT = LAYER_CASE / "stories260K_layer0.inputs.safetensors"
    LIMITS = {"f64": 1e-12, "f32": 5e-6}

    def tensor_deck(self, sweep, source=None):
        (self.folder / "tensors.toml").write_text(f"""schema = 1
kind = "layer_sweep"
[sweep]
{sweep}
[tensors]
input = {json.dumps(str(source or self.INPUT))}
output = "out.safetensors"
""")
        return "tensors.toml"

    def test_a_layer_that_somebody_else_computed(self):
        expected = read_safetensors(LAYER_CASE / "stories260K_layer0.expected.safetensors")
        deck = self.tensor_deck('impl = ["standard", "flash"]\ndtype = ["f64", "f32"]')
        self.run_driver(deck, "-o", "out.h5", "--set", "timing.repeats=1")
        with h5py.File(self.folder / "out.h5") as file:
            combinations = sorted(set(zip(*(texts(file[f"cases/{name}"])
                                            for name in ["execution_space", "dtype", "impl"]))))
        paths = [self.folder / f"out.{'-'.join(combination)}.safetensors" for combination in combinations]
        missing = [path for path in paths if not path.exists()]
        self.assertEqual(len(missing), 1, "the first combination is in the file that the deck names")
        for (_, dtype, impl), path in zip(combinations, paths):
            results = read_safetensors(path if path.exists() else self.folder / "out.safetensors")
            self.assertEqual(results.keys(), expected.keys())
            for name, reference in expected.items():
                with self.subTest(file=path.name, tensor=name):
                    self.assertEqual(results[name].shape, reference.shape)
                    error = np.abs(results[name] - reference).max() / np.abs(reference).max()
                    self.assertLessEqual(error, self.LIMITS[dtype])

    def test_a_damaged_file_is_refused(self):
        damaged = self.folder / "damaged.safetensors"
        damaged.write_bytes(self.INPUT.read_bytes()[:-1])
        done = self.run_driver(self.tensor_deck('impl = "flash"', damaged), expect=4)
        self.assertIn("damaged.safetensors", done.stderr)
        self.assertEqual(self.files(), ["damaged.safetensors", "tensors.toml"])

    def test_another_sequence_length_is_refused(self):
        done = self.run_driver(self.tensor_deck('impl = "flash"\nseq_len = 3'), expect=3)
        self.assertIn("leave both keys out", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
