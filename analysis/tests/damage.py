# SPDX-License-Identifier: MIT
"""Result files with changed bytes, of every kind: what the package makes of them.

python3 -m tests.damage FOLDER --minutes 10 --seed 1

Keeps files on which it failed in FOLDER. A crash of the interpreter leaves the file that it read last,
FOLDER/input.h5. FOLDER/executions.txt says how many were read.
"""

import argparse
import collections
import contextlib
import io
import random
import resource
import shutil
import signal
import time
import unittest.mock
from pathlib import Path

from kformer_results import ResultFileError, open_results
from kformer_results.__main__ import main as command_line
from tests import stored, synthetic, synthetic_attention
from tests.test_tables import GENERATED, GIB, PLANNED, QUANTIZED, write
from tests.test_train import TRAINED

# HDF5 keeps what describes a file at its beginning.
DESCRIPTION = 4096
MOST_SECONDS = 1  # of the processor
MOST_BYTES = 256 * 2**20
HANG_SECONDS = 10  # of the processor, so that a busy machine is no hang

TRAINED_AND_PROFILED = {
    **TRAINED,
    "checkpoints": ("checkpoint", {"step": [4, 8], "waited": [0.25, 0.5]}),
    "regions": ("region", {"path": ["forward", "forward/down", "backward"], "exclusive": [0.1, 0.5, 0.25]}),
}
PLANNED_AND_LIMITED = {"cases": ("case", {**PLANNED["cases"][1], "available_bytes": [8 * GIB]})}


def write_deflated(path: Path) -> None:
    """A layer sweep as the programs store it."""
    with unittest.mock.patch.dict(synthetic.STORAGE, chunks=True, compression=4):
        synthetic.write(path, cases=8)


KINDS = {
    "layer_sweep": lambda path: synthetic.write(path, cases=8),
    "layer_sweep, deflated": write_deflated,
    "attention_compare": lambda path: synthetic_attention.write(path),
    "generate": lambda path: write(path, "generate", GENERATED),
    "memory_plan": lambda path: write(path, "memory_plan", PLANNED_AND_LIMITED),
    "quantize": lambda path: write(path, "quantize", QUANTIZED),
    "train": lambda path: write(path, "train", TRAINED_AND_PROFILED),
    "scaling": lambda path: path.write_bytes(stored.contents("scaling")),
}


def damaged(data: bytes, generator: random.Random) -> bytes:
    """The data cut off, or with one to 64 other bytes."""
    changed = bytearray(data)
    if generator.randrange(8) == 0:
        return bytes(changed[: generator.randrange(len(changed))])
    end = generator.choice([len(changed), DESCRIPTION])
    for _ in range(1 << generator.randrange(7)):
        place = generator.randrange(min(end, len(changed)))
        flipped = changed[place] ^ 1 << generator.randrange(8)
        changed[place] = generator.choice([0, 255, generator.randrange(256), flipped])
    return bytes(changed)


def outcome(path: Path, commands=("summary",)) -> str:
    """"read", "refused", or what is wrong with the way in which the package took the file."""
    try:
        open_results(path)
        read = "read"
    except ResultFileError as reason:
        if str(path) not in str(reason):
            return f"the reason does not name the file: {reason}"
        read = "refused"
    except Exception as error:
        return f"open_results: {type(error).__name__}: {error}"
    for command in commands:
        out, error_text = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error_text):
                code = command_line([command, str(path)])
        except Exception as error:
            return f"{command}: {type(error).__name__}: {error}"
        sentences = error_text.getvalue().count("kformer_results: error: ")
        if code not in (0, 4) or sentences != (code == 4):
            return f"{command}: code {code}, {error_text.getvalue()!r}"
        if code:
            read = "refused"
    return read


def most_bytes() -> int:
    """The most memory that the process has had."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured_outcome(path: Path, commands) -> str:
    """The outcome; time and memory beyond the limits are faults."""
    bytes_before, begin = most_bytes(), time.process_time()
    found = outcome(path, commands)
    seconds, grown = time.process_time() - begin, most_bytes() - bytes_before
    if grown > MOST_BYTES:
        return f"{grown} bytes, after which: {found}"
    # Drawing takes longer than that on some machines, whatever the file.
    if seconds > MOST_SECONDS and "plot" not in commands:
        return f"{seconds:.1f} seconds, after which: {found}"
    return found


def damage(folder: Path, minutes: float, seed: int) -> int:
    """Damages files of each kind in turn until the time is up; prints counts, returns the number of faults."""
    generator = random.Random(seed)
    contents = {}
    for kind, writer in KINDS.items():
        (folder / "whole.h5").unlink(missing_ok=True)
        writer(folder / "whole.h5")
        contents[kind] = (folder / "whole.h5").read_bytes()
        outcome(folder / "whole.h5", ("summary", "plot"))  # imports what it needs
    counts, faults = {kind: collections.Counter() for kind in KINDS}, 0
    executions = 0
    path = folder / "input.h5"
    begin = time.monotonic()
    # A hang ends the process as a crash does.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    while time.monotonic() - begin < 60 * minutes:
        for kind, data in contents.items():
            path.write_bytes(damaged(data, generator))
            executions += 1
            (folder / "executions.txt").write_text(f"{executions}\n")  # a crash must not lose it
            signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
            commands = ("summary", "plot") if generator.randrange(16) == 0 else ("summary",)
            found = measured_outcome(path, commands)
            signal.setitimer(signal.ITIMER_PROF, 0)
            if found in ("read", "refused"):
                counts[kind][found] += 1
                continue
            faults += 1
            shutil.copy(path, folder / f"{kind}-{seed}-{faults}.h5")
            print(f"  {kind}-{seed}-{faults}.h5: {found}", flush=True)
    for kind, count in counts.items():
        print(f"{kind:22} {count['read']:8d} read {count['refused']:8d} refused")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    return 1 if damage(options.folder, options.minutes, options.seed) else 0


if __name__ == "__main__":
    raise SystemExit(main())
