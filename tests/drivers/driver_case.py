# SPDX-License-Identifier: MIT
"""What the tests of all drivers share: running a driver, reading what it wrote, and the tests that fit any driver."""

import atexit
import functools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

try:
    import h5py
    import numpy as np
except ImportError:
    h5py = None

SOURCE = Path(os.environ["KFORMER_SOURCE"])
SMOKE = SOURCE / "inputs/smoke"

sys.path.insert(0, str(SOURCE / "analysis"))
try:
    from kformer_results.check import check_file
except ImportError:
    check_file = None

needs_xarray = unittest.skipIf(check_file is None, "h5netcdf, pandas, matplotlib or xarray is not installed")
needs_h5py = unittest.skipIf(h5py is None, "h5py is not installed")


@functools.cache
def smoke_run(program, deck):
    """A run of a deck as it is, at which several tests look: its file of results, and what it said."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    done = subprocess.run([program, deck], cwd=folder.name, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout + done.stderr
    path, = Path(folder.name).glob("*.h5")
    return path, done


def decks_of_kind(kind, pattern):
    """The decks below inputs/ of one kind."""
    return [deck for deck in sorted((SOURCE / "inputs").glob(pattern)) if f'kind = "{kind}"' in deck.read_text()]


def counts_waits():
    """Whether the system counts how long threads wait for cores."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[0]) > 0
    except OSError:
        return False


def texts(dataset):
    return [value.decode() for value in dataset[()]]


def words(dataset):
    """The meanings of a flag column."""
    meanings = dict(zip(np.atleast_1d(dataset.attrs["flag_values"]).tolist(), dataset.attrs["flag_meanings"].split()))
    return [meanings[value] for value in dataset[()].tolist()]


