#!/usr/bin/env python3
"""Files of `trine convert` run by llama.cpp.

    python -P tools/golden/llama_cpp_convert.py [TRINE]

Run with the Python of the golden venv (tools/golden/requirements.txt and requirements-llama.txt) after `make`. Writes nothing; ends with 1
at the first difference. Per model, the directory is run by Trine and the converted file by llama.cpp (F32 cache, no repacked weights):
- assets/models/docs-8m as f32, f16 and q8_0: llama.cpp's tokens of some texts are Trine's; its 48 greedy tokens are those that Trine answers with
  (f32 and f16; q8_0 must run);
- the tiny random models of tests/golden/families as f32, all that a GGUF file can say: logits of 64 tokens within 1e-4 of the largest of a
  row (1e-3 in Gemma-3). Where llama.cpp is known to leave a value of the configuration out of account (the converter's notes say so), the
  model is run with the value that llama.cpp assumes.
"""
import ctypes
import io
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import llama_cpp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "assets" / "models" / "docs-8m"
FAMILIES = ROOT / "tests" / "golden" / "families"
MASK = (1 << 64) - 1
TEXTS = ("The file system", "Hello, world! It's 1234567 o'clock.\n\n\tdef f(x):\n        return x**2", "naïve Привет 我想在苹果工作 🚀")


def hashed(name, count):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    with np.errstate(over="ignore"):
        z = np.uint64(value) + np.arange(count, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def write_family(case, folder):
    """The directory of a golden case, F32."""
    meta = json.loads((FAMILIES / case / "case.json").read_text())
    config = json.loads((FAMILIES / case / "config.json").read_text())
    if case.startswith("gemma3"):
        config["query_pre_attn_scalar"] = config["head_dim"]
    if case == "phi3":
        config["sliding_window"] = None
    (folder / "config.json").write_text(json.dumps(config))
    header, data = {}, b""
    for name, shape, scale, offset in meta["tensors"]:
        count = int(np.prod(shape))
        u = (hashed(name, count) >> np.uint64(40)).astype(np.float64) / 8388608.0 - 1.0
        raw = (offset + scale * u).astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return meta


class Peer:
    """A model file in llama.cpp, by its C interface: models without a vocabulary run too."""

    def __init__(self, path, context):
        params = llama_cpp.llama_model_default_params()
        params.use_extra_bufts = False
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            sys.exit(f"differs: llama.cpp does not load {path}")
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = context
        settings.n_threads = settings.n_threads_batch = 2
        settings.type_k = settings.type_v = 0  # F32
        settings.flash_attn_type = 0  # off
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.size = llama_cpp.llama_vocab_n_tokens(self.vocab)
        self.done = 0

    def logits(self, ids):
        """Of each of the next ids, [ids, vocabulary]."""
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, self.done + i, 1, 1
            batch.seq_id[i][0] = 0
        if llama_cpp.llama_decode(self.context, batch) != 0:
            sys.exit("differs: llama.cpp fails to decode")
        self.done += len(ids)
        rows = [np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, i), (self.size,)).copy() for i in range(len(ids))]
        llama_cpp.llama_batch_free(batch)
        return np.array(rows)

    def tokens(self, text):
        data = text.encode()
        out = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, data, len(data), out, len(out), True, False)
        return list(out[:count])

    def close(self):
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)


def trine(*args):
    return subprocess.run([BINARY, *map(str, args)], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def check(condition, what):
    if not condition:
        sys.exit(f"differs: {what}")


def run_docs(folder):
    for kind in ("f32", "f16", "q8_0"):
        path = folder / f"docs-8m.{kind}.gguf"
        trine("convert", MODEL, "--out", path, "--type", kind)
        peer = Peer(path, 256)
        for text in TEXTS:
            ids = json.loads(trine("tokenize", MODEL, text, "--json").stdout)["ids"]
            check(peer.tokens(text) == ids, f"tokens of {text!r}: {peer.tokens(text)}, not {ids}")
        answer = peer.tokens(TEXTS[0])
        row = peer.logits(answer)[-1]
        for _ in range(48):
            answer.append(int(row.argmax()))
            row = peer.logits(answer[-1:])[-1]
        rows = np.load(io.BytesIO(trine("logits", MODEL, "--tokens", ",".join(map(str, answer)), "--out", "-").stdout))
        first = len(answer) - 48
        same = [int(rows[i - 1].argmax()) == answer[i] for i in range(first, len(answer))]
        check(all(same) or kind == "q8_0", f"greedy tokens of docs-8m as {kind}: {sum(same)} of 48 agree")
        peer.close()
        print(f"docs-8m as {kind}: {sum(same)} of 48 greedy tokens agree")


def run_families(folder):
    for case in sorted(p.name for p in FAMILIES.iterdir() if p.is_dir()):
        source = folder / case
        source.mkdir()
        meta = write_family(case, source)
        path = folder / f"{case}.gguf"
        context = meta["max_context"] or 512
        if context < 256:
            print(f"{case}: llama.cpp has no context below 256 tokens, which decides between LongRoPE's lists")
            continue
        done = subprocess.run([BINARY, "convert", source, "--out", path, "--json", "--ctx", str(context)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        value = json.loads(done.stdout)
        if done.returncode != 0:
            print(f"{case}: refused ({value['error']['message'].split(': ', 1)[1][:90]})")
            continue
        notes = [note for note in value["notes"] if "llama.cpp" in note]
        check(not notes, f"{case}: {notes}")
        peer = Peer(path, context)
        ids = [int(x) % peer.size for x in hashed("tokens", 64)]
        found = peer.logits(ids)
        peer.close()
        text = ",".join(map(str, ids))
        rows = np.load(io.BytesIO(trine("logits", source, "--tokens", text, "--out", "-", "--ctx", context, "--kv", "f32").stdout))
        error = (np.abs(found - rows).max(1) / np.abs(rows).max(1)).max()
        # llama.cpp's GELU is a table of half-precision values.
        check(error <= (1e-3 if case.startswith("gemma3") else 1e-4), f"{case}: logits are off by {error:.2g}")
        print(f"{case}: logits within {error:.1g}")


BINARY = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "release" / "trine")


def main():
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    with tempfile.TemporaryDirectory() as folder:
        run_docs(pathlib.Path(folder))
        run_families(pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
