# SPDX-License-Identifier: MIT
"""The driver kformer-generate on small models of every family, made here: each token and its log-probability against
an oracle that computes all tokens at once in double precision; and what the keys of [sampling] and [generate] do.

ctest runs this with the program in KFORMER_GENERATE and the sources in KFORMER_SOURCE.
"""

import json
import os
import unittest

from driver_case import DriverTest, h5py, needs_h5py, texts, words, write_safetensors

if h5py is not None:
    import llama_oracle
    import numpy as np

LLAMA = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 300,
         "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
         "tie_word_embeddings": True}
ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}
MODELS = {
    "llama": {"tie_word_embeddings": False},
    "llama 3": {"head_dim": 16, "rope_theta": 500.0, "rope_scaling": ROPE},
    "mistral": {"model_type": "mistral", "sliding_window": 5},
    "qwen2": {"model_type": "qwen2", "hidden_size": 36, "num_attention_heads": 6, "head_dim": 6, "intermediate_size": 37},
    "qwen3": {"model_type": "qwen3", "head_dim": 16, "hidden_size": 40},
    "odd sizes": {"hidden_size": 31, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 10,
                  "intermediate_size": 33, "vocab_size": 263, "num_hidden_layers": 3, "tie_word_embeddings": False},
}


class ModelTest(DriverTest):
    PROGRAM = os.environ["KFORMER_GENERATE"]
    SMALL = 'schema = 1\nkind = "generate"\n[profile]\nmachine_limits = false\n[weights]\npath = "model"\n[tokenizer]\nformat = "byte"\n'
    PROMPTS = ["A prompt that is longer than a window and a chunk", "", "ab"]

    def model(self, **changes):
        self.config = {**LLAMA, **changes}
        self.weights = llama_oracle.random_weights(self.config, np.random.default_rng(3))
        self.write()

    def write(self):
        folder = self.folder / "model"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        write_safetensors(folder / "model.safetensors", self.weights)

    def generate(self, expect=0, reference="none", forced="", **keys):
        prompts = "".join(f"[[prompt]]\ntext = {json.dumps(text)}\n" for text in self.PROMPTS)
        keys = {"max_new_tokens": 12, "stop_at_eos": False, **keys}
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        self.deck(f"[output]\noverwrite = true\n[check]\nreference = \"{reference}\"\n[generate]\n{lines}{prompts}")
        return self.run_driver("deck.toml", expect=expect, KFORMER_KERNEL=forced)


