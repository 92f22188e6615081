#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training steps of kformer-train and of PyTorch, from the same weights, on the same tokens.

  training.py agree CHECKPOINT --kformer-train PROGRAM   losses, norms and final weights in f64, and f32 errors
  training.py speed CHECKPOINT --kformer-train PROGRAM   times and peak memory of both in turns, as processes

CHECKPOINT is a folder with config.json and model.safetensors, or a config.json alone: weights are then drawn here.
Tokens are random, or with --text the bytes of a file, from its beginning again where it is too short.
--adapter-rank trains adapters of all linear maps, on the other side by PEFT, which `speed` alone compares. The weights
are then stored in the type of the run, as hubs publish them in bf16.
Peaks are VmHWM, which unlike ru_maxrss has nothing of the process that started it. With --clock cpu a step is what a
process of --steps more steps takes of the processor: for one thread on a machine that others use, too.
Needs the environment of perf/peers/make_environment.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

SCHEDULE = {"lr": 1e-3, "min_lr": 1e-4, "warmup": 2}
ADAMW = {"betas": (0.9, 0.95), "eps": 1e-8}
DECAY = 0.1
DTYPES = {"f64": "float64", "f32": "float32", "bf16": "bfloat16"}


def tokens_of(text, count, vocab_size):
    """`count` tokens: random, or the bytes of a text. Unlike random ones, they are of very different frequencies."""
    if text is None:
        return np.random.default_rng(1).integers(0, vocab_size, count, dtype=np.int32)
    data = np.frombuffer(pathlib.Path(text).read_bytes(), dtype=np.uint8)
    if data.size == 0 or data.max() >= vocab_size:
        sys.exit(f"{text} has no byte, or one that is no token: the vocabulary has {vocab_size}")
    return np.resize(data, count).astype(np.int32)


def prepared(options, folder):
    """A folder with config.json, weights in float or as they are, and tokens.npy."""
    import torch
    from safetensors.torch import save_file
    from torch_llama import Llama, read_config
    folder = pathlib.Path(folder)
    source = pathlib.Path(options.checkpoint)
    source = source if source.is_dir() else source.parent
    shutil.copy(source / "config.json", folder / "config.json")
    config = read_config(folder)
    if (source / "model.safetensors").exists():
        shutil.copy(source / "model.safetensors", folder)
    else:
        torch.manual_seed(1)
        model = Llama(config)
        for p in model.parameters():
            if p.ndim > 1:
                torch.nn.init.normal_(p, std=0.02)
        state = {name: p.detach().contiguous() for name, p in model.named_parameters()}
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    count = (SCHEDULE["warmup"] + options.steps) * options.sequences * options.seq_len + 1
    np.save(folder / "tokens.npy", tokens_of(options.text, count, config["vocab_size"]))


def deck(folder, dtype, options):
    text = f"""schema = 1
kind = "train"
[run]
name = "peer"
threads = {options.threads}
[output]
file = "peer.h5"
overwrite = true
{'adapter' if options.adapter_rank else 'model'} = "trained"
[weights]
path = "."
[data]
format = "tokens"
train = ["tokens.npy"]
packing = "stream"
[batch]
seq_len = {options.seq_len}
micro_batch = {options.micro_batch}
sequences = {options.sequences}
[precision]
storage = "{dtype}"
[optimizer]
lr = {SCHEDULE["lr"]}
betas = [{ADAMW["betas"][0]}, {ADAMW["betas"][1]}]
eps = {ADAMW["eps"]}
weight_decay = {DECAY}
max_norm = {options.max_norm}
[schedule]
kind = "cosine"
steps = {options.steps}
warmup_steps = {SCHEDULE["warmup"]}
min_lr = {SCHEDULE["min_lr"]}
[memory]
recompute = "{options.recompute}"
{f'budget = "{options.budget}"' if options.budget else ""}
{f'[adapter]{chr(10)}rank = {options.adapter_rank}{chr(10)}alpha = {2 * options.adapter_rank}' if options.adapter_rank else ""}
"""
    (pathlib.Path(folder) / "deck.toml").write_text(text)


