# SPDX-License-Identifier: MIT
"""The driver kformer-attention from outside: command line, decks, exit codes, and result files.

ctest runs this with the program in KFORMER_ATTENTION and the sources in KFORMER_SOURCE.
"""

import unittest

import driver_case
from attention_case import AttentionTest
from driver_case import h5py, needs_h5py, texts, words

if h5py is not None:
    import numpy as np

try:
    import xarray as xr
except ImportError:
    xr = None


class CommandLine(driver_case.CommandLine, AttentionTest):
    pass


class Output(driver_case.Output, AttentionTest):
    pass


@needs_h5py
class Interruption(driver_case.Interruption, AttentionTest):
    pass


class Decks(AttentionTest):
    def test_every_deck_of_the_project_is_good(self):
        self.check_decks_of_the_project("attention_compare", 5)

    def assert_refused(self, sweep, words, tables=""):
        self.deck(sweep + tables)
        self.assertIn(words, self.run_driver("deck.toml", expect=3).stderr)
        self.assertEqual(self.files(), ["deck.toml"])

    def test_unknown_keys_are_refused_with_their_place(self):
        self.assert_refused("seqlen = 4\n", "deck.toml:12:1: error: unknown key 'seqlen' in [sweep]")
        self.assert_refused("seq_len = 4\n", "unknown key 'soft_cap' in [attention]", "[attention]\nsoft_cap = 1.0\n")
        self.assert_refused("seq_len = 4\n", "unknown table [model]", "[model]\n")

    def test_a_deck_of_another_kind_is_refused(self):
        (self.folder / "layer.toml").write_text('schema = 1\nkind = "layer_sweep"\n')
        self.assertIn("error: this is a deck of kformer-layer, not of kformer-attention",
                      self.run_driver("layer.toml", expect=3).stderr)

    def test_values_out_of_range_are_refused(self):
        self.assert_refused("seq_len = 4\nq_len = -1\n", "'sweep.q_len' must be an integer in [0, 16777216]")
        self.assert_refused("seq_len = 4\n", "'attention.softcap' must be a number in [0, 1e+38]",
                            "[attention]\nsoftcap = -1.0\n")
        self.assert_refused("seq_len = 4\n", "'limits.device_bytes' must be a number of bytes, or a text such as",
                            "[limits]\ndevice_bytes = -1\n")

    def test_missing_extents_are_refused(self):
        self.assert_refused("", "missing key 'seq_len' in [sweep]; set it, or add [tensors]")
        (self.folder / "deck.toml").write_text('schema = 1\nkind = "attention_compare"\n')
        text = self.run_driver("deck.toml", expect=3).stderr
        for key in ["num_attention_heads", "head_dim", "seq_len"]:
            self.assertIn(f"missing key '{key}' in [sweep]", text)

    def test_heads_that_do_not_divide_are_refused_unless_excluded(self):
        self.deck("seq_len = 4\n")
        override = ["--set", "sweep.num_key_value_heads=[2, 3]"]
        text = self.run_driver("deck.toml", *override, expect=3).stderr
        self.assertIn("'sweep.num_key_value_heads' = 3 does not divide 'sweep.num_attention_heads' = 4", text)
        self.deck("seq_len = 4\n[[sweep.exclude]]\nnum_key_value_heads = 3\n")
        self.assertIn("4 cases of", self.run_driver("deck.toml", "-n", "--set", 'sweep.execution_space="default"',
                                                    *override).stdout)

    def test_axes_of_a_zip_must_go_together(self):
        self.assert_refused('mode = "zip"\nseq_len = [4, 5, 6]\n', "but 'direction' has 2")

    def test_the_sweep_wins_over_the_options(self):
        self.deck('seq_len = 4\ncausal = false\nimpl = "flash"\ndirection = "forward"\nexecution_space = "default"\n'
                  "[attention]\ncausal = true\nwindow = 3\n")
        case, = self.run_driver("deck.toml", "-n").stdout.splitlines()[1:]
        self.assertIn(" full window 3 ", case)

    def test_shapes_beside_tensors_are_refused(self):
        self.assert_refused("seq_len = 4\n", "'sweep.seq_len' comes from the file of [tensors]; leave it out",
                            '[tensors]\ninput = "none.safetensors"\n')