@needs_h5py
class Models(ModelTest):
    def check(self, tolerance, **cache):
        """Every new token is the most likely one, and its log-probability is right."""
        with h5py.File(self.folder / "deck.h5") as file:
            tokens = {name: file[f"tokens/{name}"][()] for name in ("generation", "id", "new", "log_probability")}
        rows = np.unique(tokens["generation"])
        self.assertGreaterEqual(len(rows), len(self.PROMPTS))
        for row in rows:
            mine = {name: values[tokens["generation"] == row] for name, values in tokens.items()}
            right = llama_oracle.log_probabilities(self.config, self.weights, mine["id"], **cache)
            new = np.flatnonzero(mine["new"])
            self.assertEqual(len(new), 12)
            chosen = right[new - 1, mine["id"][new]]
            np.testing.assert_allclose(mine["log_probability"][new], chosen, rtol=0, atol=tolerance)
            np.testing.assert_allclose(right[new - 1].max(-1), chosen, rtol=0, atol=2 * tolerance)

    def test_every_family_says_what_the_oracle_says(self):
        for name, changes in MODELS.items():
            self.model(**changes)
            for cache, chunk, batch in (("contiguous", 512, 1), ("paged", 7, 3), ("none", 512, 1)):
                with self.subTest(model=name, cache=cache):
                    self.generate(dtype="f64", kv_cache=cache, page_tokens=3, prefill_chunk=chunk, batch=batch)
                    self.check(1e-11)

    def test_a_window_with_sinks_hides_what_lies_between(self):
        self.model()
        for window, sinks, chunk in ((5, 2, 7), (1, 0, 1), (8, 1, 512)):
            with self.subTest(window=window, sinks=sinks):
                self.generate(dtype="f64", kv_cache="window", window=window, sinks=sinks, prefill_chunk=chunk, batch=2)
                self.check(1e-11, window=window, sinks=sinks)

    def test_keys_that_a_window_hides_need_not_be_read(self):
        key = 2 * 2 * 2 * 8 * 8  # bytes: keys and values, layers, heads, features of doubles

        def bytes_of(model, **cache):
            self.model(**model)
            self.generate(dtype="f64", **cache)
            with h5py.File(self.folder / "deck.h5") as file:
                return file["cases/decode_bytes_min"][0]

        # The first of the 12 new tokens belongs to the prompt.
        models = [bytes_of({"model_type": "mistral", "sliding_window": window}) for window in (6, 5, 3)]
        self.assertEqual(models[1] - models[2], 11 * 2 * key)
        caches = [bytes_of({}, kv_cache="window", window=window, sinks=1) for window in (5, 3)]
        self.assertEqual(caches[0] - caches[1], 11 * 2 * key)
        self.assertEqual(models[0], caches[0])

    def test_a_cache_of_8_bits_rounds_keys_and_values(self):
        self.model()
        for chunk in (1, 512):
            with self.subTest(chunk=chunk):
                self.generate(dtype="f64", kv_cache="int8", prefill_chunk=chunk, batch=2)
                self.check(1e-11, int8=True)

    # Few rows are summed in another order than many, unless the deck asks for the same bits.
    def test_with_batch_invariance_a_prompt_has_the_same_bits_in_any_batch_and_chunks(self):
        self.model(hidden_size=264, intermediate_size=300)
        self.PROMPTS = self.PROMPTS[:1]
        expected = None
        for batch, chunk in ((1, 64), (1, 1), (3, 64), (3, 1)):
            with self.subTest(batch=batch, chunk=chunk):
                self.generate(dtype="f32", batch_invariant=True, batch=batch, prefill_chunk=chunk)
                with h5py.File(self.folder / "deck.h5") as file:
                    tokens = {name: file[f"tokens/{name}"][()] for name in ("generation", "id", "new", "log_probability")}
                rows = np.unique(tokens["generation"])
                self.assertEqual(len(rows), batch)
                for row in rows:
                    of_row = tokens["generation"] == row
                    found = tokens["id"][of_row].tolist(), tokens["log_probability"][of_row & (tokens["new"] != 0)].tolist()
                    self.assertEqual(len(found[1]), 12)
                    expected = expected or found
                    self.assertEqual(found, expected)

    # Sums of many positive numbers, one after the other, are several times less exact than sums of sums.
    def test_sums_in_order_may_be_as_inexact_as_they_are(self):
        self.model(num_hidden_layers=1, intermediate_size=32768, tie_word_embeddings=False)
        for name, weight in self.weights.items():
            if "mlp" in name or "embed_tokens" in name:
                self.weights[name] = np.abs(weight)
        self.write()
        self.PROMPTS = ["ab"]
        self.generate(reference="recompute", dtype="f32", forced="linear:kokkos")
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["ok"])

    def test_a_tokenizer_of_another_model_is_an_error(self):
        self.model(vocab_size=100)
        self.assertIn("has token 256, but the model has only 100", self.generate(expect=1).stderr)

    def test_weights_that_are_no_numbers_are_an_error(self):
        self.model()
        self.weights["model.norm.weight"][3] = np.nan
        self.write()
        for reference in ("none", "recompute"):
            with self.subTest(reference=reference):
                done = self.generate(expect=1, reference=reference)
                self.assertIn("every logit is NaN or -inf", done.stderr)
                with h5py.File(self.folder / "deck.h5") as file:
                    self.assertEqual(words(file["cases/status"]), ["error"] * 3)
                    self.assertEqual(words(file["generations/end"]), ["no_token"] * 3)
                    self.assertEqual(texts(file["generations/text"]), [""] * 3)

    def test_a_prompt_longer_than_a_sequence_is_reported_and_the_others_go_on(self):
        self.model()
        done = self.generate(expect=1, max_seq_len=6)
        self.assertIn("has 50 tokens, the decoder was made for 6 positions", done.stderr)
        with h5py.File(self.folder / "deck.h5") as file:
            self.assertEqual(words(file["cases/status"]), ["error", "unchecked", "unchecked"])
            self.assertEqual(words(file["generations/end"]), ["max_seq_len", "max_seq_len"])
            self.assertEqual(file["cases/new_tokens"][()].tolist(), [0, 5, 3])