def run_kformer(folder, options):
    """The table of steps, and the peak memory of the process in bytes."""
    import h5py
    shutil.rmtree(pathlib.Path(folder) / "trained", ignore_errors=True)
    environment = os.environ | {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores", "OMP_NUM_THREADS": str(options.threads)}
    process = subprocess.Popen([options.kformer_train, "deck.toml"], cwd=folder, env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, error = process.communicate()
    if process.returncode != 0:
        sys.exit(f"kformer-train failed: {error.decode()}")
    with h5py.File(pathlib.Path(folder) / "peer.h5") as file:
        steps = {name: file["steps"][name][:] for name in ("loss", "gradient_norm", "time")}
        return steps, int(file["cases"]["process_peak_bytes"][0])


def store_as(dtype, folder):
    """Rewrites the weights in this type."""
    from safetensors.torch import load_file, save_file
    path = pathlib.Path(folder) / "model.safetensors"
    weights = {name: w.to(torch_dtype(dtype)) for name, w in load_file(path).items()}
    save_file(weights, path, metadata={"format": "pt"})


def torch_dtype(dtype):
    import torch
    return getattr(torch, DTYPES[dtype])


def peak_memory():
    """VmHWM of this process in bytes."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def loaded(folder, dtype, adapters):
    """The model on the weights of the folder, without a copy where the types agree."""
    import torch
    from safetensors.torch import load_file
    from torch_llama import Llama, read_config
    # 16-bit training as users run it: float weights that learn, products in 16 bits. Frozen weights have 16 bits.
    stored = torch_dtype("f32" if dtype == "bf16" and not adapters else dtype)
    with torch.device("meta"):
        model = Llama(read_config(folder))
    weights = {name: w.to(stored) for name, w in load_file(pathlib.Path(folder) / "model.safetensors").items()}
    model.load_state_dict(weights, strict=False, assign=True)
    if model.config["tie_word_embeddings"]:
        model.lm_head.weight = model.model.embed_tokens.weight
    return model


def adapted(model, rank):
    """The model with float adapters that learn in its place."""
    import peft
    maps = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = peft.inject_adapter_in_model(peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=maps), model)
    for p in model.parameters():
        if p.requires_grad:
            p.data = p.data.float()
    return model


def torch_steps(folder, dtype, options, peer):
    """The same in this process, and the peaks before the model and before the steps."""
    import torch
    from torch_llama import learning_rate, parameter_groups
    if options.adapter_rank:
        import peft  # noqa: F401, so that `imported` has it
    torch.set_num_threads(options.threads)
    imported = peak_memory()
    model = loaded(folder, dtype, options.adapter_rank > 0)
    if options.adapter_rank:
        model = adapted(model, options.adapter_rank)
    model.recomputes = peer == "checkpoint"
    optimizer = torch.optim.AdamW(parameter_groups(model, DECAY), lr=SCHEDULE["lr"], **ADAMW)
    loss_of = torch.compile(model) if peer == "compile" else model
    tokens = torch.from_numpy(np.load(pathlib.Path(folder) / "tokens.npy").astype(np.int64))
    length, batch = options.seq_len, options.micro_batch
    result = {"loss": [], "gradient_norm": [], "time": [], "imported": imported, "loaded": peak_memory()}
    for step in range(options.steps):
        begin = time.perf_counter()
        lr = learning_rate(step, options.steps, **SCHEDULE)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad()
        total = 0.0
        for first in range(0, options.sequences, batch):
            rows = [(step * options.sequences + first + i) * length for i in range(batch)]
            ids = torch.stack([tokens[r:r + length] for r in rows])
            targets = torch.stack([tokens[r + 1:r + length + 1] for r in rows])
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
                loss = loss_of(ids, targets) * (batch / options.sequences)
            loss.backward()
            total += loss.item()
        norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in model.parameters() if p.requires_grad))
        if options.max_norm > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), options.max_norm)
        optimizer.step()
        result["loss"].append(total)
        result["gradient_norm"].append(norm.item())
        result["time"].append(time.perf_counter() - begin)
    return result | {"peak": peak_memory()}, model


def torch_process(folder, dtype, options, peer):
    """Times and peak memory of a process that does nothing else."""
    command = [sys.executable, __file__, "worker", str(folder), "--dtype", dtype, "--steps", str(options.steps),
               "--seq-len", str(options.seq_len), "--micro-batch", str(options.micro_batch), "--sequences",
               str(options.sequences), "--threads", str(options.threads), "--max-norm", str(options.max_norm),
               "--adapter-rank", str(options.adapter_rank), "--peers", peer]
    process = subprocess.run(command, stdout=subprocess.PIPE)
    if process.returncode != 0:
        return None
    steps = json.loads(process.stdout)
    return steps, steps["peak"]


def agree(options):
    import torch
    from safetensors.torch import load_file
    with tempfile.TemporaryDirectory() as folder:
        prepared(options, folder)
        exact, model = torch_steps(folder, "f64", options, "eager")
        weights = {name: p.detach() for name, p in model.named_parameters()}
        for dtype in ("f64", "f32"):
            deck(folder, dtype, options)
            steps, _ = run_kformer(folder, options)
            ours = load_file(pathlib.Path(folder) / "trained" / "model.safetensors")
            rows = {"loss": np.abs(steps["loss"] / exact["loss"] - 1).max(),
                    "gradient_norm": np.abs(steps["gradient_norm"] / exact["gradient_norm"] - 1).max(),
                    "weights": max(((ours[n].double() - w).abs().max() / w.abs().max()).item()
                                   for n, w in weights.items())}
            print(f"{dtype}: largest relative difference from PyTorch f64: "
                  + ", ".join(f"{name} {value:.2e}" for name, value in rows.items()))
            if dtype == "f32":
                peer, float_model = torch_steps(folder, "f32", options, "eager")
                rows = {"loss": np.abs(np.array(peer["loss"]) / exact["loss"] - 1).max(),
                        "gradient_norm": np.abs(np.array(peer["gradient_norm"]) / exact["gradient_norm"] - 1).max(),
                        "weights": max(((p.detach().double() - weights[n]).abs().max() / weights[n].abs().max()).item()
                                       for n, p in float_model.named_parameters())}
                print("f32 of PyTorch: " + ", ".join(f"{name} {value:.2e}" for name, value in rows.items()))
    return torch.__version__


def run(name, folder, dtype, options):
    """Steps and peak memory of one program."""
    if name != "kformer":
        return torch_process(folder, dtype, options, name)
    deck(folder, dtype, options)
    return run_kformer(folder, options)


def seconds_per_step(name, folder, dtype, options):
    """Seconds, steps and peak memory of one program, or nothing if it failed."""
    def cpu_run(steps):
        before = os.times()
        result = run(name, folder, dtype, argparse.Namespace(**vars(options) | {"steps": steps}))
        after = os.times()
        return result, after.children_user + after.children_system - before.children_user - before.children_system

    if options.clock == "wall":
        if (result := run(name, folder, dtype, options)) is None:
            return None
        # The first step of a process compiles or touches memory for the first time.
        return statistics.median(result[0]["time"][1:]), *result
    _, few = cpu_run(SCHEDULE["warmup"])
    result, many = cpu_run(SCHEDULE["warmup"] + options.steps)
    return result and ((many - few) / options.steps, *result)


def speed(options):
    peers = options.peers.split(",")
    with tempfile.TemporaryDirectory() as folder:
        for dtype in options.dtypes.split(","):
            prepared(options, folder)
            if options.adapter_rank:
                store_as(dtype, folder)
            times, memory, before = {}, {}, {}
            for _ in range(options.turns):
                for name in ["kformer", *peers]:
                    if (measured := seconds_per_step(name, folder, dtype, options)) is None:
                        print(f"{dtype} {name} failed", flush=True)
                        continue
                    seconds, steps, peak = measured
                    times.setdefault(name, []).append(seconds)
                    memory[name] = max(memory.get(name, 0), peak)
                    if "imported" in steps:
                        before[name] = f" ({mib(steps['imported'])} imported, {mib(steps['loaded'])} loaded)"
            for name, seconds in times.items():
                ratios = sorted(theirs / ours for theirs, ours in zip(seconds, times["kformer"]))
                print(f"{dtype} {name:10} step {statistics.median(seconds):8.3f} s, {statistics.median(ratios):5.2f} x "
                      f"({ratios[0]:.2f} to {ratios[-1]:.2f}), peak {mib(memory[name])} MiB{before.get(name, '')}")
            theirs = [name for name in times if name != "kformer"]
            fastest = min(theirs, key=lambda name: statistics.median(times[name]))
            paired = statistics.median(a / b for a, b in zip(times[fastest], times["kformer"]))
            least = min(memory[name] for name in theirs)
            print(f"{dtype}: {paired:.2f} x the fastest PyTorch, {memory['kformer'] / least:.2f} of the least of its memory",
                  flush=True)


def mib(size):
    return f"{size / 2**20:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("agree", "speed", "worker"))
    parser.add_argument("checkpoint")
    parser.add_argument("--kformer-train", default="kformer-train", type=lambda p: str(pathlib.Path(p).absolute()))
    parser.add_argument("--text", help="a file whose bytes are the tokens")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--max-norm", type=float, default=0.0, help="clip to this norm on both sides; 0: never")
    parser.add_argument("--adapter-rank", type=int, default=0, help="rank of adapters that learn; 0: the weights learn")
    parser.add_argument("--recompute", default="none")
    parser.add_argument("--budget", help="memory.budget of kformer-train, for --recompute auto")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="how `speed` measures a step")
    parser.add_argument("--dtype", help=argparse.SUPPRESS)
    parser.add_argument("--peers", default="eager,compile",
                        help="of PyTorch: eager, compile, and checkpoint, which is eager and recomputes whole layers")
    options = parser.parse_args()
    if options.mode == "worker":
        print(json.dumps(torch_steps(options.checkpoint, options.dtype, options, options.peers)[0]))
    elif options.mode == "agree":
        agree(options)
    else:
        speed(options)


if __name__ == "__main__":
    main()
