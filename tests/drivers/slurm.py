# SPDX-License-Identifier: MIT
"""spack/jobs/train.sbatch under a Slurm that this test starts: a training that is signalled is requeued and ends with the bits of one
that is not.

ctest runs this with the program in KFORMER_TRAIN, mpiexec in KFORMER_MPIEXEC and the sources in KFORMER_SOURCE. Slurm's daemons
want root.
"""

import contextlib
import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from driver_case import SOURCE, needs_h5py
from train_case import TrainTest

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "setpriv")
MISSING = [name for name in NEEDED if not shutil.which(name)]
JOB = SOURCE / "spack/jobs/train.sbatch"

# One node that says it has what the job script asks for. A requeued job waits until its last credential has expired, here for the
# shortest time that Slurm takes, and until the scheduler looks again.
CONFIGURATION = """ClusterName=kformer
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=64 Gres=gpu:2
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

# The program of a rank, which says who it is.
RANK = """#!/bin/sh
echo $$ >rank-$SLURM_PROCID
exec {program} "$@"
"""

KEYS = """micro_batch = 2
sequences = 16
[run]
threads = 1
[optimizer]
lr = 1e-3
[schedule]
kind = "cosine"
steps = 60
[checkpoint]
folder = "checkpoints"
every_steps = 10
[parallel]
order = "fixed"
[output]
model = "model"
overwrite = true
"""


def free_ports(count):
    """Not of those that the system gives to other programs meanwhile (Linux: 32768 and above)."""
    with contextlib.ExitStack() as sockets:
        ports = []
        while len(ports) < count:
            with contextlib.suppress(OSError):
                server = sockets.enter_context(socket.create_server(("127.0.0.1", random.randrange(20000, 32768))))
                ports.append(server.getsockname()[1])
        return ports


def has_signal(process):
    """Whether SIGUSR1 waits for a process that stands still."""
    pending = re.search(r"^ShdPnd:\s*(\w+)$", Path(f"/proc/{process}/status").read_text(), re.M)[1]
    return bool(int(pending, 16) & 1 << signal.SIGUSR1 - 1)


@unittest.skipIf(MISSING, f"no Slurm on this machine: {', '.join(MISSING)}")
@unittest.skipUnless(os.geteuid() == 0, "Slurm's daemons want root")
@needs_h5py
class Slurm(TrainTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # A short name: paths of sockets have at most 107 bytes.
        scratch = tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp")
        cls.addClassCleanup(scratch.cleanup)
        cls.slurm = Path(scratch.name)
        # munged wants a folder that all may enter; `module` of the job script is a program that does nothing.
        cls.slurm.chmod(0o755)
        for name in ("state", "spool", "bin"):
            (cls.slurm / name).mkdir()
        (cls.slurm / "bin/kformer-train").write_text(RANK.format(program=cls.PROGRAM))
        (cls.slurm / "bin/kformer-train").chmod(0o755)
        (cls.slurm / "bin/module").symlink_to(shutil.which("true"))
        host = socket.gethostname().split(".")[0]
        (cls.slurm / "slurm.conf").write_text(CONFIGURATION.format(folder=cls.slurm, host=host, ports=free_ports(2)))
        (cls.slurm / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        (cls.slurm / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
        key = cls.slurm / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        cls.environment = dict(os.environ, SLURM_CONF=str(cls.slurm / "slurm.conf"), PATH=f"{cls.slurm}/bin:{os.environ['PATH']}")
        cls.daemon("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={cls.slurm}/munge.socket",
                   f"--pid-file={cls.slurm}/munged.pid", f"--seed-file={cls.slurm}/munge.seed", f"--log-file={cls.slurm}/munge.log")
        cls.wait_for(lambda: (cls.slurm / "munge.socket").exists(), "munged")
        cls.daemon("slurmctld", "-D")
        cls.daemon("slurmd", "-D", "-N", host)
        cls.wait_for(lambda: "State=IDLE" in cls.ask("scontrol", "show", "node", host, check=False), "slurmd")

        cls.why_one_rank = None
        if "KFORMER_MPIEXEC" not in os.environ:
            cls.why_one_rank = "the build has no MPI"
        elif "pmix" not in cls.ask("srun", "--mpi=list"):
            cls.why_one_rank = "this Slurm has no PMIx"

    @classmethod
    def daemon(cls, name, *arguments):
        """Starts a program that ends with the tests, even if these are killed."""
        with open(cls.slurm / f"{name}.out", "w") as log:
            run = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", name, *arguments], env=cls.environment, stdout=log,
                                   stderr=subprocess.STDOUT)

        def end():
            run.terminate()
            try:
                run.wait(30)
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()

        cls.addClassCleanup(end)

    @classmethod
    def wait_for(cls, condition, what, pause=0.1, seconds=120):
        end = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > end:
                logs = "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in sorted(cls.slurm.glob("*.out")))
                raise AssertionError(f"{what}: nothing within {seconds} s\n{logs}")
            time.sleep(pause)
        return found

    @classmethod
    def ask(cls, *command, check=True, cwd=None, **variables):
        return subprocess.run(command, env=cls.environment | variables, cwd=cwd, check=check, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True).stdout

    def uninterrupted(self):
        """Losses, norms and the model of one rank that nothing stops."""
        self.deck(KEYS)
        self.run_driver("deck.toml")
        return self.results(".")

    def results(self, folder):
        columns = [self.steps(column, f"{folder}/deck.h5").tolist() for column in ("loss", "gradient_norm")]
        return columns, (self.folder / folder / "model/model.safetensors").read_bytes()

    def interrupt(self, folder, ranks, **variables):
        """Submits a job, signals it after its first checkpoint, as --signal does before the time limit, and waits until Slurm has
        requeued it."""
        folder = self.folder / folder
        folder.mkdir()
        (folder / "deck.toml").write_text(self.SMALL + KEYS.replace("[parallel]\n", f"[parallel]\ndata = {ranks}\n"))
        number = self.ask("sbatch", "--parsable", f"--ntasks={ranks}", JOB, "deck.toml", cwd=folder, **variables).strip()
        self.assertRegex(number, r"^\d+$")
        self.addCleanup(self.cancel, number)
        self.wait_for(lambda: any(folder.glob("checkpoints/step-*.safetensors")), f"checkpoint of job {number}", 0.01)
        # The ranks stand still until they have the signal, so that the training is not over before.
        processes = [int((folder / f"rank-{rank}").read_text()) for rank in range(ranks)]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        self.ask("scancel", "--signal=USR1", number)
        self.wait_for(lambda: all(map(has_signal, processes)), f"signal to job {number}")
        for process in processes:
            os.kill(process, signal.SIGCONT)
        self.wait_for(lambda: self.restarts(number) or self.has_ended(number), f"requeue of job {number}")
        self.assertEqual(self.restarts(number), 1, (folder / f"slurm-{number}.out").read_text())
        return number

    def job(self, number):
        return dict(re.findall(r"(\w+)=(\S*)", self.ask("scontrol", "show", "job", number)))

    def restarts(self, number):
        return int(self.job(number)["Restarts"])

    def has_ended(self, number):
        return self.job(number)["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL")

    def cancel(self, number):
        self.ask("scancel", number, check=False)
        self.wait_for(lambda: self.has_ended(number), f"end of job {number}")

    def check_end(self, folder, number, expected):
        self.wait_for(lambda: self.has_ended(number), f"end of job {number}")
        job = self.job(number)
        log = (self.folder / folder / f"slurm-{number}.out").read_text()
        self.assertEqual((job["JobState"], job["ExitCode"], job["Restarts"]), ("COMPLETED", "0:0", "1"), log)
        # The log has both starts of the job.
        self.assertEqual(log.count("kformer-train "), 2, log)
        self.assertEqual(self.results(folder), expected)

    def test_jobs_that_are_signalled_are_requeued_and_continue(self):
        """A job of one rank and one of two ranks, which srun starts. One waits to be started again while the other is signalled."""
        expected = self.uninterrupted()
        jobs = {"one": self.interrupt("one", 1)}
        if self.why_one_rank is None:
            jobs["two"] = self.interrupt("two", 2, SLURM_MPI_TYPE="pmix")
        for folder, number in jobs.items():
            self.check_end(folder, number, expected)
        with self.subTest("two ranks"):
            if self.why_one_rank:
                self.skipTest(self.why_one_rank)


if __name__ == "__main__":
    unittest.main()
