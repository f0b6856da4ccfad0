#!/usr/bin/env python3
"""Files of `trine convert` against the `gguf` package.

    python -P tools/golden/convert.py [TRINE]

Run with the Python of the golden venv (tools/golden/requirements.txt) after `make`. Two parts:
- writes tests/golden/convert/q8_0.bin: the Q8_0 blocks that the package makes of 64 rows of 96 hash weights
  (tests/support/hash_weights.h: name "q8_0", scale 1 in row 0, 2^-r in row r, and rows 60..63 zero);
- converts assets/models/docs-8m to every type, reads each file with the package's GGUFReader and compares tensors (the rows of
  queries and keys put in order by numpy) and keys with what the directory says. Prints the first difference and ends with 1.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "convert"
MODEL = ROOT / "assets" / "models" / "docs-8m"
MASK = (1 << 64) - 1
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}


def hashed(name, count):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    with np.errstate(over="ignore"):
        z = np.uint64(value) + np.arange(count, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def q8_0():
    rows, cols = 64, 96
    x = (hashed("q8_0", rows * cols) >> np.uint64(40)).astype(np.float64) / 8388608.0 - 1.0
    x = x.reshape(rows, cols) * (2.0 ** -np.arange(rows))[:, None]
    x[60:] = 0
    return gguf.quants.quantize(x.astype(np.float32), gguf.GGMLQuantizationType.Q8_0).tobytes()


def safetensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    out = {}
    for name, info in header.items():
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            assert info["dtype"] == "F16", name
            out[name] = np.frombuffer(data[8 + size + begin : 8 + size + end], "<f2").reshape(info["shape"])
    return out


def gguf_name(name):
    parts = name.split(".")
    if parts[1] == "layers":
        return f"blk.{parts[2]}.{NAMES['.'.join(parts[3:-1])]}.{parts[-1]}"
    return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[name]


def check(condition, what):
    if not condition:
        sys.exit(f"differs: {what}")


def check_tensors(reader, kind, config):
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    kinds = gguf.GGMLQuantizationType
    wanted = safetensors(MODEL / "model.safetensors")
    check(len(reader.tensors) == len(wanted), "number of tensors")
    found = {tensor.name: tensor for tensor in reader.tensors}
    for name, values in wanted.items():
        target = gguf_name(name)
        tensor = found[target]
        check(tuple(reversed(tensor.shape.tolist())) == values.shape, f"{target}: shape")
        values = values.astype(np.float32)
        leaf = target.split(".")[2] if target.startswith("blk.") else ""
        if leaf in heads:
            rows, cols = values.shape
            values = values.reshape(heads[leaf], 2, rows // heads[leaf] // 2, cols).swapaxes(1, 2).reshape(rows, cols)
        stored = kinds.F32 if values.ndim == 1 else kinds[kind.upper()]
        check(tensor.tensor_type == stored, f"{target}: type")
        if stored in (kinds.F32, kinds.F16):
            data = values.astype(np.float32 if stored == kinds.F32 else np.float16).tobytes()
        else:
            data = gguf.quants.quantize(values, stored).tobytes()
        check(tensor.data.tobytes() == data, f"{target}: data of {kind}")


def check_keys(reader, kind, config):
    def value(key):
        return reader.get_field(key).contents()

    tokenizer = json.loads((MODEL / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = [None] * config["vocab_size"]
    for piece, number in tokenizer["model"]["vocab"].items():
        tokens[number] = piece
    for token in tokenizer["added_tokens"]:
        tokens[token["id"]] = token["content"]
    special = {token["id"] for token in tokenizer["added_tokens"]}
    settings = json.loads((MODEL / "tokenizer_config.json").read_text(encoding="utf-8"))
    expected = {
        "general.architecture": "llama",
        "general.type": "model",
        "general.name": "docs-8m",
        "general.file_type": int(gguf.LlamaFileType[{"f32": "ALL_F32"}.get(kind, f"MOSTLY_{kind.upper()}")]),
        "llama.vocab_size": config["vocab_size"],
        "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"],
        "llama.block_count": config["num_hidden_layers"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.attention.key_length": config["head_dim"],
        "llama.attention.layer_norm_rms_epsilon": float(np.float32(config["rms_norm_eps"])),
        "llama.rope.dimension_count": config["head_dim"],
        "llama.rope.freq_base": config["rope_theta"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smaug-bpe",  # Llama 3's splitter without ignore_merges
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if i in special else 1 for i in range(len(tokens))],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in tokenizer["model"]["merges"]],
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.bos_token_id": tokens.index(settings["bos_token"]),
        "tokenizer.ggml.eos_token_id": tokens.index(settings["eos_token"]),
        "tokenizer.chat_template": settings["chat_template"],
    }
    for key, wanted in expected.items():
        check(value(key) == wanted, f"{key} in the file of {kind}: {str(value(key))[:80]}")


def main():
    binary = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "release" / "trine")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "q8_0.bin").write_bytes(q8_0())
    config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
    for kind in ("f32", "f16", "bf16", "q8_0"):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.gguf"
            subprocess.run([binary, "convert", MODEL, "--out", path, "--type", kind, "--quiet"], check=True, stdout=subprocess.DEVNULL)
            reader = gguf.GGUFReader(path)
            check_tensors(reader, kind, config)
            check_keys(reader, kind, config)
        print(f"docs-8m as {kind}: the package reads what the directory says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
