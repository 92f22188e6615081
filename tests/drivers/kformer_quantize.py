# SPDX-License-Identifier: MIT
"""The driver kformer-quantize from outside: its command line, what it refuses, and what failures leave.

ctest runs this with the program in KFORMER_QUANTIZE and the sources in KFORMER_SOURCE.
"""

import csv
import fcntl
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import unittest

from driver_case import h5py, needs_h5py, texts
from quantize_case import FORMATS, Q_PROJ, QuantizeTest

if h5py is not None:
    import numpy as np
    from packed_weights import random_model, write_model


class CommandLine(QuantizeTest):
    def test_help_names_options_and_exit_codes(self):
        text = self.run_driver("--help").stdout
        for word in ["INPUT", "OUTPUT", "--format", "--embedding", "--adapter", "--adapter-gguf", "--space", "--threads",
                     "--table-format", "--report", "--overwrite", "--dry-run", "--version", "--kokkos-", "4 file error", "75 stopped"]:
            self.assertIn(word, text)

    def test_the_schema_of_results_is_stored(self):
        self.check_stored_schema()

    def test_version(self):
        first, kokkos, *_ = self.run_driver("--version").stdout.splitlines()
        self.assertRegex(first, r"^kformer-quantize \d+\.\d+\.\d+ ")
        self.assertRegex(kokkos, r"^Kokkos \d+\.\d+\.\d+ with ")

    def test_usage_errors(self):
        self.assertIn("INPUT", self.run_driver(expect=2).stderr)
        self.assertIn("--format", self.run_driver("a", "b", expect=2).stderr)
        self.assertIn("q5_1", self.run_driver("a", "b", "-f", "q5_1", expect=2).stderr)
        self.assertIn("abacus", self.run_driver("a", "b", "-f", "q8_0", "--space", "abacus", expect=2).stderr)
        self.run_driver("a", "b", "c", "-f", "q8_0", expect=2)
        self.assertIn("did you mean '--format'?", self.run_driver("a", "b", "--fromat", "q8_0", expect=2).stderr)
        for report in ("b/model.safetensors", "./b/../b/report.h5"):
            self.assertIn("must not be in OUTPUT", self.run_driver("a", "b", "-f", "q8_0", "-r", report, expect=2).stderr)
        self.assertEqual(self.files(), [])