@needs_h5py
class Options(ModelTest):
    """Only the letters a to z have a logit, so that every token can be written in a deck."""

    PROMPTS = ["the prompt"]
    LETTERS = range(ord("a"), ord("z") + 1)

    def setUp(self):
        super().setUp()
        self.model(tie_word_embeddings=False)
        head = self.weights["lm_head.weight"]
        others = np.ones(len(head), bool)
        others[self.LETTERS] = False
        head[others] = 0
        self.write()

    def rows(self, sampling="", **keys):
        """The columns of /tokens and /generations by row."""
        self.SMALL = ModelTest.SMALL + (f"[sampling]\n{sampling}\n" if sampling else "")
        self.generate(**{"dtype": "f64", **keys})
        with h5py.File(self.folder / "deck.h5") as file:
            tokens = {name: file[f"tokens/{name}"][()] for name in ("id", "new", "log_probability")}
            of_row = [file["tokens/generation"][()] == row for row in range(len(file["generations/row"]))]
            self.results = {name: file[f"generations/{name}"][()] for name in ("mean_nll", "mean_nll_new", "seed")}
            self.results |= {name: file[f"cases/{name}"][0] for name in ("prefill_tokens", "decode_tokens", "new_tokens")}
            self.ends, self.texts = words(file["generations/end"]), texts(file["generations/text"])
        return [{name: column[mine] for name, column in tokens.items()} for mine in of_row]

    def drawn(self, sampling="", **keys):
        """The new tokens by row."""
        return [row["id"][row["new"] != 0].tolist() for row in self.rows(sampling, **keys)]

    def probabilities(self, row, temperature):
        """Of all tokens at the place of each new one."""
        new = np.flatnonzero(row["new"])
        scaled = llama_oracle.log_probabilities(self.config, self.weights, row["id"])[new - 1] / temperature
        scaled = np.exp(scaled - scaled.max(-1, keepdims=True))
        return row["id"][new], scaled / scaled.sum(-1, keepdims=True)

    def check_kept(self, sampling, temperature, kept):
        """Of 96 draws each is among the tokens that `kept(p, sorted p)` leaves, and not all are the most probable one."""
        greedy = 0
        for row in self.rows(f"temperature = {temperature}\n{sampling}", batch=8):
            for id, p in zip(*self.probabilities(row, temperature)):
                self.assertTrue(kept(p[id], np.sort(p)[::-1]), sampling)
                greedy += p[id] == p.max()
        self.assertLess(greedy, 96)

    def test_only_the_tokens_that_sampling_keeps_are_drawn(self):
        self.check_kept("top_k = 3", 1.5, lambda p, all: p >= all[2])
        # The token that exceeds the sum is the last one.
        self.check_kept("top_p = 0.5", 1.5, lambda p, all: all[all > p * (1 + 1e-9)].sum() < 0.5)
        self.check_kept("min_p = 0.3", 1.5, lambda p, all: p >= 0.3 * all[0] * (1 - 1e-9))

    def test_a_filter_that_keeps_one_token_is_greedy(self):
        greedy, = self.drawn()
        for sampling in ("top_k = 1", "top_p = 1e-9", "min_p = 1.0"):
            self.assertEqual(self.drawn(f"temperature = 3.0\n{sampling}"), [greedy], sampling)
        self.assertNotEqual(self.drawn("temperature = 3.0"), [greedy])

    def test_a_temperature_divides_logits(self):
        """The mean of log p at the temperature of the draws is minus the entropy."""
        temperature, excess, variance = 0.7, 0.0, 0.0
        for row in self.rows(f"temperature = {temperature}", batch=8, max_new_tokens=40):
            for id, p in zip(*self.probabilities(row, temperature)):
                log_p = np.log(p[p > 0])
                mean = (p[p > 0] * log_p).sum()
                excess += np.log(p[id]) - mean
                variance += (p[p > 0] * (log_p - mean) ** 2).sum()
        self.assertLess(abs(excess), 5 * np.sqrt(variance))

    def test_seeds_say_what_is_drawn(self):
        runs = [self.drawn(f"temperature = 2.0\nseed = {seed}", batch=2) for seed in (1, 2, 1)]
        self.assertEqual(self.results["seed"].tolist(), [1, 1])
        self.assertNotEqual(runs[0][0], runs[0][1])
        self.assertNotEqual(runs[0], runs[1])
        self.assertEqual(runs[0], runs[2])

    def test_repeated_tokens_are_penalised(self):
        """Of the prompt, too. A token that is no letter has the logit 0."""
        runs = []
        for window in (0, 1, 5):
            row, = self.rows(f"repetition_penalty = 1.5\nrepetition_window = {window}", max_new_tokens=30)
            all = llama_oracle.log_probabilities(self.config, self.weights, row["id"])
            for place in np.flatnonzero(row["new"]):
                logits = all[place - 1] - all[place - 1, 0]
                repeated = np.unique(row["id"][place - window if window else 0:place])
                logits[repeated] = np.where(logits[repeated] > 0, logits[repeated] / 1.5, logits[repeated] * 1.5)
                self.assertAlmostEqual(logits[row["id"][place]], logits.max(), delta=1e-10)
            runs.append(row["id"].tolist())
        self.assertEqual(len({*map(tuple, runs)}), 3)

    def test_a_stop_string_ends_a_sequence(self):
        text = bytes(self.drawn()[0]).decode()
        stop = text[5:7]
        self.PROMPTS = [f"the prompt {stop}"]
        text = bytes(self.drawn()[0]).decode()
        stop = text[5:7]
        for batch in (1, 2):
            self.rows(stop=["#", stop], batch=batch)
            self.assertEqual(self.texts, [text[:text.index(stop) + 2]] * batch)
            self.assertEqual(self.ends, ["stop_string"] * batch)
        self.rows(stop="#")
        self.assertEqual((self.texts, self.ends), ([text], ["max_new_tokens"]))

    def test_a_token_that_ends_texts_ends_a_sequence(self):
        ids, = self.drawn()
        self.config["eos_token_id"] = ids[4]
        self.write()
        end = ids.index(ids[4]) + 1
        self.assertEqual(self.drawn(stop_at_eos=True), [ids[:end]])
        self.assertEqual(self.ends, ["end_of_text"])
        self.assertEqual(self.drawn(), [ids])
        self.assertEqual(self.ends, ["max_new_tokens"])

    def test_tokens_have_the_log_probabilities_that_the_deck_asks_for(self):
        row, = self.rows()
        all = llama_oracle.log_probabilities(self.config, self.weights, row["id"])
        right = all[np.arange(len(row["id"]) - 1), row["id"][1:]]
        self.assertTrue(np.isnan(row["log_probability"][0]))
        np.testing.assert_allclose(row["log_probability"][1:], right, rtol=0, atol=1e-11)
        self.assertAlmostEqual(self.results["mean_nll"][0], -right.mean(), delta=1e-11)
        self.assertAlmostEqual(self.results["mean_nll_new"][0], -right[-12:].mean(), delta=1e-11)
        row, = self.rows(score_prompt=False)
        np.testing.assert_allclose(row["log_probability"][-12:], right[-12:], rtol=0, atol=1e-11)
        self.assertTrue(np.isnan(row["log_probability"][:-12]).all())
        self.assertAlmostEqual(self.results["mean_nll"][0], -right[-12:].mean(), delta=1e-11)
        row, = self.rows(log_probabilities=False)
        self.assertTrue(np.isnan(row["log_probability"][-12:]).all())
        np.testing.assert_allclose(row["log_probability"][1:-12], right[:-12], rtol=0, atol=1e-11)

    def test_logits_behind_the_last_token_are_kept(self):
        rows = self.rows("temperature = 2.0", last_logits=True, batch=2)
        self.assertNotEqual(*(row["id"][-1] for row in rows))
        with h5py.File(self.folder / "deck.h5") as file:
            all = file["logits/last_logits"][()]
        for row, logits in zip(rows, all):
            right = llama_oracle.log_probabilities(self.config, self.weights, row["id"])[-1]
            np.testing.assert_allclose(logits - np.log(np.exp(logits).sum()), right, rtol=0, atol=1e-11)

    def test_a_prompt_that_rows_share_is_computed_once(self):
        prompt = 1 + len(self.PROMPTS[0])
        for share, computed in ((True, prompt), (False, 3 * prompt - 2)):
            expected = self.drawn(share_prefix=share, batch=3)
            self.assertEqual(expected, [expected[0]] * 3)
            self.assertEqual([self.results[f"{name}_tokens"] for name in ("prefill", "decode", "new")], [computed, 33, 36])


if __name__ == "__main__":
    unittest.main(verbosity=2)
