#!/usr/bin/env python3
"""Golden next-token laws of real GGUF files, computed with llama-cpp-python.

    python -P tools/golden/llama_cpp_logits.py                  both models, from the model store ($TRINE_HOME)
    python -P tools/golden/llama_cpp_logits.py NAME PATH.gguf   one model

Run with the Python of the golden venv (tools/golden/requirements.txt and requirements-llama.txt). Two runs of the peer per model:
    <name>.file    on the file itself. The peer rounds activations to 8 bits there, which alone moves the law by a
                   KL divergence of some 1e-3, so this holds the whole pipeline to a loose bound;
    <name>.wide    on the same weights widened to F32 (exact; a temporary file), with an F32 cache. The peer then
                   computes in f32 throughout, and the bound is tight.
Each is tests/golden/llama_cpp/<name>.<run>.bin, little-endian:
    int32   ids[512]               the text: BOS, then the start of text.txt
    uint32  token[512][K]          the K likeliest next tokens of every position, likeliest first
    float16 logprob[512][K]        their natural log-probabilities
What is left of the mass is one bucket. The distribution that the test compares with is exp(logprob) and that bucket,
so rounding to float16 enters the KL divergence in second order only. <name>.json says what the file was.
"""
import argparse
import hashlib
import json
import os
import pathlib
import sys
import tempfile

import gguf
import llama_cpp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "llama_cpp"
POSITIONS = 512
MODELS = ("smollm2-135m", "gemma3-270m")
K = {"file": 64, "wide": 160}


def plain_weights():
    """Weights as they are in the file, not repacked for AMX: some virtual machines announce AMX and then trap it."""
    defaults = llama_cpp.llama_model_default_params

    def params():
        value = defaults()
        value.use_extra_bufts = False
        return value

    llama_cpp.llama_cpp.llama_model_default_params = params


def widen(source, target):
    """The same model with every block-quantized or half tensor as F32."""
    reader = gguf.GGUFReader(source)
    arch = reader.get_field("general.architecture").contents()
    writer = gguf.GGUFWriter(target, arch)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=sub)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run(path, name, kind):
    model = llama_cpp.Llama(model_path=str(path), n_ctx=POSITIONS, n_batch=POSITIONS, logits_all=True, n_threads=2,
                            verbose=False, type_k=0, type_v=0)
    text = (OUT / "text.txt").read_text(encoding="utf-8")
    ids = ([model.token_bos()] + model.tokenize(text.encode(), add_bos=False, special=False))[:POSITIONS]
    assert len(ids) == POSITIONS, len(ids)
    model.eval(ids)
    scores = model.scores
    k = K[kind]
    best = np.zeros((POSITIONS, k), "<u4")
    kept = np.zeros((POSITIONS, k), "<f2")
    for i in range(POSITIONS):
        row = scores[i].astype(np.float64)
        assert np.isfinite(row).all()
        row -= row.max()
        row -= np.log(np.exp(row).sum())
        best[i] = np.argsort(-row, kind="stable")[:k]
        kept[i] = row[best[i]]
    with open(OUT / f"{name}.{kind}.bin", "wb") as out:
        out.write(np.array(ids, "<i4").tobytes())
        out.write(best.tobytes())
        out.write(kept.tobytes())
    mass = np.exp(kept.astype(np.float64)).sum(1)
    print(f"{name}.{kind}: mass in the {k} likeliest: min {mass.min():.3f} mean {mass.mean():.3f}")
    return scores.shape[1]


def make(name, path):
    vocab = run(path, name, "file")
    with tempfile.TemporaryDirectory() as folder:
        wide = pathlib.Path(folder) / "wide.gguf"
        widen(path, wide)
        run(wide, name, "wide")
    info = {"file_bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "positions": POSITIONS, "k": K, "vocab_size": int(vocab), "llama_cpp_python": llama_cpp.__version__}
    (OUT / f"{name}.json").write_text(json.dumps(info, indent=1) + "\n")


def stored(name):
    """The .gguf file of a pulled model."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    home = pathlib.Path(os.environ.get("TRINE_HOME") or pathlib.Path(cache) / "trine")
    files = sorted((home / "models" / name).glob("*.gguf"))
    if len(files) != 1:
        sys.exit(f"{name} is not in the model store {home}; get it with: trine pull {name}")
    return files[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=MODELS)
    parser.add_argument("path", nargs="?", type=pathlib.Path)
    args = parser.parse_args()
    plain_weights()
    for name in [args.name] if args.name else MODELS:
        make(name, args.path or stored(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
