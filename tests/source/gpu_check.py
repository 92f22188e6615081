#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/gpu_check with programs that only pretend: steps, limits of time, ends, and what the files hold."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import unittest
from pathlib import Path

try:
    import h5py
except ImportError:
    h5py = None

SOURCE = Path(os.environ["KFORMER_SOURCE"])

# Boost.Test lists its suites on the error stream, cases indented.
TESTS = """#!/bin/sh
case "$1" in
  --list_content) printf 'rms_norm*\\n    shapes*\\nattention*\\n    shapes*\\nrope*\\n    shapes*\\n' >&2 ;;
  --run_test=attention) ATTENTION ;;
esac
"""
# Leaves a result file with the limits of a machine that does not exist.
DRIVER = """#!/bin/sh
for file; do :; done
exec /bin/cp "${0%/*}/driver.h5" "$file"
"""


def perf_case(name, **more):
    """Rows of Google Benchmark, in a text of the shell."""
    common = dict(run_name=f"${{block}}/{name}/manual_time", real_time=2.0, time_unit="ms", label="cuda_x", launches=5.0)
    return [dict(common, run_type="iteration", **more), dict(common, run_type="aggregate", aggregate_name="median", **more)]


PERF_ROWS = [*perf_case("forward/bf16/a", **{"GB/s": 3000.0, "% of bandwidth": 75.0}),
             *perf_case("forward/bf16/b", **{"GFLOP/s": 6e5, "% of peak": 80.0}),
             *3 * [dict(run_name="${block}/backward/f32/c/manual_time", run_type="iteration", error_occurred=True,
                        error_message="too large")]]
# Leaves what Google Benchmark would: a case that memory limits, one that arithmetic does, one that is refused.
PERF = f"""#!/bin/sh
for word; do case $word in --benchmark_out=*) file=${{word#*=}} ;; --benchmark_filter=*) block=${{word#*=^}} ;; esac; done
block=${{block%/}}
exec /bin/cat > "$file" <<EOF
{json.dumps({"benchmarks": PERF_ROWS})}
EOF
"""
SANITIZER = """#!/bin/sh
echo "$@"
shift 4
exec "$@"
"""
PYTHON_WITH_TORCH = """#!/bin/sh
[ "$1" = -c ] && exit 0
for file; do :; done
echo '{"about": {"torch": "none"}, "rows": []}' > "$file"
"""
# The kernels of warpgroups need a device of 9.0.
TUNED = """#!/bin/sh
case "$1" in
  --list_content) printf 'attention_emulated*\\n    shapes*\\nhopper_emulated*\\n    shapes*\\n' >&2 ;;
  --run_test=hopper_emulated*) HOPPER ;;
esac
"""
# A kernel that is right, and whatever the test wants.
CONTACT = """#!/bin/sh
echo 'device: none, compute capability 9.0'
echo 'right rms_norm_forward[cuda_vector] f32 19 x 64: 0.0125 ms'
CASE
"""
BLOCKS = ["attention", "attention_portable", "rms_norm", "rope", "swiglu", "cross_entropy", "linear", "linear_cross_entropy",
          "embedding", "adamw", "layer", "decode"]


