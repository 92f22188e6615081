# SPDX-License-Identifier: MIT
"""What the tests of kformer-attention share."""

import os

import driver_case


class AttentionTest(driver_case.DriverTest):
    NAME = "kformer-attention"
    PROGRAM = os.environ["KFORMER_ATTENTION"]
    SMOKE_DECK = driver_case.SMOKE / "attention.toml"
    FEW = ("profile.machine_limits=false", "sweep.dtype=f32", "sweep.seq_len=33", "sweep.window=0", "sweep.q_len=0",
           "sweep.exclude=[]", "sweep.impl=flash", "sweep.direction=forward")
    # Cases that take milliseconds; they come from the test. The limits of the machine would take longer than all else.
    SMALL = """schema = 1
kind = "attention_compare"
[timing]
repeats = 2
min_time_s = 0.0
[profile]
machine_limits = false
[sweep]
num_attention_heads = 4
num_key_value_heads = 2
head_dim = 16
"""