@needs_h5py
class Refusals(QuantizeTest):
    def refused(self, *arguments):
        files = self.files()
        text = self.run_driver(*arguments, expect=4).stderr
        self.assertEqual(self.files(), files)
        return text

    def test_an_output_that_has_something(self):
        self.model()
        kept = self.folder / "packed/notes.txt"
        kept.parent.mkdir()
        kept.write_text("mine")
        self.assertIn("/packed' exists and is not empty", self.refused("model", "packed", "-f", "q8_0"))
        self.assertIn("is not empty", self.refused("model", "packed", "-f", "q8_0", "--dry-run"))
        self.assertEqual(os.listdir(kept.parent), ["notes.txt"])
        self.run_driver("model", "packed/", "-f", "q8_0", "--overwrite")
        self.assertEqual(sorted(os.listdir(kept.parent)), ["config.json", "model.safetensors", "notes.txt"])

    def test_overwriting_leaves_no_tokenizer_of_another_model(self):
        self.model()
        (self.model("other") / "tokenizer.json").write_text("{}")
        self.run_driver("other", "packed", "-f", "q8_0")
        self.assertIn("tokenizer.json", os.listdir(self.folder / "packed"))
        self.run_driver("model", "packed", "-f", "q4_0", "--overwrite")
        self.assertEqual(sorted(os.listdir(self.folder / "packed")), ["config.json", "model.safetensors"])

    def test_an_output_that_is_empty_or_deep(self):
        self.model()
        (self.folder / "empty").mkdir()
        for output in ("empty", "a/b/packed"):
            self.run_driver("model", output, "-f", "q8_0")
            self.assertEqual(sorted(os.listdir(self.folder / output)), ["config.json", "model.safetensors"])

    def test_an_output_where_the_input_lies(self):
        weights = (self.model() / "model.safetensors").read_bytes()
        (self.folder / "link").symlink_to("model")
        for output in ("model", "model/", "link", "model/../model"):
            for source in ("model", "model/model.safetensors"):
                self.assertIn("is the folder of the input", self.refused(source, output, "-f", "q8_0", "--overwrite"))
        self.assertEqual((self.folder / "model/model.safetensors").read_bytes(), weights)

    def test_an_output_that_is_a_file(self):
        self.model()
        (self.folder / "file").write_text("mine")
        self.assertIn("/file' is not a folder", self.refused("model", "file", "-f", "q8_0", "--overwrite"))
        self.assertIn("file/packed", self.refused("model", "file/packed", "-f", "q8_0"))

    def test_an_input_that_is_none(self):
        self.assertIn("nowhere", self.refused("nowhere", "packed", "-f", "q8_0"))
        tensors = random_model()
        del tensors[Q_PROJ]
        write_model(self.folder / "part", tensors)
        self.assertIn(f"{Q_PROJ} is missing", self.refused("part", "packed", "-f", "q8_0"))

    def test_a_weight_that_is_not_finite_is_named(self):
        for bad in (np.nan, np.inf, -np.inf):
            for kind in FORMATS:
                weights = random_model()[Q_PROJ]
                weights[17, 5] = bad
                self.model(**{Q_PROJ: weights})
                text = self.refused("model", "packed", "-f", kind, "-r", "report.h5")
                self.assertIn(f"'{Q_PROJ}' cannot be quantised to {kind.upper()}: row 17 has a weight that is not finite", text)

    def test_a_weight_that_is_too_large_is_named(self):
        weights = random_model()[Q_PROJ]
        weights[17, 5] = 1e30
        self.model(**{Q_PROJ: weights})
        for kind in FORMATS:
            if kind == "nf4":  # its scales are floats
                continue
            text = self.refused("model", "packed", "-f", kind)
            self.assertIn(f"'{Q_PROJ}' cannot be quantised to {kind.upper()}: row ", text)
            self.assertIn("too large for a scale in binary16", text)

    def test_a_weight_that_other_numbers_do_not_have_is_named(self):
        for bad, kind, why in ((1e6, "f16", "too large for it"), (np.nan, "bf16", "not finite")):
            weights = random_model()[Q_PROJ]
            weights[17, 5] = bad
            self.model(**{Q_PROJ: weights})
            self.assertIn(f"'{Q_PROJ}' cannot be converted to {kind.upper()}: row 17 has a weight that is {why}",
                          self.refused("model", "out", "-f", kind))

    def test_what_is_not_quantised_may_be_anything(self):
        norm = random_model()["model.norm.weight"]
        norm[3] = np.nan
        self.model(**{"model.norm.weight": norm})
        self.run_driver("model", "packed", "-f", "q8_0")

    def test_a_report_that_exists_is_kept(self):
        self.model()
        (self.folder / "report.h5").write_text("mine")
        self.assertIn("report.h5", self.refused("model", "packed", "-f", "q8_0", "-r", "report.h5"))
        self.assertEqual((self.folder / "report.h5").read_text(), "mine")

    def test_a_dry_run_lists_and_leaves_nothing(self):
        self.model()
        text = self.run_driver("model", "packed", "-f", "tq2_0", "-r", "report.h5", "--dry-run").stdout
        self.assertRegex(text, rf"(?m)^TQ2_0 {Q_PROJ} +\[48,48\] +9.00 KiB +3.09 KiB$")
        self.assertTrue(text.startswith("from F32\nto    tensor "), text)
        self.assertIn("14 of 21 tensors converted", text)
        self.assertEqual(self.files(), ["model"])


@needs_h5py
class Table(QuantizeTest):
    def test_people_read_it_in_100_columns(self):
        self.model()
        lines = self.run_driver("model", "packed", "-f", "q8_0").stdout.splitlines()
        self.assertEqual([line for line in lines if len(line) > 100], [])
        self.assertEqual(lines[0], "from F32")
        self.assertRegex(lines[1], r"^to +tensor +after +max err +rel\. rms +cosine +zeros$")
        self.assertTrue([line for line in lines if line.startswith(f"Q8_0 {Q_PROJ} ")])

    def test_programs_read_what_the_report_has(self):
        self.model()
        call = ["model", "packed", "-f", "q8_0", "--overwrite", "-r", "report.h5", "--table-format"]
        done = self.run_driver(*call, "csv")
        self.assertIn("packed checkpoint: packed\n", done.stderr)
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        read = json.loads(self.run_driver(*call, "json").stdout)
        with h5py.File(self.folder / "report.h5") as file:
            table = file["tensors"]
            for found in (rows, read):
                self.assertEqual([row["tensor"] for row in found], texts(table["name"]))
                self.assertEqual([row["format_after"] for row in found], texts(table["format_after"]))
                for name in ("bytes_before", "bytes_after", "max_abs_err", "rel_rms_err", "cosine", "zeros"):
                    np.testing.assert_array_equal([float(row[name]) for row in found], table[name][()])
        self.assertEqual({row["shape"] for row in rows if row["tensor"] == Q_PROJ}, {"[48,48]"})
        plan = json.loads(self.run_driver(*call, "json", "--dry-run").stdout)
        for row in plan:
            self.assertEqual(row, {name: value for name, value in read[plan.index(row)].items() if name in row})
        self.assertEqual(len(plan), 21)


