# SPDX-License-Identifier: MIT
"""spack/jobs/train.sbatch under a Slurm that this test starts: a training that is signalled is requeued and ends with the bits of one
that is not.

ctest runs this with the program in KFORMER_TRAIN, mpiexec in KFORMER_MPIEXEC and the sources in KFORMER_SOURCE. Slurm's daemons
want root.
"""

import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from driver_case import SOURCE, needs_h5py
from train_case import TrainTest, set_options

MISSING = [name for name in ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol") if not shutil.which(name)]
JOB = SOURCE / "spack/jobs/train.sbatch"

# One node that says it has what the job script asks for. A requeued job waits until its last credential has expired.
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
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=64 Gres=gpu:1
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

KEYS = """micro_batch = 2
sequences = 16
[run]
threads = 1
[optimizer]
lr = 1e-3
[schedule]
kind = "cosine"
steps = 400
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
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


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
        (cls.slurm / "bin/kformer-train").symlink_to(cls.PROGRAM)
        (cls.slurm / "bin/module").symlink_to(shutil.which("true"))
        host = socket.gethostname().split(".")[0]
        (cls.slurm / "slurm.conf").write_text(CONFIGURATION.format(folder=cls.slurm, host=host, ports=free_ports(2)))
        (cls.slurm / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        (cls.slurm / "gres.conf").write_text("Name=gpu File=/dev/null\n")
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

    @classmethod
    def daemon(cls, name, *arguments):
        with open(cls.slurm / f"{name}.out", "w") as log:
            run = subprocess.Popen([name, *arguments], env=cls.environment, stdout=log, stderr=subprocess.STDOUT)
        cls.addClassCleanup(run.wait)
        cls.addClassCleanup(run.terminate)

    @classmethod
    def wait_for(cls, condition, what, seconds=60):
        end = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > end:
                logs = "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in sorted(cls.slurm.glob("*.out")))
                raise AssertionError(f"{what}: nothing within {seconds} s\n{logs}")
            time.sleep(0.1)
        return found

    @classmethod
    def ask(cls, *command, check=True, cwd=None, **variables):
        return subprocess.run(command, env=cls.environment | variables, cwd=cwd, check=check, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True).stdout

    def job(self, number):
        return dict(re.findall(r"(\w+)=(\S*)", self.ask("scontrol", "show", "job", number)))

    def check_requeued(self, ranks, **variables):
        """The job of `ranks` ranks is signalled after its first checkpoint, as --signal does before the time limit."""
        self.deck(KEYS)
        self.run_driver("deck.toml", *set_options())
        expected = [self.steps(column).tolist() for column in ("loss", "gradient_norm")]
        model = (self.folder / "model/model.safetensors").read_bytes()
        for name in ("model", "checkpoints"):
            shutil.rmtree(self.folder / name)
        (self.folder / "deck.h5").unlink()

        self.deck(KEYS.replace("[parallel]\n", f"[parallel]\ndata = {ranks}\n"))
        number = self.ask("sbatch", "--parsable", f"--ntasks={ranks}", JOB, "deck.toml", cwd=self.folder, **variables).strip()
        log = self.folder / f"slurm-{number}.out"
        self.wait_for(lambda: any(self.folder.glob("checkpoints/step-*.safetensors")), f"job {number}")
        self.ask("scancel", "--signal=USR1", number)
        self.wait_for(lambda: self.job(number)["Restarts"] == "1", f"requeue of job {number}")
        self.assertFalse((self.folder / "model").exists(), "the training ended before the signal")
        self.wait_for(lambda: self.job(number)["JobState"] in ("COMPLETED", "FAILED", "CANCELLED"), f"end of job {number}", 400)
        job = self.job(number)
        self.assertEqual((job["JobState"], job["ExitCode"], job["Restarts"]), ("COMPLETED", "0:0", "1"), log.read_text())
        # The log has both starts of the job.
        self.assertEqual(log.read_text().count("kformer-train "), 2, log.read_text())
        self.assertEqual([self.steps(column).tolist() for column in ("loss", "gradient_norm")], expected)
        self.assertEqual((self.folder / "model/model.safetensors").read_bytes(), model)

    def test_a_job_that_is_signalled_is_requeued_and_continues(self):
        self.check_requeued(1)

    @unittest.skipIf("KFORMER_MPIEXEC" not in os.environ, "the build has no MPI")
    def test_ranks_that_srun_starts(self):
        if "pmix" not in self.ask("srun", "--mpi=list"):
            self.skipTest("this Slurm has no PMIx")
        self.check_requeued(2, SLURM_MPI_TYPE="pmix")


if __name__ == "__main__":
    unittest.main()
