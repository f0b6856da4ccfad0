"""logits and verify."""

import ast
import json
import os
import signal
import struct
import subprocess

from harness import BIN, MODEL, Case, flags_of, main


def read_npy(path):
    """Shape and rows (as bytes, for exact comparison) of a float32 array."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    length = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10 : 10 + length].decode("latin-1"))
    assert (10 + length) % 64 == 0
    assert header["descr"] == "<f4" and header["fortran_order"] is False
    rows, cols = header["shape"]
    body = data[10 + length :]
    assert len(body) == rows * cols * 4
    return (rows, cols), [body[i * cols * 4 : (i + 1) * cols * 4] for i in range(rows)]


class Logits(Case):
    TOKENS = "0,17,250,8000,33,512,7"

    def logits(self, *args, tokens=TOKENS, model=MODEL):
        out = self.path("x.npy")
        self.ok("logits", model, "--tokens", tokens, "--out", out, *args)
        return read_npy(out)

    def test_rows_are_positions(self):
        shape, rows = self.logits()
        self.assertEqual(shape, (7, 8192))
        shape, last = self.logits("--positions", "last")
        self.assertEqual(shape, (1, 8192))
        self.assertEqual(last[0], rows[-1])
        # A prefix gives the same rows.
        _, prefix = self.logits(tokens="0,17,250")
        self.assertEqual(prefix, rows[:3])

    def test_ids_from_a_file(self):
        file = self.path("ids.txt", self.TOKENS.replace(",", "\n"))
        self.assertEqual(self.logits(tokens="@" + file), self.logits())

    def test_results_do_not_depend_on_threads_or_instruction_set(self):
        expected = self.logits()
        self.assertEqual(self.logits("--threads", "1"), expected)
        self.assertEqual(self.logits("--threads", "3"), expected)
        self.assertEqual(self.logits("--isa", "scalar"), expected)

    def test_kv_type_matters_slightly(self):
        full = self.logits("--kv", "f32")[1]
        half = self.logits("--kv", "f16")[1]
        brain = self.logits("--kv", "bf16")[1]
        self.assertNotEqual(full[-1], half[-1])
        self.assertNotEqual(brain[-1], half[-1])
        values = [struct.unpack("<8192f", row) for row in (full[-1], half[-1])]
        self.assertLess(max(abs(a - b) for a, b in zip(*values)), 0.05)

    def test_no_tokenizer_needed(self):
        model = self.copy_model(without=["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
        self.assertEqual(self.logits(model=model), self.logits())

    def test_report(self):
        out = self.path("x.npy")
        done = self.ok("logits", MODEL, "--tokens", "1,2", "--out", out, "--json")
        self.assertEqual(done.json, {"file": out, "shape": [2, 8192], "dtype": "float32"})
        self.assertEqual(self.ok("logits", MODEL, "--tokens", "1,2", "--out", out).text, f"{out}: 2 x 8192 float32\n")

    def test_out_follows_links_and_keeps_what_is_no_file(self):
        expected = self.logits(tokens="1,2")
        with open(self.path("x.npy"), "rb") as file:
            data = file.read()
        self.assertEqual(self.ok("logits", MODEL, "--tokens", "1,2", "--out", "-").out, data)
        both = self.trine("logits", MODEL, "--tokens", "1,2", "--out", "-", "--json")
        self.assertEqual((both.code, both.json["error"]["code"]), (2, "invalid_argument"))
        os.symlink("x.npy", self.path("link"))
        self.ok("logits", MODEL, "--tokens", "3", "--out", self.path("link"))
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertNotEqual(read_npy(self.path("x.npy")), expected)
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        # One row fits the pipe's buffer.
        self.ok("logits", MODEL, "--tokens", "3", "--out", pipe)
        self.assertEqual(os.read(reader, 1 << 16)[:6], b"\x93NUMPY")
        self.assertEqual(sorted(os.listdir(self.tmp)), ["link", "pipe", "x.npy"])
        self.assertTrue(os.stat(pipe).st_mode & 0o010000)

    def test_context_overflow_has_both_numbers(self):
        out = self.path("x.npy")
        long = ",".join(["5"] * 2049)
        self.bad(4, "2049.*2048", "logits", MODEL, "--tokens", long, "--out", out)
        self.bad(4, "7.*4", "logits", MODEL, "--tokens", self.TOKENS, "--out", out, "--ctx", "4")
        self.bad(2, "--ctx.*4096.*2048", "logits", MODEL, "--tokens", "1", "--out", out, "--ctx", "4K")
        self.assertFalse(os.path.exists(out))

    def test_errors_leave_no_file_and_old_files_alone(self):
        out = self.path("x.npy", b"old")
        self.bad(2, "8192", "logits", MODEL, "--tokens", "1,8192", "--out", out)
        self.bad(2, "entry 2", "logits", MODEL, "--tokens", "1,b", "--out", out)
        self.bad(2, "no token ids", "logits", MODEL, "--tokens", "", "--out", out)
        self.bad(2, "missing --tokens", "logits", MODEL, "--out", out)
        self.bad(2, "missing --out", "logits", MODEL, "--tokens", "1")
        self.bad(2, r"cannot create .*/nosuch/x\.npy: ", "logits", MODEL, "--tokens", "1", "--out", self.path("nosuch/x.npy"))
        self.bad(2, "name of the output file is empty", "logits", MODEL, "--tokens", "1", "--out", "")
        with open(out, "rb") as file:
            self.assertEqual(file.read(), b"old")
        self.assertEqual(os.listdir(self.tmp), ["x.npy"])


class Verify(Case):
    def test_invariance_holds(self):
        done = self.ok("verify", "invariance", MODEL, "--prompts", "2", "--mixtures", "1", "--json")
        self.assertTrue(done.json["equal"])
        self.assertGreater(done.json["rows"], 0)
        self.assertGreater(len(done.json["permutations"]), 3)
        self.assertIn("equal", done.error)
        self.assertEqual(self.ok("verify", "invariance", MODEL, "--prompts", "1", "--mixtures", "0", "-q").err, b"")

    def test_ctrl_c_ends_with_130(self):
        process = subprocess.Popen(
            [BIN, "verify", "invariance", MODEL, "--mixtures", "1000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env,
        )
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertIn(b"equal", first)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(out, b"")
        self.assertIn(b"interrupted", err)

    def test_flags_have_an_effect(self):
        def report(*args):
            return self.ok("verify", "invariance", MODEL, "--json", "-q", *args).json

        base = report("--prompts", "1", "--mixtures", "1")
        more = report("--prompts", "1", "--mixtures", "3")
        self.assertGreater(len(more["permutations"]), len(base["permutations"]))
        other = report("--prompts", "1", "--mixtures", "1", "--seed", "77")
        self.assertEqual(other["seed"], 77)
        self.assertNotEqual(other["rows"], base["rows"])
        self.assertNotEqual(report("--prompts", "3", "--mixtures", "0")["rows"], base["rows"])
        lines = self.path("p.jsonl", '{"ids": [1, 2, 3]}\n{"text": "Hello"}\n')
        self.assertTrue(report("--jsonl", lines, "--mixtures", "0", "--threads", "2", "--kv", "f32")["equal"])

    def test_errors(self):
        self.bad(2, "cannot verify 'speed'", "verify", "speed", MODEL)
        self.bad(2, "cannot verify 'speed'", "verify", "speed")
        self.bad(2, "--ctx needs a value", "verify", "invariance", MODEL, "--ctx")
        self.bad(2, "p.jsonl:1", "verify", "invariance", MODEL, "--jsonl", self.path("p.jsonl", "{}"))
        self.bad(2, "no prompts", "verify", "invariance", MODEL, "--jsonl", self.path("p.jsonl", "\n"))
        self.bad(2, "--prompts and --jsonl", "verify", "invariance", MODEL, "--jsonl", "-", "--prompts", "1")


class Flags(Case):
    COMMON = {"json", "quiet", "log-level", "config", "home", "catalogue"}
    MODEL_FLAGS = {"threads", "ctx", "kv", "activations", "isa"}

    def test_no_flag_without_a_test_here(self):
        self.assertEqual(flags_of(self, "logits") - self.COMMON, {"tokens", "out", "positions"} | self.MODEL_FLAGS)
        self.assertEqual(
            flags_of(self, "verify") - self.COMMON, {"prompts", "jsonl", "mixtures", "seed"} | self.MODEL_FLAGS
        )


if __name__ == "__main__":
    main()