@needs_h5py
class Results(AttentionTest):
    def test_the_smoke_deck(self):
        listed = self.run_driver(self.SMOKE_DECK, "--dry-run").stdout.splitlines()[1:]
        path, _ = driver_case.smoke_run(self.PROGRAM, self.SMOKE_DECK)
        with h5py.File(path) as file:
            cases = file["cases"]
            self.assertEqual(file.attrs["complete"], 1)
            self.assertEqual(words(cases["status"]), ["ok"] * len(listed))
            self.assertTrue((cases["time"][()] > 0).all() and (cases["flops"][()] > 0).all())
            self.assertTrue((cases["max_rel_err"][()] < 0.1).all())
            self.assertTrue((cases["mean_abs_err"][()] <= cases["max_abs_err"][()]).all())
            self.assertTrue((cases["share_of_fma_peak"][()] <= cases["share_of_limit"][()] * (1 + 1e-12)).all())
            np.testing.assert_array_equal(cases["predicted_bytes"][()], cases["peak_bytes"][()])
            self.assertTrue((file["machine/fma_rate_f32"][()] > file["machine/fma_rate_f64"][()] / 2).all())
            of_bytes = file["machine/dot_rate_int8"][()]
            self.assertTrue(((of_bytes == 0) | (of_bytes > file["machine/fma_rate_f32"][()] / 2)).all())
            for kind in ["copy", "stream", "update", "read"]:
                self.assertTrue((file[f"machine/{kind}_bandwidth"][()] > 1e8).all(), kind)
            self.assertTrue((file["machine/transfer_rate"][()] > 1e8).all())
            self.check_limits(cases)
            self.check_flops(cases)
            self.check_bytes(cases)
            self.check_kernels(cases)
            self.check_independence(cases, len(listed))
            self.check_comparison(file)
            self.assertEqual({name.split("::")[0] for name in texts(file["kernels/name"])}, {"kformer"})

    def test_extents_whose_product_leaves_64_bits_are_out_of_memory(self):
        (self.folder / "deck.toml").write_text("""schema = 1
kind = "attention_compare"
[profile]
machine_limits = false
[sweep]
num_attention_heads = 65536
head_dim = 65536
batch = 16777216
seq_len = 16777216
""")
        out = self.run_driver("deck.toml", expect=7).stdout
        self.assertRegex(out, r"the product (\d+ x )+\d+ does not fit in 64 bits; make the extents")
        with h5py.File(self.folder / "deck.h5") as file:
            cases = file["cases"]
            self.assertEqual(set(words(cases["status"])), {"out_of_memory"})
            # Of 2^64 rows of queries, and as many of keys.
            expected = {"forward": 2.0**84 + 2.0**66, "backward": 2.0**85 + 2.0**66}
            self.assertEqual(cases["bytes_min"][()].tolist(), [expected[name] for name in words(cases["direction"])])

    # Nearly every probability is 0 or 1: there float is exact by chance, and double is not.
    def test_a_saturated_softmax_passes_the_check(self):
        for scale in [3.0, 30.0, 1e3]:
            with self.subTest(scale=scale):
                self.deck('seq_len = [2, 5, 33]\ndirection = "backward"\ndtype = ["f32", "f64", "bf16", "f16"]\n'
                          'impl = ["flash", "standard"]\ncausal = [true, false]\nexecution_space = "default"\n'
                          f"[attention]\nscale = {scale}\n")
                self.run_driver("deck.toml", "--set", "check.fail=true", "--set", "sweep.head_dim=64")
                (self.folder / "deck.h5").unlink()

    def seen(self, q_len, seq_len, window, causal):
        """Which query sees which key."""
        position = np.arange(q_len)[:, None] + seq_len - q_len
        key = np.arange(seq_len)
        seen = (key <= position) if causal == "yes" else np.ones((q_len, seq_len), bool)
        return seen & (np.abs(position - key) < window) if window else seen

    # Keys that no query sees need not be read; they have gradients.
    def check_bytes(self, cases):
        columns = [cases[name][()].tolist() for name in ["batch", "num_attention_heads", "num_key_value_heads", "head_dim",
                                                         "v_head_dim", "q_len", "seq_len", "window"]]
        for batch, heads, kv_heads, dim, v_dim, q_len, seq_len, window, causal, direction, dtype, found in zip(
                *columns, words(cases["causal"]), words(cases["direction"]), texts(cases["dtype"]),
                cases["bytes_min"][()].tolist()):
            size = {"f64": 8, "f32": 4}.get(dtype, 2)
            queries, keys = heads * q_len, kv_heads * self.seen(q_len, seq_len, window, causal).any(0).sum()
            rows = queries + keys + (queries + kv_heads * seq_len if direction == "backward" else 0)
            self.assertEqual(found, batch * (size * (dim + v_dim) * rows + max(size, 4) * queries))

    def check_flops(self, cases):
        columns = [cases[name][()].tolist() for name in ["batch", "num_attention_heads", "head_dim", "v_head_dim",
                                                         "q_len", "seq_len", "window"]]
        for batch, heads, dim, v_dim, q_len, seq_len, window, causal, direction, flops in zip(
                *columns, words(cases["causal"]), words(cases["direction"]), cases["flops"][()].tolist()):
            seen = self.seen(q_len, seq_len, window, causal)
            pairs = q_len * seq_len / 2 if causal == "yes" and q_len == seq_len and not window else seen.sum()
            self.assertEqual(flops, 2 * batch * heads * (dim + v_dim) * pairs * (2.5 if direction == "backward" else 1))

    def check_kernels(self, cases):
        for kernels, impl, direction in zip(texts(cases["kernels"]), texts(cases["impl"]), words(cases["direction"])):
            functions = [entry.split(":")[0] for entry in kernels.split()]
            op = {"flash": "attention", "standard": "standard_attention"}[impl]
            backward = {f"{op}_backward"} if direction == "backward" else set()
            self.assertEqual(set(functions), {f"{op}_forward"} | backward)

    def check_comparison(self, file):
        table = file["comparison"]
        np.testing.assert_array_equal(table["seq_len"][()], np.unique(file["cases/seq_len"][()]))
        standard, flash = table["time_standard"][()], table["time_flash"][()]
        decided = np.isfinite(table["speedup"][()])
        np.testing.assert_array_equal(table["speedup"][()][decided], (standard / flash)[decided])
        self.assertEqual(np.isfinite(standard).sum() + np.isfinite(flash).sum(), len(file["cases/time_median"]))
        for row, crossover in zip(table["speedup"][()], table["crossover_seq_len"][()]):
            timed = [(length, speedup) for length, speedup in zip(table["seq_len"][()], row) if np.isfinite(speedup)]
            good = [length for i, (length, _) in enumerate(timed) if all(s > 1 for _, s in timed[i:])]
            self.assertEqual(crossover, good[0] if good else -1)

    @unittest.skipIf(xr is None, "xarray is not installed")
    def test_xarray_opens_every_group_with_default_arguments(self):
        self.deck('seq_len = [4, 8]\nexecution_space = "default"\n')
        self.run_driver("deck.toml", "--set", "profile.machine_limits=true", "-o", "out.h5")
        groups = {name: xr.open_dataset(self.folder / "out.h5", group=name).load()
                  for name in ["cases", "comparison", "machine", "memory/classes", "memory/spaces", "provenance"]}
        self.assertEqual(groups["comparison"]["speedup"].dims, ("configuration", "seq_len"))
        self.assertEqual(groups["comparison"]["seq_len"].values.tolist(), [4, 8])
        self.assertEqual(groups["comparison"]["crossover_seq_len"].dims, ("configuration",))
        self.assertEqual(groups["cases"]["time"].dims, ("case", "repeat"))

    def test_flash_needs_less_memory_and_grows_linearly(self):
        self.deck('seq_len = [512, 1024, 2048]\nexecution_space = "default"\n')
        self.run_driver("deck.toml", *(f"--set={key}" for key in
                                       ["check.reference=none", "timing.repeats=1", "timing.warmup=0"]))
        with h5py.File(self.folder / "deck.h5") as file:
            ratio = file["comparison/memory_ratio"][()]
            self.assertTrue((ratio[:, 2] < 0.2).all(), ratio)
            peaks = dict(zip(zip(texts(file["cases/impl"]), words(file["cases/direction"]),
                                 file["cases/seq_len"][()].tolist()), file["cases/peak_bytes"][()].tolist()))
        for direction in ["forward", "backward"]:
            self.assertLess(peaks["flash", direction, 2048], 2.01 * peaks["flash", direction, 1024])
            self.assertGreater(peaks["standard", direction, 2048], 3 * peaks["standard", direction, 1024])

    def test_no_kernel_allocates_in_small_cases_or_large_ones(self):
        self.deck('seq_len = [3, 80]\ndtype = ["f32", "f64", "bf16"]\nexecution_space = "default"\n')
        text = self.run_driver("deck.toml", "--set", "sweep.head_dim=[16, 256, 512]").stdout
        self.check_scratch(self.folder / "deck.h5", 8 << 20)
        self.assertRegex(text, r"scratch: \d\S+ .iB of the kernels, reserved for the whole run, in no peak\n")

    def test_many_heads_of_one_query_allocate_nothing(self):
        self.deck('q_len = 1\nseq_len = [40, 300]\ndirection = "forward"\nexecution_space = "default"\n')
        self.run_driver("deck.toml", "--set", "sweep.num_attention_heads=1024", "--set",
                        "sweep.num_key_value_heads=[8, 64]", "--set", "sweep.head_dim=256")
        self.check_scratch(self.folder / "deck.h5", 8 << 20)

    def check_judged(self, sweep, cases, *options, **environment):
        self.deck(f'execution_space = "default"\n{sweep}')
        self.run_driver("deck.toml", "--set", "output.overwrite=true", *options, **environment)
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["ok"] * cases, texts(file["cases/message"]))
            self.check_independence(file["cases"], cases)
            for impl, check_kernels in zip(texts(file["cases/impl"]), texts(file["cases/check_kernels"])):
                functions = {name.split(":")[0] for name in check_kernels.split()}
                # Flash attention is the only one with a log-sum-exp, and the other form of standard attention.
                self.assertIn("attention_forward", functions)
                self.assertEqual("standard_attention_forward" in functions, impl == "flash")

    def test_unusual_shapes_are_no_false_alarm(self):
        wide = ["--set", "sweep.head_dim=96", "--set", "sweep.v_head_dim=64"]
        self.check_judged("q_len = 64\nseq_len = 100\ncausal = [false, true]\n", 8, *wide)
        self.check_judged("q_len = 1\nseq_len = [1, 100]\n", 8, *wide)
        self.check_judged('window = 2\nseq_len = [64, 256, 512]\ndtype = ["f32", "bf16"]\n', 24)
        self.check_judged('dtype = "f16"\nbatch = 2\nseq_len = 2\n', 4, "--set", "sweep.head_dim=256")

    def test_no_kernel_sets_its_own_tolerance(self):
        for forced in ["attention:kokkos", "attention_backward:kokkos", "attention:reference",
                       "standard_attention:kokkos", "standard_attention_backward:kokkos"]:
            with self.subTest(forced=forced):
                self.check_judged('dtype = ["f32", "bf16"]\nseq_len = 40\n', 8, KFORMER_KERNEL=forced)

    def test_a_kernel_that_is_forced_for_a_case_is_not_forced_for_its_check(self):
        # It takes few queries, and the case runs no flash attention.
        self.deck('impl = "standard"\nseq_len = 40\nexecution_space = "default"\n')
        self.run_driver("deck.toml", KFORMER_KERNEL="attention:simd_decode_generic")
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["ok"] * 2, texts(file["cases/message"]))

    def test_what_only_flash_attention_does_is_judged(self):
        self.deck('impl = "flash"\nexecution_space = "default"\nseq_len = 40\n[attention]\nsoftcap = 2.0\n')
        for forced in ["", "attention_backward:reference"]:
            self.run_driver("deck.toml", "--set", "output.overwrite=true", KFORMER_KERNEL=forced)
            with h5py.File(self.folder / "deck.h5") as file:
                self.assertEqual(words(file["cases/status"]), ["ok"] * 2, texts(file["cases/message"]))

    def test_errors_that_are_only_recorded_are_not_judged(self):
        self.deck('seq_len = 8\nexecution_space = "default"\n')
        self.run_driver("deck.toml", "--set", "check.fail=false")
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(set(words(file["cases/status"])), {"unchecked"})
            self.assertEqual(set(texts(file["cases/message"])), {"errors recorded but not judged: check.fail is false"})
            self.assertTrue(np.isfinite(file["cases/max_abs_err"][()]).all())

    def test_a_long_case_is_not_checked(self):
        self.deck('seq_len = 8\nexecution_space = "default"\n')
        for setting, reason in (("check.max_seq_len=4", "seq_len 8 is more than check.max_seq_len = 4"),
                                ("check.reference=none", 'check.reference is "none"')):
            self.run_driver("deck.toml", "--set", setting, "--set", "output.overwrite=true")
            with h5py.File(self.folder / "deck.h5") as file:
                self.assertEqual(set(words(file["cases/status"])), {"unchecked"})
                self.assertEqual(set(texts(file["cases/message"])), {f"not checked: {reason}"})
                self.assertTrue(np.isnan(file["cases/max_abs_err"][()]).all())

    def test_a_case_beyond_the_limit_is_skipped(self):
        self.deck('seq_len = [4, 512]\nexecution_space = "default"\ndirection = "forward"\n'
                  "[limits]\ndevice_bytes = 1000000\n")
        self.run_driver("deck.toml")
        with h5py.File(self.folder / "deck.h5") as file:
            status = dict(zip(zip(texts(file["cases/impl"]), file["cases/seq_len"][()].tolist()),
                              words(file["cases/status"])))
            self.assertEqual(status, {("standard", 4): "ok", ("flash", 4): "ok", ("standard", 512): "skipped_memory",
                                      ("flash", 512): "ok"})
            self.assertIn("but limits.device_bytes is 976.56 KiB", "".join(texts(file["cases/message"])))

    def test_a_case_that_does_not_fit_is_recorded_or_aborts(self):
        self.deck('seq_len = [4194304, 4]\nexecution_space = "default"\ndirection = "forward"\nimpl = "standard"\n')
        self.run_driver("deck.toml", "-o", "recorded.h5")
        with h5py.File(self.folder / "recorded.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["out_of_memory", "ok"])
            self.assertIn("the longest sequence that fits is", texts(file["cases/message"])[0])
        done = self.run_driver("deck.toml", "-o", "aborted.h5", "--set", "run.on_oom=abort", expect=6)
        self.assertIn("the longest sequence that fits is", done.stderr)

    def test_standard_attention_refuses_what_it_lacks(self):
        self.deck('seq_len = 8\nexecution_space = "default"\n[attention]\nsoftcap = 5.0\n')
        self.run_driver("deck.toml")
        with h5py.File(self.folder / "deck.h5") as file:
            status = list(zip(texts(file["cases/impl"]), words(file["cases/status"])))
            self.assertEqual(status, [("standard", "unsupported"), ("flash", "ok")] * 2)
            self.assertIn('standard attention has no soft-capping; use impl = "flash"', texts(file["cases/message"]))
            self.assertNotIn("comparison", file)


if __name__ == "__main__":
    unittest.main(verbosity=2)