def results_of_a_driver():
    """A result file with limits of a machine; nothing where h5py is missing."""
    buffer = io.BytesIO()
    if h5py is not None:
        with h5py.File(buffer, "w") as file:
            file["machine/copy_bandwidth"] = [1.5]
            file["cases/status"] = ["ok", "unsupported"]
    return buffer.getvalue()


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.binaries, self.path, self.output = (self.folder / name for name in ("binaries", "path", "results"))
        self.packed = self.folder / "results.tar.xz"
        self.binaries.mkdir()
        self.path.mkdir()
        self.write(self.binaries / "kformer_tests_cuda", TESTS.replace("ATTENTION", ":"))
        self.contact(":")
        for name in ("attention", "layer"):
            self.write(self.binaries / f"kformer-{name}", DRIVER)
        (self.binaries / "driver.h5").write_bytes(results_of_a_driver())
        for name in ("attention", "blocks"):
            self.write(self.binaries / f"kformer-perf-{name}", PERF)
        self.write(self.path / "python3", "#!/bin/sh\nexit 1\n")

    @staticmethod
    def write(path, text):
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def attention_suite(self, does):
        self.write(self.binaries / "kformer_tests_cuda", TESTS.replace("ATTENTION", does))

    def contact(self, does):
        self.write(self.binaries / "kformer_first_contact", CONTACT.replace("CASE", does))

    def check(self, *options, budget=600, python_path=""):
        """Runs it; the end, what it wrote, and the steps by name."""
        return self.read(subprocess.run(**self.call(*options, budget=budget, python_path=python_path), capture_output=True,
                                        timeout=120, check=False))

    def call(self, *options, budget=600, python_path=""):
        """What a call of it has, for subprocess."""
        command = [sys.executable, "-B", SOURCE / "scripts/gpu_check", "--binaries", self.binaries, "--output", self.output,
                   "--budget", str(budget), *options]
        return {"args": command, "text": True, "env": dict(os.environ, PATH=str(self.path), PYTHONPATH=str(python_path))}

    def read(self, done):
        """The end, what it wrote, and the steps by name."""
        self.assertTrue((self.output / "gpu_check.json").is_file(), done.stderr)
        result = json.loads((self.output / "gpu_check.json").read_text(encoding="utf-8"))
        return done, result, {step["name"]: step for step in result["steps"]}

    def status(self, steps):
        return {name: step["status"] for name, step in steps.items()}

    def test_everything_passes(self):
        self.write(self.binaries / "kformer_tests_tuned", TESTS.replace("ATTENTION", ":"))
        self.write(self.path / "compute-sanitizer", SANITIZER)
        self.write(self.path / "python3", PYTHON_WITH_TORCH)
        done, result, steps = self.check()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(result["ok"])
        self.assertEqual(list(steps), ["first_contact", "first_contact/memcheck", "first_contact/racecheck",
                                       "first_contact/synccheck", "list of tuned tests", "tuned/rms_norm", "tuned/attention", "tuned/rope",
                                       "sanitizer/memcheck", "sanitizer/racecheck", "sanitizer/synccheck",
                                       "list of tests", "tests/rms_norm", "tests/attention", "tests/rope",
                                       "sanitizer/attention", "sanitizer/layer",
                                       "benchmark/attention", "benchmark/decode", "benchmark/layer",
                                       *(f"blocks/{block}" for block in BLOCKS), "peer/attention", "peer/blocks"])
        self.assertEqual(set(self.status(steps).values()), {"passed"})
        self.assertEqual({peer: found["about"] for peer, found in result["pytorch"].items()},
                         {"attention": {"torch": "none"}, "blocks": {"torch": "none"}})
        self.assertEqual(set(result["result_files"]), {"attention", "decode", "layer"})
        self.assertEqual(steps["first_contact/racecheck"]["command"][1:3], ["--tool", "racecheck"])
        self.assertEqual(steps["first_contact/racecheck"]["command"][-2:], ["--first", "--no-times"])
        log = (self.output / steps["sanitizer/layer"]["log"]).read_text(encoding="utf-8")
        self.assertIn("--tool memcheck --error-exitcode 9", log)
        self.assertIn('sweep.execution_space="cuda"', steps["benchmark/layer"]["command"])
        # The shapes of both are the same.
        shapes = result["shapes"]
        self.assertIn(f"sweep.seq_len={json.dumps(shapes['seq_len'])}", steps["benchmark/attention"]["command"])
        self.assertIn(json.dumps(shapes), steps["peer/attention"]["command"])
        peer = steps["peer/blocks"]["command"]
        self.assertEqual(Path(peer[2]).name, "kformer-perf-blocks")
        self.assertEqual(peer[peer.index("--device") + 1], "cuda")
        self.assertLess(float(peer[peer.index("--seconds") + 1]), 150)

    def test_every_block_has_its_share_of_the_limit(self):
        done, result, _ = self.check()
        self.assertEqual(list(result["blocks"]), BLOCKS)
        memory, arithmetic, refused = result["blocks"]["rms_norm"]
        self.assertEqual(memory, {"name": "rms_norm/forward/bf16/a", "kernel": "cuda_x", "seconds": 2e-3, "bandwidth": 3e12,
                                  "launches": 5, "limit": "bandwidth", "share_of_limit": 0.75, "limit_rate": 4e12})
        self.assertEqual((arithmetic["limit"], arithmetic["flop_rate"]), ("rate of instructions", 6e14))
        self.assertAlmostEqual(arithmetic["limit_rate"] / 7.5e14, 1)
        self.assertEqual(refused, {"name": "rms_norm/backward/f32/c", "refused": "too large"})
        self.assertRegex(done.stdout, r"rms_norm/forward/bf16/a +cuda_x +2\.0000 ms +75\.0 % of bandwidth\n")
        self.assertRegex(done.stdout, r"rms_norm/backward/f32/c +too large\n")

    def test_a_build_without_perf(self):
        for name in ("attention", "blocks"):
            (self.binaries / f"kformer-perf-{name}").unlink()
        self.write(self.path / "python3", PYTHON_WITH_TORCH)
        done, result, steps = self.check()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("blocks", result)
        for name in ("blocks/rms_norm", "peer/blocks"):
            self.assertEqual((steps[name]["status"], steps[name]["why"]), ("not run", "kformer-perf-blocks was not built"))
        self.assertEqual(list(result["pytorch"]), ["attention"])

    def test_a_block_that_ends_early_takes_no_other_with_it(self):
        self.write(self.binaries / "kformer-perf-blocks",
                   '#!/bin/sh\ncase "$*" in *=^rope*) printf "{" > blocks_rope.json; echo lost; exit 1 ;; esac\n'
                   + PERF.removeprefix("#!/bin/sh\n"))
        done, result, steps = self.check()
        self.assertEqual(done.returncode, 1)
        self.assertEqual((steps["blocks/rope"]["status"], steps["blocks/rope"]["why"]), ("failed", "lost"))
        self.assertEqual(list(result["blocks"]), [block for block in BLOCKS if block != "rope"])

    def test_beside_pytorch_our_program_finds_its_libraries(self):
        self.write(self.binaries / "kformer-perf-blocks", PERF.replace("#!/bin/sh\n", """#!/bin/sh
[ "$1" = --serve ] && read request && echo "{\\"ours\\": \\"$LD_LIBRARY_PATH\\"}" && exit
"""))
        ask = (f'import os, sys; sys.path.insert(0, "{SOURCE}/perf/peers"); import turns; '
               'print(turns.Ours(sys.argv[1], 1).ask("about")["ours"], "|", os.environ.get("LD_LIBRARY_PATH", ""))')
        self.write(self.path / "python3", f"""#!/bin/sh
case "$1" in *blocks.py) exec '{sys.executable}' -B -c '{ask}' "$2" ;; esac
""")
        _, _, steps = self.check()
        log = (self.output / steps["peer/blocks"]["log"]).read_text(encoding="utf-8")
        self.assertEqual(steps["peer/blocks"]["status"], "passed", log)
        ours, of_python = (paths.strip().split(":") for paths in log.split("|"))
        self.assertIn(str(self.binaries.resolve() / "lib"), ours)
        self.assertNotIn(str(self.binaries.resolve() / "lib"), of_python)

    def test_every_cublas_of_python_is_found(self):
        folders = [self.folder / place for place in ("with 12/nvidia/cublas/lib", "with [13]/nvidia/cu13/lib")]
        for version, folder in zip((12, 13), folders):
            folder.mkdir(parents=True)
            (folder / f"libcublasLt.so.{version}").touch()
        packages = " ".join(f"'{folder.parents[2]}'" for folder in folders)
        self.write(self.path / "python3", f"""#!/bin/sh
case "$2" in *sys.path*) printf '%s\\n' {packages} ;; *) exit 1 ;; esac
""")
        self.attention_suite('echo "$LD_LIBRARY_PATH"')
        _, _, steps = self.check()
        paths = (self.output / steps["tests/attention"]["log"]).read_text(encoding="utf-8").strip().split(":")
        self.assertEqual(paths[0], str(self.binaries.resolve() / "lib"))
        self.assertLessEqual({str(folder) for folder in folders}, set(paths))

    def test_pytorch_that_does_not_load(self):
        self.write(self.path / "python3", "#!/bin/sh\n/bin/sleep 100 & wait\n")
        begin = time.monotonic()
        done, result, steps = self.check(budget=20)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(steps["peer/attention"]["status"], "not run")
        self.assertRegex(steps["peer/attention"]["why"], r"import torch took more than \d+ s")
        self.assertNotIn("pytorch", result)

    @unittest.skipIf(h5py is None, "no h5py")
    def test_figures_come_from_the_drivers(self):
        _, result, _ = self.check()
        self.assertEqual(result["figures"]["decode"]["machine"], {"copy_bandwidth": [1.5]})
        self.assertEqual(result["figures"]["layer"]["cases"], {"status": ["ok", "unsupported"]})
        with h5py.File(self.output / "gpu_check.h5", "r") as file:
            self.assertEqual(file["attention/machine/copy_bandwidth"][0], 1.5)
            self.assertEqual(json.loads(file["report"][()]), result)
            rows = [row for rows in result["blocks"].values() for row in rows]
            self.assertEqual([name.decode() for name in file["blocks/name"][()]], [row["name"] for row in rows])
            self.assertEqual(file["blocks/share_of_limit"][()].tolist()[:2], [0.75, 0.8])
            self.assertEqual([refused != b"" for refused in file["blocks/refused"][()]],
                             [seconds != seconds for seconds in file["blocks/seconds"][()]])
            self.assertEqual(file["blocks/bandwidth"].attrs["units"], "byte/s")

    def test_without_h5py_there_is_no_hdf5(self):
        hidden = self.folder / "hidden"
        hidden.mkdir()
        (hidden / "h5py.py").write_text("raise ImportError('hidden')\n", encoding="utf-8")
        done, result, _ = self.check(python_path=hidden)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("no h5py", result["hdf5"])
        self.assertNotIn("figures", result)
        self.assertFalse((self.output / "gpu_check.h5").exists())

    def test_what_is_not_installed_is_not_run(self):
        done, result, steps = self.check()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(steps["sanitizer/layer"]["status"], "not run")
        self.assertIn("not on the PATH", steps["sanitizer/layer"]["why"])
        self.assertEqual(steps["peer/attention"]["status"], "not run")
        self.assertNotIn("pytorch", result)
        self.assertIsNone(result["device"])

    def test_a_failing_suite_is_an_end_of_1(self):
        self.attention_suite("echo '2 failures'; exit 201")
        done, result, steps = self.check()
        self.assertEqual(done.returncode, 1)
        self.assertFalse(result["ok"])
        self.assertEqual((steps["tests/attention"]["status"], steps["tests/attention"]["exit"]), ("failed", 201))
        self.assertEqual(steps["tests/attention"]["why"], "2 failures")
        self.assertEqual(steps["tests/rope"]["status"], "passed")
        self.assertEqual(steps["benchmark/layer"]["status"], "passed")

    def test_a_device_without_warpgroups_skips_their_suite(self):
        self.write(self.path / "compute-sanitizer", SANITIZER)
        skips = "echo skipped: it needs 9.0; echo; echo No errors detected; exit 77"
        for does, status, sanitized in ((skips, "skipped", "attention_emulated/nan_stays"),
                                        (":", "passed", "hopper_emulated/what_is_hidden")):
            with self.subTest(status):
                shutil.rmtree(self.output, ignore_errors=True)
                self.packed.unlink(missing_ok=True)
                self.write(self.binaries / "kformer_tests_tuned", TUNED.replace("HOPPER", does))
                done, result, steps = self.check()
                self.assertEqual((done.returncode, result["ok"]), (0, True), done.stdout + done.stderr)
                self.assertEqual(self.status(steps)["tuned/hopper_emulated"], status)
                self.assertEqual(steps["tuned/hopper_emulated"]["why"], "skipped: it needs 9.0" if does == skips else "")
                self.assertIn(f"--run_test={sanitized}*", steps["sanitizer/racecheck"]["command"])

    def test_a_failing_benchmark_has_no_figures(self):
        self.write(self.binaries / "kformer-layer", "#!/bin/sh\necho out of memory\nexit 6\n")
        done, result, steps = self.check()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(steps["benchmark/layer"]["why"], "out of memory")
        self.assertNotIn("layer", result["result_files"])
        self.assertNotIn("layer", result.get("figures", {}))

    def test_a_sanitizer_that_finds_something_fails(self):
        self.write(self.path / "compute-sanitizer", "#!/bin/sh\necho ERROR SUMMARY: 1 error\nexit 9\n")
        done, _, steps = self.check()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(steps["sanitizer/attention"]["why"], "ERROR SUMMARY: 1 error")

    def test_after_each_step_the_steps_so_far_are_written(self):
        self.write(self.binaries / "kformer-layer", "#!/bin/sh\n/bin/cat gpu_check.json > seen\n")
        self.check()
        seen = json.loads((self.output / "seen").read_text(encoding="utf-8"))
        self.assertTrue(seen["unfinished"])
        self.assertEqual(self.status({step["name"]: step for step in seen["steps"]})["benchmark/decode"], "passed")

    def test_a_step_that_hangs_is_ended_with_what_it_started(self):
        self.attention_suite("/bin/sleep 100 & wait")
        begin = time.monotonic()
        done, _, steps = self.check(budget=16)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(steps["tests/attention"]["status"], "timed out")
        self.assertEqual(steps["tests/rope"]["status"], "passed")

    def test_a_driver_over_its_limit_leaves_its_finished_cases(self):
        # It ends in order when it is asked to, and what it started with it.
        self.write(self.binaries / "kformer-layer", """#!/bin/sh
for file; do :; done
trap '/bin/cp "${0%/*}/driver.h5" "$file.part"; exit 75' TERM
/bin/sleep 100 & wait
""")
        begin = time.monotonic()
        done, result, steps = self.check(budget=12)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(steps["benchmark/layer"]["status"], "timed out")
        self.assertEqual((result["result_files"]["layer"], result["unfinished_files"]), ("layer.h5.part", ["layer"]))
        self.assertEqual(result["result_files"]["decode"], "decode.h5")
        if h5py is not None:
            self.assertEqual(result["figures"]["layer"]["cases"], {"status": ["ok", "unsupported"]})

    def test_a_signal_ends_the_step_and_the_results_are_in_the_archive(self):
        begun = self.folder / "begun"
        self.attention_suite(f"echo $$ > '{begun}'; /bin/sleep 100 & wait")
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number=number):
                run = subprocess.Popen(**self.call(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.addCleanup(run.kill)
                while run.poll() is None and not begun.exists():
                    time.sleep(0.01)
                begin = time.monotonic()
                run.send_signal(number)
                output, errors = run.communicate(timeout=60)
                done, result, steps = self.read(subprocess.CompletedProcess(run.args, run.returncode, output, errors))
                self.assertLess(time.monotonic() - begin, 30)  # the step has 60 seconds
                self.assertEqual(done.returncode, 128 + number, output + errors)
                self.assertEqual(steps["tests/rms_norm"]["status"], "passed")
                why = f"stopped by {number.name}"
                for name, status in (("tests/attention", "stopped"), ("tests/rope", "not run"), ("benchmark/layer", "not run"),
                                     ("peers", "not run")):
                    self.assertEqual((steps[name]["status"], steps[name]["why"]), (status, why), name)
                self.assertFalse(result["ok"])
                self.assertNotIn("unfinished", result)
                with self.assertRaises(ProcessLookupError):
                    os.kill(int(begun.read_text(encoding="utf-8")), 0)
                with tarfile.open(self.packed) as packed:
                    text = packed.extractfile("results/gpu_check.json").read()
                    self.assertIn("results/tests_attention.log", packed.getnames())
                self.assertEqual(text, (self.output / "gpu_check.json").read_bytes())
                shutil.rmtree(self.output)
                self.packed.unlink()
                begun.unlink()

    def test_a_tool_that_hangs_takes_no_results_with_it(self):
        self.write(self.path / "nvidia-smi", "#!/bin/sh\nexec /bin/sleep 100\n")
        begin = time.monotonic()
        done, result, _ = self.check(budget=15)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIsNone(result["device"])
        self.assertEqual(set(result["result_files"]), {"attention", "decode", "layer"})

    def test_beyond_the_budget_nothing_runs(self):
        done, result, steps = self.check(budget=0.5)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.status(steps), {"first_contact": "not run", "figures": "not run", "peers": "not run"})
        self.assertEqual(result["result_files"], {})

    def test_without_a_device_nothing_is_measured(self):
        self.write(self.binaries / "kformer_tests_cuda", "#!/bin/sh\necho skipped: there is no device >&2\nexit 77\n")
        done, result, steps = self.check()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(list(steps), ["first_contact", "tuned", "list of tests", "peers"])
        self.assertEqual(steps["list of tests"]["why"], "skipped: there is no device")
        self.assertEqual(steps["peers"]["status"], "not run")
        self.assertFalse({"pytorch", "blocks", "layer"} & (set(result) | set(result["result_files"])))

    def test_the_first_contact_says_what_is_right_and_what_is_wrong(self):
        self.contact("echo 'WRONG rope_forward[cuda_vector] f16 half_split: q: 3 of 8 elements out of tolerance: much'\n"
                     "echo '  [7] got 1, expected 2'\necho 'first contact: 1 right, 1 wrong'\nexit 1")
        done, result, steps = self.check()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(steps["first_contact"]["why"], "first contact: 1 right, 1 wrong")
        self.assertEqual(result["first_contact"], [
            {"case": "rms_norm_forward[cuda_vector] f32 19 x 64", "right": True, "seconds": 1.25e-5},
            {"case": "rope_forward[cuda_vector] f16 half_split", "right": False,
             "why": "q: 3 of 8 elements out of tolerance: much"}])
        self.assertEqual(steps["benchmark/layer"]["status"], "passed")  # the others go on

    def test_without_a_first_contact_nothing_else_is_tried(self):
        self.write(self.binaries / "kformer_first_contact", "#!/bin/sh\necho 'skipped: there is no CUDA driver here'\nexit 77\n")
        done, _, steps = self.check()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.status(steps), {"first_contact": "failed", "figures": "not run", "peers": "not run"})
        self.assertEqual(steps["first_contact"]["why"], "skipped: there is no CUDA driver here")

    def test_stages_by_themselves(self):
        self.write(self.path / "python3", PYTHON_WITH_TORCH)
        steps_of = {}
        for stage in ("first_contact", "figures", "peers"):
            done, _, steps = self.check("--stage", stage)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            steps_of[stage] = list(steps)
            shutil.rmtree(self.output)
            self.packed.unlink()
        self.assertEqual(steps_of["first_contact"], ["first_contact"])
        self.assertEqual(steps_of["peers"], ["peer/attention", "peer/blocks"])
        self.assertEqual((steps_of["figures"][0], steps_of["figures"][-1]), ("tuned", "blocks/decode"))

    def test_all_results_are_in_one_archive(self):
        self.attention_suite("exit 201")
        self.check()
        with tarfile.open(self.packed) as packed:
            there = {entry.name: entry.size for entry in packed if entry.isfile()}
        files = [path for path in self.output.rglob("*") if path.is_file()]
        self.assertEqual(there, {f"results/{path.relative_to(self.output)}": path.stat().st_size for path in files})
        self.assertLess({"results/gpu_check.json", "results/first_contact.log"}, set(there))

    def a_build(self, program):
        """A build folder whose programs are all this one."""
        build = self.folder / "build"
        for name in ("tests/kformer_tests_cuda", "drivers/kformer-attention", "drivers/kformer-layer",
                     "tests/kformer_first_contact", "tests/kformer_tests_tuned", "perf/kformer-perf-attention",
                     "perf/kformer-perf-blocks"):
            (build / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(program, build / name)
        return build

    def pack(self, name):
        """Packs the build; the end, and the archive."""
        file = self.folder / name
        command = [sys.executable, "-B", SOURCE / "scripts/gpu_check", "--pack", self.folder / "build", file]
        return subprocess.run(command, capture_output=True, text=True, check=False), file

    def test_an_archive_has_the_same_bytes_each_time_and_runs_where_it_is_unpacked(self):
        self.write(self.binaries / "none", "#!/bin/sh\necho 'skipped: there is no CUDA driver here'\nexit 77\n")
        build = self.a_build(self.binaries / "none")
        done, first = self.pack("first.tar.xz")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        os.utime(build / "tests/kformer_first_contact", (1, 1))
        (build / "tests/kformer_tests_cuda").chmod(0o700)
        _, second = self.pack("second.tar.xz")
        self.assertEqual(first.read_bytes(), second.read_bytes())
        with tarfile.open(first) as packed:
            names = packed.getnames()
            self.assertEqual(names, sorted(names))
            self.assertEqual({(entry.mtime, entry.uid, entry.uname) for entry in packed}, {(0, 0, "root")})
        # The line that it prints.
        there = self.folder / "there"
        there.mkdir()
        shutil.copy2(first, there)
        line = re.search(r"there, (.*)$", done.stdout, re.MULTILINE)[1]
        ran = subprocess.run(["sh", "-c", line], cwd=there, capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("first_contact (", ran.stdout)
        self.assertIn("skipped: there is no CUDA driver here", ran.stdout)
        self.assertTrue((there / "results.tar.xz").is_file())

    @unittest.skipIf(shutil.which("cc") is None, "no C compiler")
    def test_what_an_archive_lacks_is_named(self):
        for name in ("beside", "cuda"):  # the second belongs to the machine
            (self.folder / f"{name}.c").write_text("int f(void) { return 0; }\n", encoding="utf-8")
            subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,lib{name}.so.1", self.folder / f"{name}.c", "-o",
                            self.folder / f"lib{name}.so"], check=True)
        (self.folder / "main.c").write_text("int f(void); int main(void) { return f(); }\n", encoding="utf-8")
        for name, code in (("beside", 1), ("cuda", 0)):
            with self.subTest(name):
                program = self.folder / f"program_{name}"
                subprocess.run(["cc", self.folder / "main.c", f"-L{self.folder}", f"-l{name}", "-o", program], check=True)
                shutil.rmtree(self.folder / "build", ignore_errors=True)
                self.a_build(program)
                done, _ = self.pack(f"{name}.tar.xz")
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                self.assertEqual("kformer-layer needs libbeside.so.1" in done.stderr, code == 1, done.stderr)

    def test_collected_programs_have_their_libraries(self):
        build = self.a_build(shutil.which("cmake") or "/bin/sh")
        target = self.folder / "carried"
        command = [sys.executable, "-B", SOURCE / "scripts/gpu_check", "--collect", build, target]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        names = {path.name for path in target.iterdir()}
        self.assertLessEqual({"gpu_check", "gpu_attention.py", "attention.toml", "decode.toml", "layer.toml",
                              "small_layer.toml", "small_attention.toml", "kformer_tests_cuda", "kformer-layer",
                              "kformer-perf-blocks", "kformer-perf-attention", "blocks.py", "torch_blocks.py",
                              "turns.py", "machine.py"}, names)
        included = {tomllib.loads(deck.read_text(encoding="utf-8")).get("include") for deck in target.glob("*.toml")} - {None}
        self.assertEqual(included, {"base.toml"} & names)
        self.assertNotIn("left out", done.stdout)
        self.assertFalse([path for path in (target / "lib").iterdir() if path.name.startswith(("libc.so", "libm.so"))])
        # cmake loads libcurl and libcrypto, whose names begin like that of the C library.
        loaded = subprocess.run(["ldd", build / "tests/kformer_tests_cuda"], capture_output=True, text=True, check=False).stdout
        for name in ("libcurl", "libcrypto"):
            self.assertEqual(name in loaded, any(path.name.startswith(name) for path in (target / "lib").iterdir()))
        # The programs of perf/ may be absent, the others may not.
        (build / "perf/kformer-perf-blocks").unlink()
        shutil.rmtree(target)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("left out: the build has no perf/kformer-perf-blocks", done.stdout)
        self.assertFalse((target / "kformer-perf-blocks").exists())
        (build / "tests/kformer_tests_cuda").unlink()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("tests/kformer_tests_cuda", done.stderr)

    def test_tests_find_what_they_read_of_the_sources(self):
        build, read = self.folder / "build", set()
        for name in ("tests/kformer_tests_cuda", "drivers/kformer-attention", "drivers/kformer-layer"):
            (build / name).parent.mkdir(parents=True, exist_ok=True)
            self.write(build / name, '#!/bin/sh\n[ "$1" = --list_content ] && echo "files*" >&2 || echo "$KFORMER_SOURCE"\n')
        command = [sys.executable, "-B", SOURCE / "scripts/gpu_check", "--collect", build, self.binaries]
        subprocess.run(command, capture_output=True, check=True)
        _, _, steps = self.check()
        sources = Path((self.output / steps["tests/files"]["log"]).read_text(encoding="utf-8").strip())
        self.assertEqual(sources.parent, self.binaries.resolve())
        for path in [*SOURCE.glob("tests/*/*.cpp"), *SOURCE.glob("tests/*/*.hpp")]:
            read |= set(re.findall(r'test_data\("(\w+)', path.read_text(encoding="utf-8")))
        self.assertLess({"adapter_case", "layer_case", "nf4_case"}, read)
        carried = {path.relative_to(sources).as_posix() for path in sources.rglob("*")}
        self.assertLess({"inputs/tiny-llama/model.safetensors", *(f"tests/data/{name}" for name in read)}, carried)
        self.assertLess(sum(path.stat().st_size for path in sources.rglob("*")), 4e6)

    def test_results_are_not_overwritten(self):
        self.check()
        before = (self.output / "gpu_check.json").read_bytes()
        packed = self.packed.read_bytes()
        command = [sys.executable, "-B", SOURCE / "scripts/gpu_check", "--binaries", self.binaries, "--output", self.output]
        self.assertEqual(subprocess.run(command, capture_output=True, check=False).returncode, 2)
        self.assertEqual((self.output / "gpu_check.json").read_bytes(), before)
        shutil.rmtree(self.output)  # the archive alone keeps them, too
        self.assertEqual(subprocess.run(command, capture_output=True, check=False).returncode, 2)
        self.assertEqual(self.packed.read_bytes(), packed)


if __name__ == "__main__":
    unittest.main()
