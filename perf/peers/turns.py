# SPDX-License-Identifier: MIT
"""Shared by the comparisons in this folder: two programs that alternate call by call, never at the same time and on equal
threads. Inputs rotate so that they come from memory."""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import machine

# Threads of the program whose turn it is not must sleep.
SLEEPING_THREADS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
SKIPPED = 77  # exit code without a device


class CannotMeasure(Exception):
    pass


class Ours:
    """One of the programs in perf/, in server mode."""

    def __init__(self, program, threads, options=()):
        self._name = Path(program).name
        command = [program, "--serve", f"--kokkos-num-threads={threads}", *options]
        environment = dict(os.environ)
        # Libraries of our program alone, as scripts/gpu_check names them: PyTorch has its own.
        if libraries := environment.get("KFORMER_LIBRARY_PATH"):
            environment["LD_LIBRARY_PATH"] = libraries
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        except OSError as error:
            raise CannotMeasure(f"{program}: {error.strerror}; give the path of the program") from error

    def ask(self, request):
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # no answer will come
        line = self._process.stdout.readline()
        if not line:
            raise CannotMeasure(f"{self._name} ended with {self._process.wait()} at the request: {request}")
        answer = json.loads(line)
        if "error" in answer:
            raise CannotMeasure(answer["error"])
        return answer

    def close(self):
        self._process.communicate()  # unlike stdin.close(), it accepts that the program has ended


