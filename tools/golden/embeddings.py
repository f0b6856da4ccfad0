#!/usr/bin/env python3
"""Golden pooled vectors of the trained models in assets/models: a Llama forward pass written out in numpy, in float64.

    python -P tools/golden/embeddings.py

Run with the Python of the golden venv (tools/golden/requirements.txt); only numpy is used. The token ids are those of
tests/golden/docs. Writes tests/golden/embeddings/<model>.json: ids, the mean and the last of the rows behind the last norm.
"""
import json
import pathlib
import struct

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "embeddings"


def read_tensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F16", entry
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + size + begin : 8 + size + end], dtype="<f2")
        out[name] = values.reshape(entry["shape"]).astype(np.float64)
    return out


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, theta):
    """x: [T, heads, D]; pairs are (i, i + D/2)."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-np.arange(half) / half)
    angle = np.arange(x.shape[0])[:, None, None] * frequencies
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)


def hidden_rows(config, weights, ids):
    eps, dim = config["rms_norm_eps"], config["head_dim"]
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    size = len(ids)
    visible = np.tril(np.ones((size, size), bool))
    x = weights["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        w = lambda name: weights[f"model.layers.{i}.{name}.weight"]  # noqa: E731
        y = rms_norm(x, w("input_layernorm"), eps)
        q = rotate((y @ w("self_attn.q_proj").T).reshape(size, heads, dim), config["rope_theta"])
        k = rotate((y @ w("self_attn.k_proj").T).reshape(size, groups, dim), config["rope_theta"])
        v = (y @ w("self_attn.v_proj").T).reshape(size, groups, dim)
        parts = []
        for h in range(heads):
            g = h * groups // heads
            scores = np.where(visible, q[:, h] @ k[:, g].T / np.sqrt(dim), -np.inf)
            p = np.exp(scores - scores.max(-1, keepdims=True))
            parts.append(p / p.sum(-1, keepdims=True) @ v[:, g])
        x = x + np.concatenate(parts, -1) @ w("self_attn.o_proj").T
        y = rms_norm(x, w("post_attention_layernorm"), eps)
        gate = y @ w("mlp.gate_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
    return rms_norm(x, weights["model.norm.weight"], eps)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for name in ("docs-1m", "docs-8m"):
        folder = ROOT / "assets" / "models" / name
        ids = json.loads((ROOT / "tests" / "golden" / "docs" / f"{name}.json").read_text())["ids"]
        rows = hidden_rows(json.loads((folder / "config.json").read_text()), read_tensors(folder / "model.safetensors"), ids)
        shown = lambda row: [float(f"{value:.9g}") for value in row]  # noqa: E731
        out = {"ids": ids, "mean": shown(rows.mean(0)), "last": shown(rows[-1])}
        (OUT / f"{name}.json").write_text(json.dumps(out) + "\n")
        print(name, len(ids), np.__version__)


if __name__ == "__main__":
    main()
