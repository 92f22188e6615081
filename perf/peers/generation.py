# SPDX-License-Identifier: MIT
"""Times prefill and decode of a GGUF file with kformer-generate and llama.cpp, alternating, on the same prompt and threads.

Needs llama-cpp-python and h5py: `pip install llama-cpp-python h5py`.

    python perf/peers/generation.py build/drivers/kformer-generate MODEL.gguf --threads 2
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import h5py
from llama_cpp import Llama

SENTENCE = "Once upon a time there was a small kernel that wanted to be fast. "


def ours(arguments, folder, prompt, activations):
    """Tokens per second of prefill and decode, and the ids of the prompt."""
    (folder / "prompt.txt").write_text(prompt)
    (folder / "deck.toml").write_text(
        f"""schema = 1
kind = "generate"
[weights]
path = "{arguments.model.absolute()}"
[tokenizer]
add_bos = false
[generate]
max_new_tokens = {arguments.new + 1}
prefill_chunk = 512
stop_at_eos = false
score_prompt = false
activations = "{activations}"
[timing]
warmup = 1
[output]
file = "{folder}/turn.h5"
overwrite = true
[[prompt]]
file = "prompt.txt"
"""
    )
    subprocess.run(
        [arguments.program, folder / "deck.toml", f"--kokkos-num-threads={arguments.threads}"],
        check=True,
        capture_output=True,
        env=os.environ | {"OMP_PROC_BIND": "true"},
    )
    with h5py.File(folder / "turn.h5") as file:
        ids = file["tokens/id"][:][file["tokens/new"][:] == 0]
        return (file["cases/prefill_rate"][0], file["cases/decode_rate"][0]), [int(i) for i in ids]


def theirs(model, ids, new):
    model.reset()
    begin = time.perf_counter()
    model.eval(ids)
    prefill = time.perf_counter()
    for i in range(new):
        model.eval([ids[i % len(ids)]])
    end = time.perf_counter()
    return len(ids) / (prefill - begin), new / (end - prefill)


def main():
    # A thread that llama.cpp's OpenMP has bound would hand its one core down to the program.
    if os.environ.get("OMP_PROC_BIND", "false") != "false":
        raise SystemExit("unset OMP_PROC_BIND: it would tie both to one core")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sentences", type=int, default=34, help="length of the prompt")
    parser.add_argument("--new", type=int, default=64, help="tokens to generate")
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()

    peer = Llama(
        str(arguments.model),
        n_ctx=4096,
        n_threads=arguments.threads,
        n_threads_batch=arguments.threads,
        n_batch=512,
        verbose=False,
    )
    rates = {}
    with tempfile.TemporaryDirectory() as name:
        for _ in range(arguments.turns):
            for activations in ("int8", "full"):
                rate, ids = ours(arguments, Path(name), SENTENCE * arguments.sentences, activations)
                rates.setdefault(activations, []).append(rate)
            rates.setdefault("llama.cpp", []).append(theirs(peer, ids, arguments.new))
    medians = {who: [statistics.median(r) for r in zip(*all_rates)] for who, all_rates in rates.items()}
    print(json.dumps({"prompt_tokens": len(ids), "new_tokens": arguments.new, "threads": arguments.threads}))
    for who, (prefill, decode) in medians.items():
        base = medians["llama.cpp"]
        print(
            f"{who:<10} prefill {prefill:8.1f} tokens/s ({prefill / base[0]:.2f} x)"
            f"   decode {decode:7.1f} tokens/s ({decode / base[1]:.2f} x)"
        )


if __name__ == "__main__":
    main()