class RotatingSets:
    """Sets of operands, together more than `rotated_bytes`."""

    def __init__(self, make, bytes_of, rotated_bytes):
        self.all = [make()]
        self.all += [make() for _ in range(rotated_bytes // bytes_of(self.all[0]))]
        self._next = 0

    def next(self):
        """The index of the set that was used longest ago."""
        index = self._next
        self._next = (index + 1) % len(self.all)
        return index


class Clock:
    """Times PyTorch's calls on a device. On a GPU it makes several calls between two synchronisations, as many as take a
    millisecond, as our program does."""

    def __init__(self, torch, device):
        self.device = device
        self._wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        self.sample_s = 1e-3 if device == "cuda" else 0  # shortest sample

    def seconds(self, call, count=1):
        """Mean seconds of `count` calls."""
        self._wait()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        self._wait()
        return (time.perf_counter() - begin) / count


def torch_dtype(torch, name):
    return {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}[name]


def measure(ours, case, theirs, repetitions):
    """One row: seconds of every call, their medians and ratios."""
    seconds = {"ours": [], **{path: [] for path in theirs.paths}}
    limits = []
    kernel = ours.ask(f"time {case['name']} 1")["kernel"]
    for i in range(repetitions):
        limits.append(ours.ask(f"limit {case['name']}")["seconds"])
        seconds["ours"] += ours.ask(f"time {case['name']} 1")["seconds"]
        for path in theirs.paths if i % 2 == 0 else reversed(theirs.paths):
            seconds[path].append(theirs.seconds(path))
    median = {who: statistics.median(s) for who, s in seconds.items()}
    least, best = min(limits), min((median[path] for path in theirs.paths), default=None)
    return {
        **case,
        "kernel": kernel,
        **theirs.notes,
        "seconds": seconds,
        "median": median,
        "limit_seconds": least,
        "share_of_limit": least / median["ours"],
        "ratio": best and best / median["ours"],
    }


def print_row(row, paths):
    ms = {who: f"{1e3 * s:.2f}" for who, s in row["median"].items()}
    kernel = "several" if " " in row["kernel"] else row["kernel"]
    theirs = " ".join(f"{ms.get(path, '-'):>9}" for path in paths)
    ratio = f"{row['ratio']:6.2f} x" if row["ratio"] else ""
    print(f"{row['name']:<50} {kernel:<11} {ms['ours']:>9} {100 * row['share_of_limit']:5.1f} % {theirs} {ratio}".rstrip(),
          flush=True)


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def measure_all(ours, cases, make_peer, arguments, keep):
    """Calls `keep` with the row of each case. If a case cannot be measured, `failed` has the reason, and the others go on."""
    end = time.monotonic() + arguments.seconds
    for case in cases:
        if time.monotonic() > end:
            print(f"not begun within {arguments.seconds:g} s: {case['name']} and what follows", flush=True)
            return
        try:
            keep(measure(ours, case, make_peer(case), arguments.repetitions))
        except (CannotMeasure, RuntimeError) as error:  # PyTorch's for too little memory is a RuntimeError
            print(f"{case['name']}: {first_line(error)}", flush=True)
            keep({**case, "failed": first_line(error)})


def parse_arguments(description, program, default_filter, devices):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help=f"the program {program}")
    parser.add_argument("--threads", type=int, default=1, help="threads of each program (default 1)")
    parser.add_argument("--repetitions", type=int, default=7, help="calls per case and program (default 7)")
    parser.add_argument("--device", default="cpu", choices=devices,
                        help="device on which both compute (default cpu)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no case after this time (default: no limit)")
    parser.add_argument("--filter", default=default_filter, help="regular expression of cases (default %(default)s)")
    parser.add_argument("--output", type=Path, help="JSON with every sample")
    parser.add_argument("--alone", action="store_true", help="measure no peer, only our program and the limits")
    parser.add_argument("--smoke", action="store_true", help="run the program's tiny cases")
    return parser.parse_args()


class NoPeer:
    """Beside a case that is measured alone."""

    paths, notes = (), {}


def prepare_threads(arguments):
    """Sets the environment before anything loads OpenMP; our program inherits it."""
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    if arguments.alone:  # nobody else takes turns, so that threads may spin
        os.environ["OMP_PROC_BIND"] = "true"
        return
    os.environ.update(SLEEPING_THREADS)
    # Bound threads would not do: the program inherits the one core that PyTorch's first thread is bound to.
    os.environ["OMP_PROC_BIND"] = "false"


def load_pytorch(arguments):
    """PyTorch, or None if this machine lacks the device."""
    try:
        import torch
    except ImportError as error:
        raise CannotMeasure(f"{error}; perf/peers/make_environment makes an environment that has PyTorch") from error

    if arguments.device == "cuda" and not torch.cuda.is_available():
        return None
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    return torch


def summary(rows):
    """How the rows with a peer came out."""
    slowest = min(rows, key=lambda row: row["ratio"])
    faster = sum(row["ratio"] > 1 for row in rows)
    return f"faster in {faster} of {len(rows)} rows; least: {slowest['ratio']:.2f} x in {slowest['name']}"


def run(arguments, paths, make_peer):
    """Measures the chosen cases; `make_peer(torch, case, rotated_bytes, clock)` makes what PyTorch does in a case, with `paths`,
    `seconds(path)` and `notes` for the row."""
    prepare_threads(arguments)
    torch = None if arguments.alone else load_pytorch(arguments)
    if not arguments.alone and torch is None:
        print("PyTorch sees no device", file=sys.stderr)
        return SKIPPED
    ours = Ours(arguments.program, arguments.threads, ["--smoke"] if arguments.smoke else [])
    peers = {} if arguments.alone else {"pytorch": torch.__version__}
    about = {**ours.ask("about"), **peers, "processor": machine.processor(), "repetitions": arguments.repetitions}
    beside = f" beside PyTorch {about['pytorch']}" if peers else ""
    print(f"{about['version']} on {about['device']}{beside}; threads: {about['threads']}; "
          f"milliseconds, medians of {arguments.repetitions}; peak by {about['isa']}")
    paths = () if arguments.alone else paths
    columns = " ".join(f"{path:>9}" for path in paths)
    print(f"{'case':<50} {'kernel':<11} {'ours':>9} {'limit':>7} {columns} {'faster':>8}")
    rows, clock = [], Clock(torch, arguments.device)

    def make(case):
        if arguments.alone:
            return NoPeer()
        torch.cuda.empty_cache()  # leave the memory of the last case to the other program
        return make_peer(torch, case, about["rotated_bytes"], clock)

    def keep(row):
        rows.append(row)
        if "failed" not in row:
            print_row(row, paths)
        if arguments.output:
            arguments.output.write_text(json.dumps({"about": about, "rows": rows}, indent=1), encoding="utf-8")

    measure_all(ours, [case for case in ours.ask("cases") if re.search(arguments.filter, case["name"])], make, arguments, keep)
    ours.close()
    rows = [row for row in rows if "failed" not in row]
    if not rows:
        print(f"no case that matches {arguments.filter} was measured", file=sys.stderr)
        return 1
    if not arguments.alone:
        print(summary(rows))
    return 0


def main(description, program, default_filter, paths, make_peer, devices=("cpu",)):
    """Runs the program and ends the process."""
    try:
        sys.exit(run(parse_arguments(description, program, default_filter, devices), paths, make_peer))
    except CannotMeasure as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")
