#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times PyTorch's attention, by cuDNN and by FlashAttention-2, on the long sequences of kformer_tests_tuned.

Run both on an idle GPU, one after the other. bf16; forward under no_grad, backward by autograd.grad on a kept graph; the least
mean of five turns of five calls, from an idle device to an idle device. TFLOP/s count 4 operations per feature and pair that a
query sees, 10 in backward.
"""

import time

# batch, tokens, heads, heads of keys, features, causal
SHAPES = [(1, 8192, 64, 8, 128, True), (1, 8192, 64, 8, 128, False), (1, 8192, 64, 8, 64, True), (1, 8192, 64, 8, 64, False),
          (4, 2048, 32, 8, 128, True)]


def seconds(torch, call):
    call()
    call()
    least = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(5):
            call()
        torch.cuda.synchronize()
        least = min(least, (time.perf_counter() - begin) / 5)
    return least


def main():
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    attention = torch.nn.functional.scaled_dot_product_attention
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__, "cuDNN", torch.backends.cudnn.version())
    for batch, tokens, heads, kv_heads, features, causal in SHAPES:
        def normal(count):
            return torch.randn(batch, count, tokens, features, device="cuda", dtype=torch.bfloat16, requires_grad=True)

        q, k, v = normal(heads), normal(kv_heads), normal(kv_heads)
        gradient = torch.randn_like(q)
        operations = 4 * batch * heads * features * (tokens * (tokens + 1) / 2 if causal else tokens**2)
        call = lambda: attention(q, k, v, is_causal=causal, enable_gqa=True)
        for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("FlashAttention-2", SDPBackend.FLASH_ATTENTION)):
            with sdpa_kernel(backend):
                with torch.no_grad():
                    forward = seconds(torch, call)
                out = call()
                backward = seconds(torch, lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
            print(f"{name}: {batch} x {tokens} tokens, {heads}/{kv_heads} heads of {features}{', causal' if causal else ''}: "
                  f"forward {operations / forward * 1e-12:.0f} TFLOP/s, backward {2.5 * operations / backward * 1e-12:.0f} TFLOP/s",
                  flush=True)


if __name__ == "__main__":
    main()