@needs_h5py
class Interruption(QuantizeTest):
    LIMIT = 100000  # bytes of a file: less than the weights have

    def limited(self, *arguments):
        """A run that cannot write its weights whole."""
        command = [self.PROGRAM, "model", "packed", "-f", "q8_0", *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (self.LIMIT, self.LIMIT)))

    def killed_while_it_writes(self):
        """A run that was killed between the first file of the checkpoint and the last."""
        packed = self.folder / "packed"
        for _ in range(100):
            run = subprocess.Popen([self.PROGRAM, "model", "packed", "-f", "q8_0"], cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while run.poll() is None and not (packed / ".kformer-quantize.part").exists():
                pass
            run.kill()
            run.wait()
            if (packed / ".kformer-quantize.part").exists():
                return
            shutil.rmtree(packed, ignore_errors=True)
        self.fail("no kill came in time")

    def test_two_runs_do_not_write_one_folder(self):
        self.model()
        with open(self.folder / "packed.lock", "w") as lock:  # as a run holds it
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name in ("packed", "packed/"):
                done = self.run_driver("model", name, "-f", "q8_0", expect=4)
                self.assertIn("/packed' is being written by another run", done.stderr)
            self.assertFalse((self.folder / "packed").exists())
        self.run_driver("model", "packed", "-f", "q8_0")
        self.assertEqual(self.files(), ["model", "packed"])

    def test_a_failure_leaves_nothing(self):
        self.model()
        done = self.limited("-r", "report.h5")
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("model.safetensors", done.stderr)
        self.assertEqual(self.files(), ["model"])

    def test_a_failure_leaves_what_was_there(self):
        self.model()
        self.run_driver("model", "packed", "-f", "q4_0")
        files = {path.name: path.read_bytes() for path in (self.folder / "packed").iterdir()}
        self.assertEqual(self.limited("--overwrite").returncode, 4)
        self.assertEqual({path.name: path.read_bytes() for path in (self.folder / "packed").iterdir()}, files)

    def test_a_signal_stops_between_tensors_and_leaves_nothing(self):
        self.model()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            run = self.signalled_while_it_converts(number)
            self.assertEqual((run.returncode, run.stderr), (75, ""), run.stdout)
            self.assertRegex(run.stdout, r"\nstopped \(signal: .+\); nothing was written\n$")
            self.assertEqual(self.files(), ["model"])

    def signalled_while_it_converts(self, number):
        """A run that was signalled when it had made its folder, before Kokkos started."""
        part = self.folder / "packed/.kformer-quantize.part"
        for _ in range(100):
            command = [self.PROGRAM, "model", "packed", "-f", "q8_0", "-r", "report.h5", "--overwrite"]
            with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
                while run.poll() is None and not part.exists():
                    pass
                run.send_signal(number)
                output, errors = run.communicate(timeout=60)
            if run.returncode != 0:
                return subprocess.CompletedProcess(command, run.returncode, output, errors)
            shutil.rmtree(self.folder / "packed")
            (self.folder / "report.h5").unlink()
        self.fail("no signal came in time")

    def test_a_kill_leaves_no_checkpoint_and_no_obstacle(self):
        self.model()
        self.killed_while_it_writes()
        self.assertEqual(os.listdir(self.folder / "packed"), [".kformer-quantize.part"])
        self.run_driver("packed", "other", "-f", "q8_0", expect=4)
        self.run_driver("model", "packed", "-f", "q8_0")
        self.assertEqual(sorted(os.listdir(self.folder / "packed")), ["config.json", "model.safetensors"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