def read_safetensors(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    types = {"F32": "<f4", "F64": "<f8", "BF16": "<u2"}

    def values(entry):
        stored = np.frombuffer(data[8 + length:][slice(*entry["data_offsets"])], types[entry["dtype"]])
        if entry["dtype"] == "BF16":
            stored = (stored.astype("<u4") << 16).view("<f4")
        return stored.reshape(entry["shape"]).astype(np.float64)

    return {name: values(entry) for name, entry in header.items()}


def write_safetensors(path, tensors, metadata=None):
    """Arrays of float32, float64, int32 or int64 by name, and texts by name."""
    types = {"<f4": "F32", "<f8": "F64", "<i4": "I32", "<i8": "I64"}
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, array in tensors.items():
        part = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": types[array.dtype.str], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def become_another_user():
    """Before a driver runs: the superuser may write anywhere, so it runs as nobody instead."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


class DriverTest(unittest.TestCase):
    """Has an empty folder and runs the driver in it. A subclass says which: NAME, PROGRAM, SMOKE_DECK, and SMALL, the
    start of a deck (that ends with the line [sweep], where the kind has sweeps)."""

    TABLE = "sweep"  # one of the tables of its decks
    FEW = ()  # settings that make the run of the smoke deck short

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_driver(self, *arguments, expect=0, before=None, **environment):
        """`before` is called in the process that becomes the driver."""
        done = subprocess.run([self.PROGRAM, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True,
                              errors="replace",  # a model without training says bytes that are no text
                              env={**os.environ, **environment}, preexec_fn=before)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def check_stored_schema(self):
        """The package kformer_results has what the program says of its result files."""
        text = self.run_driver("--describe-results").stdout
        schema = json.loads(text)
        stored = SOURCE / f"analysis/kformer_results/schemas/{schema['schema_version']}/{schema['kind']}.json"
        self.assertEqual(stored.read_text(), text, "scripts/write_schemas was not run")

    def check_limits(self, cases):
        """No case is faster than the machine; what follows from the samples does."""
        shares = cases["share_of_limit"][()]
        for name, quantile in (("p10", 0.1), ("median", 0.5), ("p90", 0.9)):
            np.testing.assert_allclose(cases[f"time_{name}"][()], np.nanquantile(cases["time"][()], quantile, axis=1), rtol=1e-12)
        median, flops = cases["time_median"][()], cases["flops"][()]
        np.testing.assert_allclose(cases["flop_rate"][()], flops / median, rtol=1e-12)
        least = np.maximum(flops / cases["flop_rate_limit"][()], cases["bytes_min"][()] / cases["bandwidth_limit"][()])
        np.testing.assert_allclose(shares, least / median, rtol=1e-12)
        self.assertTrue((cases["flop_rate_limit"][()] > 0).all() and (cases["bandwidth_limit"][()] > 0).all())
        self.assertTrue(((shares > 0) & (shares <= 1.05)).all(), shares.max())

    def check_disturbances(self, cases):
        """Of cases without samples."""
        waited, changes = (cases[name][()] for name in ("core_wait_share", "limits_change"))
        self.assertEqual(words(cases["noisy"]), ["yes" if x > 0.25 or y > 0.25 else "no" for x, y in zip(waited, changes)])
        self.assertTrue((waited >= 0).all() or not counts_waits(), waited)

    def check_independence(self, cases, least=1):
        """No kernel of a case that is ok ran for its reference, too; returns the kernels of each case."""
        checked = [(set(ran.split()), set(reference.split())) for ran, reference, status in zip(
            texts(cases["kernels"]), texts(cases["check_kernels"]), words(cases["status"])) if status == "ok"]
        self.assertGreaterEqual(len(checked), least)
        for ran, reference in checked:
            self.assertTrue(reference)
            self.assertEqual({name for name in ran & reference if not name.endswith(":separate")}, set())
        return [ran for ran, _ in checked]

    def check_scratch(self, path, per_thread=4 << 20):
        """No kernel allocates: besides what the ledger books, Kokkos has the same memory in every case, which is the scratch
        memory that was reserved for the run, and a little for itself."""
        with h5py.File(path) as file:
            cases, witnessed = file["cases"], file["memory/spaces"]
            if not set(texts(cases["execution_space"])) <= {"serial", "openmp", "threads"}:
                self.skipTest("kernels of devices need no scratch memory of Kokkos")
            reserved = per_thread * int(file["provenance"].attrs["kokkos_concurrency"])
            self.assertEqual(set(cases["scratch_bytes"][()].tolist()), {reserved})
            beside = -cases["peak_bytes"][()].astype(np.int64)
            np.add.at(beside, witnessed["case"][()], witnessed["peak_bytes"][()].astype(np.int64))
            self.assertEqual(len(set(beside.tolist())), 1, beside)
            self.assertGreaterEqual(beside[0], reserved)
            self.assertLess(beside[0], reserved + reserved // 4)

    def deck(self, text, name="deck.toml"):
        path = self.folder / name
        path.write_text(self.SMALL + text)
        return path

    def check_decks_of_the_project(self, kind, least, *arguments, of="cases?"):
        """A dry run takes each of them; there are at least `least`."""
        decks = decks_of_kind(kind, "**/*.toml")
        self.assertGreaterEqual(len(decks), least)
        for deck in decks:
            with self.subTest(deck=deck.name):
                self.assertRegex(self.run_driver(deck, "--dry-run", *arguments).stdout, rf"^\d+ {of} of ")
        self.assertEqual(self.files(), [])

    def check_locked_folder(self, *arguments):
        """A run whose output would be in a folder that is read-only ends before any work."""
        locked = self.folder / "locked"
        locked.mkdir(mode=0o555)
        self.addCleanup(locked.chmod, 0o755)
        self.folder.chmod(0o755)  # so that another user reads the deck
        try:
            done = self.run_driver(*arguments, "-o", "locked/out.h5", expect=4, before=become_another_user)
        except PermissionError:
            self.skipTest("another user than root cannot run the drivers where they are")
        self.assertEqual(done.stderr.splitlines()[-1], "error: cannot write 'locked/out.h5.part': Permission denied")
        return done

    def signal_rank(self, rank, number):
        """Sends a signal to one rank."""
        for status in Path("/proc").glob("[0-9]*/environ"):
            try:
                environment = status.read_bytes().split(b"\0")
                program = (status.parent / "cmdline").read_bytes().split(b"\0")[0].decode()
                folder = os.readlink(status.parent / "cwd")
            except OSError:
                continue
            here = Path(folder).resolve() == Path(self.folder).resolve()
            own = {b"OMPI_COMM_WORLD_RANK=%d" % rank, b"PMI_RANK=%d" % rank} & set(environment)
            if here and own and program == self.PROGRAM:
                os.kill(int(status.parent.name), number)
                return
        self.fail(f"rank {rank} does not run")

    def files(self):
        return sorted(path.name for path in self.folder.iterdir())


class CommandLine:
    """Of any driver."""

    def test_help_names_options_and_exit_codes(self):
        text = self.run_driver("--help").stdout
        for word in ["--set", "--output", "--dry-run", "--print-deck", "--describe-deck", "--deck-schema", "--version",
                     "--kokkos-", "3 deck invalid", "75 stopped"]:
            self.assertIn(word, text)

    def test_an_override_may_precede_the_deck(self):
        change = "run.name=another"
        after = self.run_driver(self.SMOKE_DECK, "--set", change, "--print-deck").stdout
        self.assertIn('name = "another"', after)
        for words in (("--set", change), ("-s", change), (f"--set={change}",)):
            self.assertEqual(self.run_driver(*words, self.SMOKE_DECK, "--print-deck").stdout, after)

    def test_overwrite_is_an_override(self):
        self.assertIn("overwrite = true", self.run_driver("--overwrite", self.SMOKE_DECK, "--print-deck").stdout)

    def test_a_deck_of_another_program_is_named(self):
        other = SMOKE / ("attention.toml" if self.NAME == "kformer-layer" else "layer.toml")
        program = "kformer-attention" if self.NAME == "kformer-layer" else "kformer-layer"
        text = self.run_driver(other, expect=3).stderr
        self.assertIn(f"error: this is a deck of {program}, not of {self.NAME}", text)
        self.assertIn(f"run: {program} {other}", text)

    def test_completion_files(self):
        for shell, words in (("bash", "--dry-run"), ("zsh", "#compdef " + self.NAME), ("fish", f"complete -c {self.NAME}")):
            self.assertIn(words, self.run_driver("--completion", shell).stdout)
        (self.folder / "complete").write_text(self.run_driver("--completion", "bash").stdout)
        script = f'. ./complete; COMP_WORDS=({self.NAME} --dry-r) COMP_CWORD=1; _{self.NAME.replace("-", "_")}; echo "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", script], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("--dry-run\n", ""))
        keys = script.replace("--dry-r", "--set output.ov").replace("COMP_CWORD=1", "COMP_CWORD=2")
        done = subprocess.run(["bash", "-c", keys], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("output.overwrite=\n", ""))
        for words, number in (("--set = output.ov", 3), ("--set =", 2)):  # as bash divides --set=output.ov
            joined = script.replace("--dry-r", words).replace("COMP_CWORD=1", f"COMP_CWORD={number}")
            done = subprocess.run(["bash", "-c", joined], cwd=self.folder, capture_output=True, text=True)
            self.assertIn("output.overwrite=", done.stdout)
        (self.folder / "with a space.toml").touch()
        script = script.replace("--dry-r", "wit")
        done = subprocess.run(["bash", "-c", script], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("with a space.toml\n", ""))

    def test_version(self):
        first, kokkos, *_ = self.run_driver("--version").stdout.splitlines()
        self.assertRegex(first, rf"^{self.NAME} \d+\.\d+\.\d+ ")
        self.assertRegex(kokkos, r"^Kokkos \d+\.\d+\.\d+ with ")

    def test_usage_errors(self):
        self.assertIn("error: no deck ", self.run_driver(expect=2).stderr)
        self.assertIn("--frobnicate", self.run_driver("--frobnicate", expect=2).stderr)
        self.assertTrue(self.run_driver("a.toml", "b.toml", expect=2).stderr.startswith("error: "))
        self.assertIn("error: --output: it must not be empty", self.run_driver(self.SMOKE_DECK, "-o", "", expect=2).stderr)

    def test_a_misspelt_option_names_the_near_one(self):
        for option, near in (("--sett=a.b=1", "--set"), ("--dryrun", "--dry-run"), ("--ouput", "--output")):
            with self.subTest(option=option):
                said = self.run_driver(self.SMOKE_DECK, option, expect=2).stderr
                self.assertIn(f"did you mean '{near}'?", said)
        self.assertNotIn("did you mean", self.run_driver("--frobnicate", expect=2).stderr)

    def test_a_log_that_cannot_be_written_loses_nothing(self):
        few = [word for key in self.FEW for word in ("--set", key)]
        with open("/dev/full", "w") as full:
            done = subprocess.run([self.PROGRAM, self.SMOKE_DECK, *few], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=full)
        self.assertEqual(done.returncode, 0)
        self.assertEqual([name for name in self.files() if name.endswith(".part")], [])
        done = subprocess.run([self.PROGRAM, "no-deck.toml"], cwd=self.folder, preexec_fn=lambda: os.closerange(0, 3))
        self.assertEqual(done.returncode, 4)

    def test_threads_that_cannot_be_had_are_refused(self):
        for options, environment in ((["--kokkos-num-threads=513"], {}), (["--kokkos-num-threads=abc"], {}),
                                     ([], {"OMP_NUM_THREADS": "1000000"}), ([], {"KOKKOS_NUM_THREADS": "-1"})):
            with self.subTest(options=options, **environment):
                done = self.run_driver(self.SMOKE_DECK, *options, expect=1, **environment)
                self.assertIn("must be an integer in [1, 512]", done.stderr)

    def test_the_page_of_decks_holds_what_the_program_says(self):
        begin, end = (f"<!-- {word} {self.NAME} --describe-deck -->" for word in ("begin", "end"))
        page, = [text for file in (SOURCE / "docs/decks").glob("*.md") if begin in (text := file.read_text())]
        self.assertEqual(page.split(begin)[1].split(end)[0].strip(), self.run_driver("--describe-deck").stdout.strip())

    def test_the_schema_is_json(self):
        schema = json.loads(self.run_driver("--deck-schema").stdout)
        self.assertIn(self.TABLE, schema["properties"])

    def test_the_schema_of_results_is_stored(self):
        self.check_stored_schema()

    @needs_xarray
    def test_results_fit_their_schema(self):
        path, _ = smoke_run(self.PROGRAM, self.SMOKE_DECK)
        self.assertEqual(check_file(path), [])
        with h5py.File(path) as file:
            at = file.attrs
            self.assertEqual(at["history"], f"{at['date']} {self.PROGRAM} {self.SMOKE_DECK}")
            self.assertTrue(at["source"].startswith(f"Kformer {at['softwareVersion']} ({at['git_sha'][:8]}"), at["source"])

    def test_a_printed_deck_is_a_deck_that_means_the_same(self):
        deck = self.SMOKE_DECK
        printed = self.run_driver(deck, "--print-deck").stdout
        (self.folder / "printed.toml").write_text(printed)
        plans = [self.run_driver(which, "--dry-run").stdout for which in ("printed.toml", deck)]
        # What memory is free changes from one moment to the next.
        self.assertEqual(*(re.sub(r"\) of [\d.]+ \w+\n", ")\n", plan) for plan in plans))
        self.assertEqual(self.run_driver("printed.toml", "--print-deck").stdout, printed)


class Output:
    """Where results must not or cannot go; known before any work, of which the limits of the machine are the first."""

    def setUp(self):
        super().setUp()
        self.SMALL = self.SMALL.replace("machine_limits = false", "machine_limits = true")
        self.deck("seq_len = 4\n")

    def test_what_exists_is_kept(self):
        kept = self.folder / "deck.h5"
        kept.write_text("mine")
        done = self.run_driver("deck.toml", expect=4)
        self.assertIn("'deck.h5' exists already; it is not a result file and is never replaced", done.stderr)
        self.assertNotIn("matrix product", done.stdout)
        self.assertEqual(kept.read_text(), "mine")
        self.assertEqual(self.files(), ["deck.h5", "deck.toml"])

    def test_results_are_replaced_on_demand(self):
        self.run_driver("deck.toml", "--set", "profile.machine_limits=false")
        before = (self.folder / "deck.h5").stat().st_ino
        self.run_driver("deck.toml", "--set", "profile.machine_limits=false", "--set", "output.overwrite=true")
        self.assertTrue((self.folder / "deck.h5").read_bytes().startswith(b"\x89HDF"))
        self.assertNotEqual((self.folder / "deck.h5").stat().st_ino, before)

    def test_what_is_no_result_file_is_never_replaced(self):
        before = (self.folder / "deck.toml").read_text()
        done = self.run_driver("deck.toml", "--set", "output.overwrite=true", "-o", "deck.toml", expect=4)
        self.assertEqual(done.stderr.splitlines()[-1], "error: 'deck.toml' exists already; it is not a result file "
                         "and is never replaced; choose another name")
        self.assertEqual((self.folder / "deck.toml").read_text(), before)

    def test_a_limit_of_file_sizes_is_a_file_error(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        done = subprocess.run([self.PROGRAM, "deck.toml"], cwd=self.folder, preexec_fn=limit, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (4, b"error: cannot write 'deck.h5.part': File too large\n"))

    def test_a_loop_of_links_is_a_file_error(self):
        (self.folder / "loop.toml").symlink_to("loop.toml")
        self.assertIn("symbolic links", self.run_driver("loop.toml", expect=4).stderr)

    def test_a_failed_start_does_not_block_the_next(self):
        run = subprocess.Popen([self.PROGRAM, "deck.toml"], cwd=self.folder, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        # Where results are created is before any case.
        while run.poll() is None and not (self.folder / "deck.h5.part").exists():
            time.sleep(0.0001)
        run.kill()
        run.wait()
        self.assertNotIn("deck.h5", self.files(), "the run was faster than this test")
        self.run_driver("deck.toml", "--set", "profile.machine_limits=false")
        self.assertIn("deck.h5", self.files())

    def test_a_place_that_is_no_folder(self):
        done = self.run_driver("deck.toml", "-o", "deck.toml/out.h5", expect=4)
        self.assertNotIn("matrix product", done.stdout)

    def test_a_name_that_is_too_long(self):
        name = "a" * 300 + ".h5"
        for options in ((), ("--overwrite",)):
            done = self.run_driver("deck.toml", "-o", name, *options, expect=4)
            self.assertEqual(done.stderr.splitlines()[-1], f"error: cannot write '{name}': File name too long")
            self.assertNotIn("matrix product", done.stdout)

    def test_a_folder_that_is_read_only(self):
        self.assertNotIn("matrix product", self.check_locked_folder("deck.toml").stdout)


class Interruption:
    """What a run leaves that does not come to its end."""

    COMMAND = ["deck.toml", "--set", "timing.min_time_s=0.02", "--set", "sweep.direction=forward", "--set"]

    def start(self, repeats=8):
        """Starts a run that takes long, and returns it when two cases are finished."""
        self.deck('seq_len = [4, 5, 6, 7, 8, 9, 10, 11]\nimpl = ["standard", "flash"]\nexecution_space = "default"\n')
        command = [self.PROGRAM, *self.COMMAND, f"timing.repeats={repeats}"]
        run = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.kill)
        finished = 0
        for line in run.stdout:
            finished += bool(re.search(r" ok$", line))
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
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            with self.subTest(number=number):
                run = self.start()
                begin = time.monotonic()
                run.send_signal(number)
                rest = run.stdout.read()
                self.assertEqual(run.wait(), 75)
                self.assertLess(time.monotonic() - begin, 10)
                part = self.check_part()
                self.assertIn(f"the finished cases are in {part}", rest)
                (self.folder / part).unlink()

    def test_the_time_limit_stops(self):
        self.deck("seq_len = [4, 5, 6, 7]\n")
        done = self.run_driver("deck.toml", "--set", "run.walltime_s=1e-3", expect=75)
        self.assertIn("walltime_s", done.stdout)

    def test_a_run_is_resumed(self):
        self.SMALL = self.SMALL.replace("machine_limits = false", "machine_limits = true")
        command = [*self.COMMAND, "timing.repeats=4", "--resume"]
        run = self.start(repeats=4)
        run.kill()
        run.wait()
        part = self.folder / self.check_part()
        before = part.read_bytes()
        with h5py.File(part) as file:
            finished = len(file["cases/case"])
            kept = {name: file[f"cases/{name}"][()] for name in ("time", "seq_len", "kernels", "status", "peak_bytes")}
            peaks = file["memory/classes/peak_bytes"][()]
            machine = file["machine/read_bandwidth"][()]
        # Another run is refused, and says what differs.
        for options, difference in ((("--set", "sweep.batch=[3]"), "'sweep.batch' is [3] and was "),
                                    (("--set", "run.threads=1", "--set", "run.seed=7"), "'run.seed' is 7 and was 1")):
            refused = self.run_driver(*command, *options, expect=4, OMP_NUM_THREADS="2")
            self.assertRegex(refused.stderr, f"cannot resume the run of '{part.name}': "
                                             rf"(kokkos_concurrency is .*|{re.escape(difference)}.*);")
        self.assertEqual(part.read_bytes(), before)
        done = self.run_driver(*command, "--set", "run.walltime_s=1000")
        self.assertIn(f"resumed: {finished} of 16 cases are from {part.name}\n", done.stdout)
        self.assertEqual(len(re.findall(" ok$", done.stdout, re.MULTILINE)), 16)
        self.assertFalse(part.exists())
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(file.attrs["complete"], 1)
            self.assertEqual(file["cases/time"].shape, (16, 4))
            self.assertTrue((file["cases/time"][()] > 0).all())
            self.assertEqual(len(set(zip(file["cases/seq_len"][()], file["cases/impl"][()]))), 16)
            for name, values in kept.items():
                np.testing.assert_array_equal(file[f"cases/{name}"][:finished], values)
            np.testing.assert_array_equal(file["memory/classes/peak_bytes"][:finished], peaks)
            self.assertEqual(len(file["memory/classes/peak_bytes"]), 16)
            np.testing.assert_array_equal(file["memory/spaces/case"][()], np.sort(file["memory/spaces/case"][()]))
            self.assertEqual(set(file["memory/spaces/case"][()]), set(range(16)))
            np.testing.assert_array_equal(file["machine/read_bandwidth"][()], machine)
            if "comparison" in file:
                self.assertEqual(list(file["comparison/seq_len"][()]), [4, 5, 6, 7, 8, 9, 10, 11])
                self.assertTrue((file["comparison/time_standard"][()] > 0).all())
            first, second = file.attrs["history"].split("\n")
            self.assertNotIn("--resume", first)
            self.assertIn("--resume", second)

    def test_a_run_with_more_cases_than_the_deck_is_refused(self):
        self.deck("seq_len = [4]\n")
        self.run_driver("deck.toml")
        (self.folder / "deck.h5").rename(self.folder / "deck.h5.part")
        with h5py.File(self.folder / "deck.h5.part", "r+") as file:
            cases = len(file["cases/case"])
            for group in (file["cases"], file["memory/classes"]):
                for name, column in list(group.items()):
                    twice, dtype = np.concatenate([column[()]] * 2), column.dtype
                    del group[name]
                    group.create_dataset(name, data=twice, dtype=dtype)
        refused = self.run_driver("deck.toml", "--resume", expect=4)
        self.assertIn(f"it has {2 * cases} cases, and the deck {cases}", refused.stderr)

    def test_a_run_of_another_build_or_machine_is_not_resumed(self):
        self.deck("seq_len = [4]\n")
        self.run_driver("deck.toml")
        part = self.folder / "deck.h5.part"
        (self.folder / "deck.h5").rename(part)
        names = ("compiler", "compiler_version", "cxx_flags", "build_type", "kokkos_version", "kokkos_backends", "device_name", "cpu_model")
        for group, name in (("/", "git_sha"), *(("provenance", name) for name in names)):
            with h5py.File(part, "r+") as file:
                was = file[group].attrs[name]
                file[group].attrs[name] = "another"
            said = self.run_driver("deck.toml", "--resume", expect=4).stderr
            self.assertRegex(said, f"cannot resume the run of .*: {name} is '.*' and was 'another'")
            with h5py.File(part, "r+") as file:
                file[group].attrs[name] = was
        self.run_driver("deck.toml", "--resume")

    def test_a_run_of_which_only_the_end_is_missing_is_resumed(self):
        self.deck("seq_len = [4, 5]\n")
        command = ["deck.toml", "--set", "profile.kernels=true", "--resume"]
        # Without an unfinished run, it begins.
        self.assertNotIn("resumed", self.run_driver(*command).stdout)
        self.assertIn("has the time in it", self.run_driver(*command, "-o", "{date}.h5", expect=3).stderr)
        self.assertIn("exists already", self.run_driver(*command, expect=4).stderr)
        (self.folder / "deck.h5").rename(self.folder / "deck.h5.part")
        with h5py.File(self.folder / "deck.h5.part", "r+") as file:
            tables = {path: {name: column[()] for name, column in file[path].items()}
                      for path in ("cases", "regions", "kernels", "memory/spaces")}
            meanings = file["cases/status"].attrs["flag_meanings"].split()
            file["cases/status"][1] = meanings.index("failed_check")
        # A case that failed its check then, failed.
        done = self.run_driver(*command, expect=5)
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(words(file["cases/status"])[1], "failed_check")
            for path, columns in tables.items():
                for name, column in columns.items():
                    if name != "status":
                        np.testing.assert_array_equal(file[f"{path}/{name}"][()], column)
        self.assertIn("failed_check", done.stdout)
