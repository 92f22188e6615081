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


if __name__ == "__main__":
    unittest.main()
