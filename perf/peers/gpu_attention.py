#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times PyTorch's scaled_dot_product_attention on a GPU; scripts/gpu_check compares kformer-attention with it.

Takes the shapes as JSON on the command line (lists of numbers are swept), times the path that PyTorch chooses, its flash path,
cuDNN's, and the packages of FlashAttention 2 and 3 where they are installed, forward under no_grad, backward by autograd.grad
on a kept graph, each sample from an idle device to an idle device as kformer-attention times its own. Writes JSON: one row per
shape, direction and path, with every sample.
"""

import argparse
import importlib
import itertools
import json
import statistics
import sys
import time
from contextlib import nullcontext

PYTORCH = ("free", "flash", "cudnn")
# Packages with kernels of their own, and the module that has flash_attn_func.
PACKAGES = {"flash_attn_2": "flash_attn", "flash_attn_3": "flash_attn_interface"}


def installed():
    """By path: the modules that Python can load, and of packages that it finds but cannot use the reasons."""
    modules, refused = {}, {}
    for path, name in PACKAGES.items():
        try:
            module = importlib.import_module(name)
        except Exception as error:  # whatever a package raises that was built for another PyTorch
            if not (isinstance(error, ModuleNotFoundError) and error.name == name):
                refused[path] = reason_of(error)
            continue
        if hasattr(module, "flash_attn_func"):
            modules[path] = module
        else:  # a later version of the package has the folder, too
            refused[path] = f"{name} has no flash_attn_func"
    return modules, refused


def reason_of(error):
    """One line of text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def cases(shapes):
    """Every combination of the lists."""
    axes = {key: value if isinstance(value, list) else [value] for key, value in shapes.items()}
    for point in itertools.product(*axes.values()):
        yield dict(zip(axes, point))


class Timer:
    def __init__(self, torch, device, repetitions):
        self._synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
        self._repetitions = repetitions

    def samples(self, call):
        for _ in range(2):
            call()
        found = []
        for _ in range(self._repetitions):
            self._synchronize()
            begin = time.perf_counter()
            call()
            self._synchronize()
            found.append(time.perf_counter() - begin)
        return found


def rows_of(torch, case, device, timer, modules, refused):
    """The rows of one shape; a path that refuses it has the reason instead of times."""
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[case["dtype"]]
    attention = torch.nn.functional.scaled_dot_product_attention

    def normal(heads):
        shape = (case["batch"], heads, case["seq_len"], case["head_dim"])
        return torch.randn(shape, dtype=dtype, device=device, requires_grad=True)

    q, k, v = normal(case["num_attention_heads"]), normal(case["num_key_value_heads"]), normal(case["num_key_value_heads"])
    grad = torch.randn_like(q)
    # The packages want (batch, token, head, feature).
    by_token = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (q, k, v)]

    def of_package(module):
        out = module.flash_attn_func(*by_token, causal=case["causal"])
        return out[0] if isinstance(out, tuple) else out  # some versions return the log-sum-exp, too

    paths = {path: (lambda: attention(q, k, v, is_causal=case["causal"], enable_gqa=k.shape[1] != q.shape[1]), (q, k, v), grad)
             for path in PYTORCH}
    paths |= {path: (lambda module=module: of_package(module), by_token, grad.transpose(1, 2).contiguous())
              for path, module in modules.items()}
    directions = ("forward", "backward")
    for (path, (call, inputs, out_grad)), direction in itertools.product(paths.items(), directions):
        row = dict(case, path=path, direction=direction)
        try:
            with forced(path):
                if direction == "forward":
                    with torch.no_grad():
                        row["seconds"] = timer.samples(call)
                else:
                    out = call()
                    row["seconds"] = timer.samples(lambda: torch.autograd.grad(out, inputs, out_grad, retain_graph=True))
            row["median"] = statistics.median(row["seconds"])
        except Exception as error:  # a path must not take the others with it
            row["refused"] = reason_of(error)
        yield row
    for (path, reason), direction in itertools.product(refused.items(), directions):
        yield dict(case, path=path, direction=direction, refused=reason)


def forced(path):
    if path not in ("flash", "cudnn"):
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.FLASH_ATTENTION if path == "flash" else SDPBackend.CUDNN_ATTENTION)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", type=json.loads, help="JSON: dtype, batch, num_attention_heads, num_key_value_heads, "
                                                        "head_dim, seq_len, causal")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--output", required=True, help="the JSON file")
    arguments = parser.parse_args()
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("gpu_attention.py: PyTorch sees no device", file=sys.stderr)
        return 77
    timer = Timer(torch, arguments.device, arguments.repetitions)
    about = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    about["device"] = torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu"
    modules, refused = installed()
    about |= {path: getattr(module, "__version__", "") for path, module in modules.items()}
    rows = []
    for case in cases(arguments.shapes):
        rows += rows_of(torch, case, arguments.device, timer, modules, refused)
        # Write the complete file after each shape: the time limit may end the run before the last.
        with open(arguments.output, "w", encoding="utf-8") as file:
            json.dump({"about": about, "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
