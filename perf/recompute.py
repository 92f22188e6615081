#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Time and memory of training steps under each recomputation policy, of processes that take turns.

  recompute.py SHAPE --kformer-train PROGRAM [--layers N] [--budget SHARE]

SHAPE is one of the shapes below; its weights and tokens are random, which changes neither. Prints a table: median time of a
step against `none`, peak of the activations, peak of the ledger, most resident memory of the process. With --budget, the
policy "auto" runs too, with that share of the bytes that `none` wants.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

import h5py
import numpy as np

# Published configurations, as tables of a deck.
SHAPES = {
    "SmolLM2-135M": {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
                     "num_hidden_layers": 30, "vocab_size": 49152, "tie_word_embeddings": "true"},
    "Llama-3.2-1B": {"hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192,
                     "num_hidden_layers": 16, "vocab_size": 128256, "tie_word_embeddings": "true"},
}


def deck(options):
    model = dict(SHAPES[options.shape])
    if options.layers:
        model["num_hidden_layers"] = options.layers
    if options.vocabulary:
        model["vocab_size"] = options.vocabulary
    table = "\n".join(f"{key} = {value}" for key, value in model.items())
    return model["vocab_size"], f"""schema = 1
kind = "train"
[run]
threads = {options.threads}
[output]
file = "steps.h5"
overwrite = true
[model]
{table}
[data]
format = "tokens"
train = ["tokens.npy"]
[batch]
seq_len = {options.seq_len}
micro_batch = {options.micro_batch}
sequences = {options.micro_batch}
[precision]
storage = "{options.dtype}"
[optimizer]
lr = 1e-4
[schedule]
kind = "constant"
steps = {options.steps}
"""


def run(folder, options, policy, budget):
    command = [options.kformer_train, "deck.toml", "--set", f'memory.recompute="{policy}"']
    if budget:
        command += ["--set", f"memory.budget={budget}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    with h5py.File(pathlib.Path(folder) / "steps.h5") as file:
        cases = file["cases"]
        classes = [name.decode() for name in file["memory_class"][:]]
        peaks = dict(zip(classes, cases["peak_bytes_by_class"][0])) if "peak_bytes_by_class" in cases else {}
        schedule = cases["recompute"][0]
        return {"times": list(file["steps/time"][1:]), "peak": int(cases["peak_bytes"][0]), "classes": peaks,
                "process": int(cases["process_peak_bytes"][0]),
                "schedule": schedule.decode() if isinstance(schedule, bytes) else str(schedule)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--kformer-train", required=True, type=lambda p: str(pathlib.Path(p).absolute()))
    parser.add_argument("--layers", type=int, help="only so many layers")
    parser.add_argument("--vocabulary", type=int, help="another size of the vocabulary")
    parser.add_argument("--policies", default="none,pointwise,layer,nested")
    parser.add_argument("--budget", type=float, help="share of the bytes of none, for auto")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--seq-len", type=int, default=512)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        vocabulary, text = deck(options)
        (pathlib.Path(folder) / "deck.toml").write_text(text)
        tokens = np.random.default_rng(1).integers(0, vocabulary, options.steps * options.micro_batch * options.seq_len + 1)
        np.save(pathlib.Path(folder) / "tokens.npy", tokens.astype(np.int32))
        results = {}
        for _ in range(options.turns):
            for policy in options.policies.split(",") + (["auto"] if options.budget else []):
                budget = int(options.budget * results["none"]["peak"]) if policy == "auto" else None
                result = run(folder, options, policy, budget)
                if policy in results:
                    result["times"] += results[policy]["times"]
                results[policy] = result
        none = statistics.median(results["none"]["times"])
        for policy, r in results.items():
            activations = r["classes"].get("activations", 0)
            print(f"{policy:10} time {statistics.median(r['times']) / none:6.3f} of none (spread "
                  f"{min(r['times']) / none:.3f} to {max(r['times']) / none:.3f}), activations {activations / 2**20:8.1f} MiB, "
                  f"ledger {r['peak'] / 2**20:8.1f} MiB, process {r['process'] / 2**20:8.1f} MiB, {r['schedule']}")


if __name__ == "__main__":
    main()
