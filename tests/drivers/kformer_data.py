# SPDX-License-Identifier: MIT
"""The driver kformer-data from outside.

ctest runs this with the program in KFORMER_DATA_PROGRAM and the sources in KFORMER_SOURCE.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import unittest

from driver_case import SOURCE, DriverTest

CHAT = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo\n"}]}


class DataTest(DriverTest):
    NAME = "kformer-data"
    PROGRAM = os.environ["KFORMER_DATA_PROGRAM"]

    def setUp(self):
        super().setUp()
        (self.folder / "a.txt").write_text("Once upon a time")
        (self.folder / "b.txt").write_text("there was")
        (self.folder / "c.jsonl").write_text(json.dumps(CHAT) + "\n")

    def data(self, command, *arguments, expect=0):
        return self.run_driver(command, "--tokenizer-format", "byte", "--cache", "cache", *arguments, expect=expect)

    def facts(self, done):
        return dict(re.findall(r"^([a-z ]+?) {2,}(.*)$", done.stdout, flags=re.M))


class CommandLine(DataTest):
    def test_help_names_options_and_exit_codes(self):
        for command in ([], ["prepare"], ["inspect"]):
            self.assertIn("4 file error", self.run_driver(*command, "--help").stdout)
        text = self.run_driver("inspect", "--help").stdout
        for word in ["FILES", "--format", "text, tokens, chat, synthetic", "--tokenizer", "--packing", "NAME=stream", "best_fit",
                     "--seq-len", "--chat-style", "--cache", "--no-cache", "--task", "--samples", "--sequence"]:
            self.assertIn(word, text)

    def test_version(self):
        self.assertRegex(self.run_driver("--version").stdout, r"^kformer-data \d+\.\d+\.\d+ ")

    def test_usage_errors(self):
        self.run_driver(expect=2)
        self.assertIn("FILES", self.run_driver("prepare", expect=2).stderr)
        self.assertIn("--tokenizer", self.run_driver("prepare", "a.txt", expect=2).stderr)
        self.assertIn("FILES", self.data("prepare", "-f", "synthetic", "a.txt", expect=2).stderr)
        self.assertIn("seq-len", self.data("prepare", "a.txt", "-s", "0", expect=2).stderr)
        self.assertIn("novel", self.data("prepare", "a.txt", "-f", "novel", expect=2).stderr)
        self.assertIn("did you mean '--samples'?", self.data("prepare", "a.txt", "--samlpes", "3", expect=2).stderr)
        self.data("prepare", "a.txt", "--no-cache", expect=2)
        self.assertNotIn("cache", self.files())

    def test_the_page_names_every_option(self):
        page = (SOURCE / "docs/data.md").read_text()
        for option in set(re.findall(r"--[a-z-]+", self.run_driver("inspect", "--help").stdout)) - {"--help"}:
            self.assertIn(f"`{option}`", page)


class Data(DataTest):
    def test_preparing_fills_the_cache(self):
        facts = self.facts(self.data("prepare", "a.txt", "b.txt", "-s", "8"))
        self.assertEqual(facts["documents"], "2")
        self.assertEqual(facts["tokens"], "27, 17 in the longest document")
        self.assertEqual(facts["sequences"], "3 of 8 tokens, stream, 100.00 % full")
        self.assertEqual(facts["target tokens"], "24")
        self.assertEqual(facts["dropped tokens"], "2, at the end")
        self.assertEqual(facts["from the cache"], "0 of 2 files")
        self.assertEqual(facts["cache"], "cache")
        self.assertEqual(len(list((self.folder / "cache").iterdir())), 2)
        again = self.facts(self.data("prepare", "a.txt", "b.txt", "-s", "8"))
        self.assertEqual(again["from the cache"], "2 of 2 files")
        self.assertEqual(again["fingerprint"], facts["fingerprint"])

    def test_packing_is_reported(self):
        facts = self.facts(self.data("prepare", "a.txt", "b.txt", "-s", "16", "-p", "best_fit"))
        self.assertEqual(facts["sequences"], "2 of 16 tokens, best_fit, 84.38 % full")
        self.assertEqual(facts["at least"], "2 sequences, however they are packed")
        self.assertEqual(facts["padding"], "5 places without a token")
        self.assertEqual(facts["target tokens"], "25")
        self.assertNotIn("dropped tokens", facts)

    def test_lengths_of_documents_have_bars(self):
        for number, letters in enumerate((1, 1, 1, 1, 9)):  # and the token that begins a text
            (self.folder / f"{number}.txt").write_text("x" * letters)
        text = self.data("inspect", *(f"{number}.txt" for number in range(5)), "-s", "4", "-p", "pad").stdout
        rows = re.findall(r"^ *(\d+) to +(\d+) +(\d+)(?:  (#+))?$", text, flags=re.M)
        self.assertEqual(rows, [("0", "0", "0", ""), ("1", "1", "0", ""), ("2", "3", "4", "#" * 40), ("4", "7", "0", ""),
                                ("8", "15", "1", "#" * 10)])

    def test_what_is_generated_follows_the_options(self):
        def run(*options):
            return self.run_driver("inspect", "-f", "synthetic", "-p", "pad", "-s", "40", *options).stdout

        text = run("--task", "reverse", "--samples", "7", "--max-length", "3", "--seed", "1", "-n", *map(str, range(7)))
        pairs = re.findall(r"  \| <s>(.*)=\n  > (.*)</s>\n", text)
        self.assertEqual(len(pairs), 7)
        self.assertIn("documents       7\n", text)
        self.assertTrue(all(answer == letters[::-1] and 1 <= len(letters) <= 3 for letters, answer in pairs), pairs)
        options = ("--task", "reverse", "--samples", "7", "--max-length", "3")
        prints = [re.search("^fingerprint +(.*)$", run(*options, "--seed", seed), re.M)[1] for seed in ("1", "2", "1")]
        self.assertEqual(prints[0], prints[2])
        self.assertNotEqual(prints[0], prints[1])

    def test_the_default_cache(self):
        os.environ["XDG_CACHE_HOME"] = str(self.folder / "xdg")
        self.addCleanup(os.environ.pop, "XDG_CACHE_HOME")
        self.run_driver("prepare", "a.txt", "--tokenizer-format", "byte", "-s", "8")
        self.assertEqual(len(list((self.folder / "xdg/kformer").iterdir())), 1)
        facts = self.facts(self.run_driver("prepare", "b.txt", "--tokenizer-format", "byte", "-s", "8", "--no-cache"))
        self.assertEqual(facts["cache"], "none")
        self.assertEqual(len(list((self.folder / "xdg/kformer").iterdir())), 1)

    def test_a_conversation_with_its_mask(self):
        text = self.data("inspect", "c.jsonl", "-f", "chat", "--chat-style", "chatml", "-p", "best_fit", "-s", "80").stdout
        self.assertIn("sequence 0: 13 targets, 13 padding\n tokens 0 to 66\n"
                      "  | <s><|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n\n"
                      "  > Yo\\n<|im_end|>\n"
                      "  | \\n\n", text)
        self.assertIn("document lengths\n", text)
        self.assertRegex(text, r"\n +64 to +127 +1  #{40}\n")

    def test_a_style_ends_answers_as_the_tokenizer_does(self):
        pieces = ["<unk>", "<|done|>", *map(chr, range(ord("!"), ord("~") + 1))]
        (self.folder / "tokenizer.json").write_text(json.dumps({
            "model": {"type": "BPE", "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": [], "unk_token": "<unk>"},
            "added_tokens": [{"id": 1, "content": "<|done|>", "special": True, "normalized": False}]}))
        (self.folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|done|>"}))
        text = self.run_driver("inspect", "c.jsonl", "-f", "chat", "-t", "tokenizer.json", "--chat-style", "zephyr",
                               "--no-cache", "-p", "pad", "-s", "80").stdout
        self.assertIn("\n  > Yo<unk><|done|>\n", text)

    def test_packed_documents_and_chosen_sequences(self):
        text = self.data("inspect", "a.txt", "b.txt", "-p", "best_fit", "-s", "16", "-n", "0", "1").stdout
        self.assertIn("sequence 0: 16 targets, 0 padding\n tokens 0 to 15\n  | <s>\n  > Once upon a tim\n", text)
        self.assertIn("sequence 1: 9 targets, 5 padding\n tokens 0 to 0\n  | e\n tokens 1 to 10\n  | <s>\n  > there was\n",
                      text)
        self.assertIn("sequence 2 of 2", self.data("inspect", "a.txt", "b.txt", "-p", "best_fit", "-s", "16", "-n", "2",
                                                   expect=1).stderr)

    def test_samples_need_nothing(self):
        text = self.run_driver("inspect", "-f", "synthetic", "--task", "sum", "--samples", "5", "-p", "pad", "-s", "40").stdout
        prompt, answer = re.search(r"  \| <s>(.*)=\n  > (.*)</s>\n", text).groups()
        self.assertEqual(sum(map(int, prompt.split("+"))), int(answer))
        self.assertNotIn("cache", text)

    def write_tokens(self, *tokens):
        data = b"".join(token.to_bytes(2, "little") for token in tokens)
        header = f"{{'descr': '<u2', 'fortran_order': False, 'shape': ({len(tokens)},), }}\n".encode()
        (self.folder / "t.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data)

    def test_a_last_token_with_the_id_of_padding_is_shown(self):
        self.write_tokens(5, 6, 0)
        text = self.run_driver("inspect", "t.npy", "-f", "tokens", "-p", "pad", "-s", "4").stdout
        self.assertIn("sequence 0: 2 targets, 1 padding\n tokens 0 to 2\n  | 5\n  > 6 0\n", text)

    def test_token_files_need_no_tokenizer(self):
        self.write_tokens(3, 1, 4, 1, 5)
        text = self.run_driver("inspect", "t.npy", "-f", "tokens", "-s", "4").stdout
        self.assertIn("  | 3\n  > 1 4 1\n", text)
        self.assertIn("token 4 is 5", self.run_driver("prepare", "t.npy", "-f", "tokens", "-s", "4", "--vocab-size", "5",
                                                      expect=4).stderr)

    def test_data_that_is_wrong(self):
        self.assertIn("nowhere.txt", self.data("prepare", "nowhere.txt", expect=4).stderr)
        self.assertIn("needs 1025", self.data("prepare", "a.txt", expect=4).stderr)
        (self.folder / "c.jsonl").write_text("{}\n")
        self.assertIn("'c.jsonl', line 1: the line is not a conversation",
                      self.data("prepare", "c.jsonl", "-f", "chat", "--chat-style", "chatml", expect=4).stderr)
        (self.folder / "c.jsonl").write_text(json.dumps(CHAT) + "\n")
        self.assertIn("'c.jsonl', line 1: kformer::ChatTemplate::recognise: the model has no chat template",
                      self.data("prepare", "c.jsonl", "-f", "chat", expect=4).stderr)

    def test_texts_need_no_template(self):
        (self.folder / "p.jsonl").write_text(json.dumps({"prompt": "2+2=", "completion": "4"}) + "\n")
        text = self.data("inspect", "p.jsonl", "-f", "chat", "-p", "pad", "-s", "8").stdout
        self.assertIn("  | <s>2+2=\n  > 4</s>\n", text)

    def test_a_signal_leaves_whole_files_in_the_cache(self):
        (self.folder / "many.jsonl").write_text((json.dumps(CHAT) + "\n") * 300000)  # takes long
        chat = ("-f", "chat", "--chat-style", "chatml", "-s", "8")
        command = [self.PROGRAM, "prepare", "--tokenizer-format", "byte", "--cache", "cache", "c.jsonl", "many.jsonl", *chat]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            with self.subTest(number=number):
                run = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.addCleanup(run.kill)
                # The first file is finished, the second begins.
                while run.poll() is None and not list(self.folder.glob("cache/*.tokens")):
                    time.sleep(0.001)
                run.send_signal(number)
                output, errors = run.communicate(timeout=60)
                self.assertEqual((run.returncode, errors), (75, ""), output)
                self.assertRegex(output, r"^stopped \(signal: .+\); the cache keeps the files that were finished\n$")
                self.assertEqual(len(os.listdir(self.folder / "cache")), 1)
                facts = self.facts(self.data("prepare", "c.jsonl", *chat))
                self.assertEqual(facts["from the cache"], "1 of 1 files")
                shutil.rmtree(self.folder / "cache")


if __name__ == "__main__":
    unittest.main()
