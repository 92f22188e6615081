# SPDX-License-Identifier: MIT
"""What kformer-generate leaves when it is interrupted, or cannot write.

ctest runs this with the program in KFORMER_GENERATE and the sources in KFORMER_SOURCE.
"""

import os
import re
import resource
import signal
import subprocess
import unittest

import driver_case
from driver_case import DriverTest, h5py, needs_h5py, texts, words

PROMPT = "A text of a user. " * 1000


class FaultTest(DriverTest):
    PROGRAM = os.environ["KFORMER_GENERATE"]
    SMALL = f"""schema = 1
kind = "generate"
[profile]
machine_limits = false
[weights]
path = "{driver_case.SOURCE}/inputs/tiny-llama"
[tokenizer]
format = "byte"
"""

    def setUp(self):
        super().setUp()
        (self.folder / "prompt.txt").write_text(PROMPT)

    def long_deck(self, new_tokens, chunk):
        self.deck(f"[generate]\nmax_new_tokens = {new_tokens}\nprefill_chunk = {chunk}\nstop_at_eos = false\n"
                  '[[prompt]]\nfile = "prompt.txt"\n')


@needs_h5py
class Interruption(FaultTest):
    SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)

    def interrupt(self, number, printed):
        """Sends the signal as soon as so many bytes are printed, and returns the file that the run leaves, open."""
        run = subprocess.Popen([self.PROGRAM, "deck.toml"], cwd=self.folder, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        self.addCleanup(run.kill)
        self.assertEqual(len(run.stdout.read(printed)), printed, "the run ended by itself")
        run.send_signal(number)
        _, said = run.communicate(timeout=300)
        self.assertEqual(run.returncode, 75, said)
        name = re.search(rb"^stopped \(signal: .*\); the finished generations are in (.*), and --resume goes on with them$", said, re.MULTILINE)[1].decode()
        self.assertEqual(name, "deck.h5.part")
        self.assertFalse((self.folder / "deck.h5").exists())
        file = h5py.File(self.folder / name)
        self.addCleanup(file.close)
        self.assertEqual(file.attrs["complete"], 0)
        self.assertEqual(words(file["generations/end"]), ["interrupted"])
        (self.folder / name).unlink()  # it would keep the next run from starting
        return file

    def test_a_signal_in_the_prompt_ends_the_run(self):
        # One token at a time, after the whole prompt is printed.
        self.long_deck(4, 1)
        for number in self.SIGNALS:
            with self.subTest(number=number):
                file = self.interrupt(number, len(PROMPT))
                self.assertEqual(file["generations/new_tokens"][0], 0)
                self.assertEqual(file["generations/prompt_tokens"][0], len(PROMPT) + 1)

    def test_a_signal_between_new_tokens_keeps_them(self):
        (self.folder / "prompt.txt").write_text("A text")
        self.long_deck(100000, 512)
        for number in self.SIGNALS:
            with self.subTest(number=number):
                file = self.interrupt(number, 200)
                new = file["generations/new_tokens"][0]
                self.assertTrue(60 < new < 100000, new)
                self.assertEqual(file["tokens/new"][()].sum(), new)

    def test_a_run_is_resumed(self):
        self.deck("[generate]\nmax_new_tokens = 800\nstop_at_eos = false\nlast_logits = true\n[sampling]\ntemperature = 1.0\n"
                  + "".join(f'[[prompt]]\ntext = "Text {i}"\n' for i in range(3)))
        whole = subprocess.run([self.PROGRAM, "deck.toml", "-o", "whole.h5"], cwd=self.folder, check=True,
                               capture_output=True).stdout
        with subprocess.Popen([self.PROGRAM, "deck.toml"], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as run:
            # Into the second of three texts.
            begin = run.stdout.read(whole.index(b"== prompt2") + 100)
            self.assertEqual(begin, whole[:len(begin)])
            run.send_signal(signal.SIGTERM)
            said = run.communicate(timeout=300)[1].decode()
        self.assertEqual(run.returncode, 75, said)
        self.assertIn("; the finished generations are in deck.h5.part, and --resume goes on with them", said)
        done = self.run_driver("deck.toml", "--resume", "--set", "generate.batch=2", expect=4)
        self.assertIn("cannot resume the run of 'deck.h5.part': 'generate.batch' is 2 and was 1", done.stderr)
        done = subprocess.run([self.PROGRAM, "deck.toml", "--resume"], cwd=self.folder, check=True, capture_output=True)
        self.assertIn(b"resumed: 1 generation is from deck.h5.part", done.stderr)
        # The file has U+FFFD for bytes that are no text, and no zeros.
        printed = [re.sub("\N{REPLACEMENT CHARACTER}+", "?", text.decode(errors="replace").replace("\0", ""))
                   for text in (done.stdout, whole)]
        self.assertEqual(*printed)
        with h5py.File(self.folder / "whole.h5") as expected, h5py.File(self.folder / "deck.h5") as found:
            self.assertEqual(found.attrs["complete"], 1)
            self.assertEqual(len(found.attrs["history"].splitlines()), 2)
            for column in ("cases/repeat", "generations/case", "generations/end", "tokens/generation", "tokens/id",
                           "tokens/log_probability", "logits/last_logits", "memory/classes/peak_bytes"):
                self.assertEqual(found[column][()].tobytes(), expected[column][()].tobytes(), column)
            for column in ("cases/prompt", "generations/text"):
                self.assertEqual(texts(found[column]), texts(expected[column]))


class Output(FaultTest):
    def setUp(self):
        super().setUp()
        (self.folder / "prompt.txt").write_text("A text")
        self.long_deck(2000, 512)

    def test_a_limit_of_file_sizes_is_a_file_error(self):
        # The first is too small to begin, the second for the tokens.
        for size in (1000, 60000):
            with self.subTest(size=size):
                done = self.run_driver("deck.toml", expect=4, before=lambda: resource.setrlimit(
                    resource.RLIMIT_FSIZE, (size, size)))
                self.assertRegex(done.stderr.splitlines()[-1], "^error: cannot write 'deck.h5.part': File too large")
                self.assertEqual(done.stdout.startswith("A text"), size > 1000)

    def test_a_folder_that_is_read_only(self):
        self.assertEqual(self.check_locked_folder("deck.toml").stdout, "")


class Prompts(FaultTest):
    """Whatever the bytes of a prompt are, a text follows it, or a sentence says why not."""

    def setUp(self):
        super().setUp()
        self.deck("[generate]\nmax_new_tokens = 2\nstop_at_eos = false\n[output]\noverwrite = true\n"
                  '[[prompt]]\nfile = "prompt.txt"\n')
        self.prompt = self.folder / "prompt.txt"
        self.prompt.unlink()

    @needs_h5py
    def test_any_bytes_are_a_prompt(self):
        for prompt in (b"", b"a\0b\0", bytes(range(256)), b"\xff\xfe\xc3(\xe2\x82\xf0\x9f",
                       "e\N{COMBINING ACUTE ACCENT}\N{RIGHT-TO-LEFT OVERRIDE}".encode(), b"\x1b]0;title\x07\x1b[2J\r\n"):
            with self.subTest(prompt=prompt):
                self.prompt.write_bytes(prompt)
                done = subprocess.run([self.PROGRAM, "deck.toml"], cwd=self.folder, capture_output=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout[:len(prompt)], prompt)
                with h5py.File(self.folder / "deck.h5") as file:
                    # A token for each byte, and the beginning.
                    self.assertEqual(file["generations/prompt_tokens"][0], len(prompt) + 1)
                    self.assertEqual(file["generations/new_tokens"][0], 2)

    def refused(self, reason, exit_code):
        done = self.run_driver("deck.toml", "--dry-run", expect=exit_code)
        self.assertIn(f"error: {reason}", done.stderr)

    def test_what_is_no_text_is_refused(self):
        path = self.prompt.resolve()
        self.refused(f"cannot read '{path}': No such file or directory", 3)
        self.prompt.mkdir()
        self.refused(f"cannot read '{path}': Is a directory", 3)
        self.prompt.rmdir()
        os.mkfifo(self.prompt)
        self.refused(f"cannot read '{path}': it is a pipe, a device or a socket, not a file", 3)
        self.prompt.unlink()
        self.prompt.symlink_to("/dev/zero")
        self.refused(f"cannot read '{path}': it is a pipe, a device or a socket, not a file", 3)

    def test_a_prompt_that_is_too_large_is_refused(self):
        self.prompt.touch()
        os.truncate(self.prompt, (16 << 20) + 1)
        self.refused(f"'{self.prompt.resolve()}' has more than 16777216 bytes, too many for a prompt", 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
