"""Runs the trine binary in a clean environment. Standard library only.

TRINE_BIN, TRINE_TEST_MODEL and TRINE_SOURCE_DIR are set by ctest; to run a file by hand:
    TRINE_BIN=build/release/trine TRINE_TEST_MODEL=assets/models/docs-1m TRINE_SOURCE_DIR=. python3 tests/cli/test_run.py
"""

import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

BIN = os.path.abspath(os.environ["TRINE_BIN"])
MODEL = os.path.abspath(os.environ["TRINE_TEST_MODEL"])
SOURCE = os.path.abspath(os.environ["TRINE_SOURCE_DIR"])


class Done:
    """What a finished command left: code, out and err as bytes, text and parsed forms on demand."""

    def __init__(self, process):
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr

    @property
    def text(self):
        return self.out.decode("utf-8")

    @property
    def error(self):
        return self.err.decode("utf-8", "backslashreplace")

    @property
    def json(self):
        return json.loads(self.out)


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.tmp = tempfile.mkdtemp(prefix="trine-cli-")
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)
        # Nothing of the caller's configuration reaches the program.
        self.env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": self.tmp,
            "TRINE_HOME": os.path.join(self.tmp, "store"),
            "TERM": "xterm",
        }
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                self.env[name] = os.environ[name]

    def path(self, name, content=None):
        path = os.path.join(self.tmp, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    def trine(self, *args, stdin=b"", env=None, **kwargs):
        if isinstance(stdin, str):
            stdin = stdin.encode("utf-8")
        process = subprocess.run(
            [BIN, *args],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self.env, **(env or {})},
            timeout=120,
            check=False,
            **kwargs,
        )
        return Done(process)

    def ok(self, *args, **kwargs):
        done = self.trine(*args, **kwargs)
        self.assertEqual(done.code, 0, (args, done.error))
        return done

    def bad(self, code, pattern, *args, **kwargs):
        """The command ends with `code`, no result, and one line `error: ...` that matches."""
        done = self.trine(*args, **kwargs)
        self.assertEqual(done.code, code, (args, done.error))
        self.assertEqual(done.out, b"", args)
        lines = [line for line in done.error.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(lines), 1, (args, done.error))
        self.assertRegex(lines[0], pattern, args)
        return done

    def copy_model(self, name="model", without=(), replace=None):
        """A changed copy of the test model; big files are linked."""
        directory = os.path.join(self.tmp, name)
        os.makedirs(directory)
        for entry in os.listdir(MODEL):
            if entry in without or not os.path.isfile(os.path.join(MODEL, entry)):
                continue
            os.symlink(os.path.join(MODEL, entry), os.path.join(directory, entry))
        for entry, content in (replace or {}).items():
            target = os.path.join(directory, entry)
            if os.path.lexists(target):
                os.unlink(target)
            with open(target, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
        return directory

    def edit_json(self, name, **changes):
        """The text of a JSON file of the test model with some keys replaced; None removes a key."""
        with open(os.path.join(MODEL, name), encoding="utf-8") as file:
            value = json.load(file)
        for key, new in changes.items():
            if new is None:
                value.pop(key, None)
            else:
                value[key] = new
        return json.dumps(value)


class Gguf:
    """A GGUF v3 file made field by field: values are int (u32), float (f32), bool, str or lists of str, int (i32)."""

    F32, F16, Q4_0, Q8_0 = 0, 1, 2, 8
    BLOCKS = {F32: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q8_0: (32, 34)}  # elements, bytes

    def __init__(self, pairs, tensors):
        """`tensors`: name -> (shape with the rows first, type); their bytes are zero."""
        self.pairs = dict(pairs)
        self.tensors = dict(tensors)

    @staticmethod
    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def value(self, value):
        if isinstance(value, bool):
            return struct.pack("<I?", 7, value)
        if isinstance(value, int):
            return struct.pack("<II", 4, value)
        if isinstance(value, float):
            return struct.pack("<If", 6, value)
        if isinstance(value, str):
            return struct.pack("<I", 8) + self.text(value)
        kind, items = (8, [self.text(v) for v in value]) if isinstance(value[0], str) else (5, [struct.pack("<i", v) for v in value])
        return struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)

    def tensor_bytes(self, name):
        shape, kind = self.tensors[name]
        elems, size = self.BLOCKS[kind]
        count = 1
        for dim in shape:
            count *= dim
        return count // elems * size

    def tensor_data(self, name, random):
        """Zeros, or for a random.Random values and codes of which a model computes something finite."""
        elems, size = self.BLOCKS[self.tensors[name][1]]
        if random is None:
            return bytes(self.tensor_bytes(name))
        if elems == 1:
            pack = "<f" if size == 4 else "<e"
            return b"".join(struct.pack(pack, random.uniform(-1, 1)) for _ in range(self.tensor_bytes(name) // size))
        blocks = self.tensor_bytes(name) // size  # a half-precision scale, then codes
        return b"".join(struct.pack("<e", random.uniform(0.001, 0.02)) + random.randbytes(size - 2) for _ in range(blocks))

    def build(self, random=None):
        out = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.pairs))
        for key, value in self.pairs.items():
            out += self.text(key) + self.value(value)
        offset = 0
        for name, (shape, kind) in self.tensors.items():
            out += self.text(name) + struct.pack("<I", len(shape))
            out += b"".join(struct.pack("<Q", dim) for dim in reversed(shape))
            out += struct.pack("<IQ", kind, offset)
            offset += -(-self.tensor_bytes(name) // 32) * 32
        out += bytes(-len(out) % 32)
        for name in self.tensors:
            data = self.tensor_data(name, random)
            out += data + bytes(-len(data) % 32)
        return out


def tiny_gguf():
    """A one-layer Llama of 8 tokens whose matrices are of three types."""
    names = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32)}
    mlp = {"ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64)}
    tensors = {"token_embd.weight": ((8, 32), Gguf.F16), "output_norm.weight": ((32,), Gguf.F32)}
    for name in ("attn_norm", "ffn_norm"):
        tensors[f"blk.0.{name}.weight"] = ((32,), Gguf.F32)
    tensors.update({f"blk.0.{name}.weight": (shape, Gguf.Q8_0) for name, shape in names.items()})
    tensors.update({f"blk.0.{name}.weight": (shape, Gguf.Q4_0) for name, shape in mlp.items()})
    pairs = {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.context_length": 64,
        "llama.embedding_length": 32,
        "llama.feed_forward_length": 64,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": 16,
        "llama.vocab_size": 8,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["<s>", "a", "b", "ab", "c", "d", "e", "</s>"],
        "tokenizer.ggml.token_type": [3, 1, 1, 1, 1, 1, 1, 3],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 7,
        "tokenizer.chat_template": "{{ messages[0].content }}",
    }
    return Gguf(pairs, tensors)


def flags_of(case, command):
    """All long flags that a command takes, from its completion script."""
    script = case.ok("completion", "fish").text
    pattern = r"__fish_seen_subcommand_from " + re.escape(command) + r"' -l (\S+)"
    return set(re.findall(pattern, script))


def main():
    unittest.main(verbosity=1)
