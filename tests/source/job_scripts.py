#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the job scripts of spack/jobs ask of Slurm, with stand-ins for its commands; tests/drivers/slurm.py asks Slurm itself."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["KFORMER_SOURCE"])
JOBS = sorted((SOURCE / "spack/jobs").glob("*.sbatch"))
# What each command was called with, and what srun would give a program.
COMMAND = """#!/bin/sh
echo "$(basename "$0") $*" >>"$LOG"
[ "$(basename "$0")" != srun ] || { echo "threads ${OMP_NUM_THREADS:-} cpus ${SRUN_CPUS_PER_TASK:-}" >>"$LOG"; exit "$STATUS"; }
"""


def number_of(option, job):
    """What a job script asks for, or None."""
    found = re.search(rf"^#SBATCH.* --{option}=(\d+)", job.read_text(), re.M)
    return found and int(found[1])


class JobScripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in ("module", "srun", "scontrol"):
            (self.folder / name).write_text(COMMAND)
            (self.folder / name).chmod(0o755)

    def run_job(self, job, status):
        """Exit code and log of a job whose driver ends with `status`."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        environment = dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}", LOG=str(log), STATUS=str(status),
                           SLURM_CPUS_PER_TASK="12", SLURM_JOB_ID="7")
        for name in ("OMP_NUM_THREADS", "SRUN_CPUS_PER_TASK"):
            environment.pop(name, None)
        done = subprocess.run(["bash", job, "deck.toml"], env=environment, capture_output=True, check=False)
        return done.returncode, log.read_text().splitlines()

    def test_a_driver_has_the_cpus_of_its_task(self):
        for job in JOBS:
            with self.subTest(job=job.name):
                status, log = self.run_job(job, 0)
                self.assertEqual((status, log[0]), (0, "module load kformer"))
                program = job.name.split("-")[0].removesuffix(".sbatch")
                self.assertRegex(log[1], rf"^srun .*\bkformer-{program} deck\.toml ")
                self.assertRegex(log[2], "^threads (12)? cpus 12$")
                self.assertEqual(len(log), 3, log)

    def test_only_a_training_that_was_stopped_is_requeued(self):
        for job in JOBS:
            for driver in (1, 75):
                with self.subTest(job=job.name, status=driver):
                    status, log = self.run_job(job, driver)
                    self.assertEqual(status, driver)
                    self.assertEqual("scontrol requeue 7" in log, driver == 75 and job.name.startswith("train"))

    def test_ranks_on_cpus_have_threads(self):
        job = SOURCE / "spack/jobs/train-cpu.sbatch"
        _, log = self.run_job(job, 0)
        self.assertEqual(log[2], "threads 12 cpus 12")
        self.assertGreater(number_of("ntasks", job), 1)

    def test_every_node_has_as_many_tasks(self):
        for job in JOBS:
            nodes, tasks = number_of("nodes", job), number_of("ntasks", job)
            with self.subTest(job=job.name):
                self.assertEqual(number_of("ntasks-per-node", job), tasks // nodes if nodes > 1 else None)
                self.assertEqual(tasks % nodes, 0)


class Validate(unittest.TestCase):
    """spack/jobs/validate.sh with an installation of stand-ins."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def install(self, script):
        """Programs that all do the same."""
        (self.folder / "bin").mkdir()
        (self.folder / "share/kformer/inputs").mkdir(parents=True)
        (self.folder / "share/kformer/inputs/smoke").symlink_to(SOURCE / "inputs/smoke")
        for name in ("layer", "attention", "generate", "memory", "train", "quantize", "data", "scaling"):
            program = self.folder / "bin" / f"kformer-{name}"
            program.write_text("#!/bin/sh\n" + script)
            program.chmod(0o755)

    def validate(self, path):
        environment = dict(os.environ, PATH=f"{path}:/usr/bin:/bin")
        return subprocess.run(["bash", SOURCE / "spack/jobs/validate.sh"], cwd=self.folder, env=environment, capture_output=True, text=True,
                              check=False)

    def test_without_the_module_it_says_so(self):
        done = self.validate("/nowhere")
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (1, "", "kformer-layer is not on the PATH; load the module of Kformer\n"))

    def test_a_deck_of_each_kind_runs(self):
        self.install(f'echo "$(basename "$0") $1" >>{self.folder}/log\n')
        for path in (self.folder / "bin", "bin"):
            done = self.validate(path)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            self.assertRegex(done.stdout, r"\n\d+ passed, 0 failed\n$")
        log = (self.folder / "log").read_text().splitlines()
        decks = {Path(deck) for _, deck in map(str.split, log) if deck.endswith(".toml")}
        # Such as layer_sweep.
        kinds = {re.search(r'^kind = "([a-z]+)', deck.read_text(), re.M)[1] for deck in (SOURCE / "inputs/smoke").glob("*.toml")}
        self.assertEqual({deck.stem for deck in decks}, kinds)
        self.assertTrue(all(deck.is_file() for deck in decks), decks)

    def test_what_fails_is_said(self):
        self.install('[ "$1" = --version ] || { echo "a reason"; exit 1; }\n')
        done = self.validate(self.folder / "bin")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAILED  run-layer\na reason\n", done.stdout)


if __name__ == "__main__":
    unittest.main()
