#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares Kformer's blocks and decoder layers with PyTorch, eager and through torch.compile, on the same shapes, in the
same run.

The three alternate call by call, never run at the same time, and use equal threads. Forward runs under no_grad, backward is
autograd.grad on a retained graph; a layer runs both, and the optimizer makes a step. Inputs rotate so that they come from
memory. PyTorch allocates its results in each call, as it does for its users; ours are passed in. A row has medians, our share
of the machine's limit measured between the calls (the multiply-add peak, or the bandwidth of reads, updates or copies,
whichever moves the most; for a layer, the sum of both over its parts), and our speed-up over the better of PyTorch's two
paths. If torch.compile fails, the program says why and reports only eager.

Create the environment with perf/peers/make_environment; torch.compile needs a C++ compiler.
"""

import turns

PATHS = ("eager", "compile")


class PyTorch:
    """One case with its operands in memory, warmed up."""

    def __init__(self, torch, case, rotated_bytes, clock):
        from torch_blocks import BLOCKS

        if case["block"] not in BLOCKS:
            raise turns.CannotMeasure("PyTorch has no such form; leave it out with --filter")
        self._torch, self._clock = torch, clock
        self._direction = case["direction"]
        with torch.device(clock.device):
            self._block = BLOCKS[case["block"]](case)
            self._sets = turns.RotatingSets(self._make_set, self._set_bytes, rotated_bytes)
        self._forward = {"eager": self._block.forward, "compile": self._compiled()}
        self._graphs, self._counts = {}, {}
        self.paths, self.notes = ["eager"], {}
        self._warm_up("eager")
        try:
            self._warm_up("compile")
            self.paths.append("compile")
        except Exception as error:  # whatever its compilers throw
            reason = turns.first_line(error)
            self.notes = {"compile_failed": reason}
            print(f"{case['name']}: torch.compile failed: {reason}", flush=True)

    def seconds(self, path):
        """Seconds of one call."""
        with self._torch.set_grad_enabled(self._direction not in ("forward", "step")):
            return self._clock.seconds(lambda: self._call(path), self._counts[path])

    def _call(self, path):
        i = self._sets.next()
        operands = self._sets.all[i]
        if self._direction in ("forward", "step"):
            self._forward[path](**operands["inputs"])
        elif self._direction == "forward_backward":
            self._gradients(operands, self._forward[path](**operands["inputs"]))
        else:
            self._gradients(operands, self._graphs[path][i], retain_graph=True)

    def _gradients(self, operands, results, retain_graph=False):
        return self._torch.autograd.grad(results, operands["wanted"], operands["grads"], retain_graph=retain_graph)

    def _compiled(self):
        import torch._functorch.config

        torch = self._torch
        torch._dynamo.reset()
        torch._functorch.config.donated_buffer = False  # or a graph could not be kept
        return torch.compile(self._block.forward, dynamic=False)

    def _make_set(self):
        torch = self._torch
        inputs = self._block.inputs()
        if self._direction in ("forward", "step"):
            return {"inputs": inputs, "wanted": [], "grads": []}
        wanted = self._wanted(inputs)
        for x in wanted:
            x.requires_grad_()
        with torch.no_grad():
            results = self._block.forward(**inputs)
        results = results if isinstance(results, tuple) else (results,)
        return {"inputs": inputs, "wanted": wanted, "grads": [torch.ones_like(y) for y in results]}

    def _wanted(self, inputs):
        """What the gradient is taken of."""
        one = {"backward_input": "x", "backward_weight": "weight"}.get(self._direction)
        return [inputs[one]] if one else [x for x in inputs.values() if x.is_floating_point()]

    def _set_bytes(self, operands):
        tensors = [*self._block.tensors(operands["inputs"]), *operands["wanted"], *operands["grads"]]
        return sum(x.numel() * x.element_size() for x in tensors)

    def _warm_up(self, path):
        if self._direction.startswith("backward"):
            self._graphs[path] = [self._forward[path](**operands["inputs"]) for operands in self._sets.all]
        self._counts[path] = 1
        for _ in self._sets.all:
            self.seconds(path)
        self._counts[path] = 1 + int(self._clock.sample_s / self.seconds(path))


if __name__ == "__main__":
    turns.main(__doc__, "kformer-perf-blocks", r"^(?!.*(unfused|8bit))(?!.*/f16/)", PATHS, PyTorch, ("cpu", "cuda"))
