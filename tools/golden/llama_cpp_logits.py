#!/usr/bin/env python3
"""Golden next-token laws of real GGUF files, computed with llama-cpp-python on the same files.

    python tools/golden/llama_cpp_logits.py smollm2-135m PATH.gguf
    python tools/golden/llama_cpp_logits.py gemma3-270m PATH.gguf

Run with the Python of the golden venv (tools/golden/requirements.txt). Writes tests/golden/llama_cpp/<name>.bin and
<name>.json. The .bin holds, little-endian:
    int32   ids[512]               the text: BOS, then the start of text.txt
    uint32  token[512][K]          the K likeliest next tokens of every position, likeliest first
    float16 logprob[512][K]        their natural log-probabilities
What is left of the mass is one bucket. The distribution that the test compares with is exp(logprob) and that bucket,
so rounding to float16 enters the KL divergence in second order only.
"""
import argparse
import hashlib
import json
import pathlib
import sys

import llama_cpp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "llama_cpp"
POSITIONS = 512
K = 160


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("path", type=pathlib.Path)
    parser.add_argument("--full", type=pathlib.Path, help="also write all logits here (float32 .npy, not committed)")
    args = parser.parse_args()
    model = llama_cpp.Llama(model_path=str(args.path), n_ctx=POSITIONS, n_batch=POSITIONS, logits_all=True,
                            n_threads=2, verbose=False)
    text = (ROOT / "tests" / "golden" / "llama_cpp" / "text.txt").read_text(encoding="utf-8")
    ids = ([model.token_bos()] + model.tokenize(text.encode(), add_bos=False, special=False))[:POSITIONS]
    assert len(ids) == POSITIONS, len(ids)
    model.eval(ids)
    logits = np.array(model.scores[:POSITIONS], dtype=np.float64)
    assert np.isfinite(logits).all()
    if args.full:
        np.save(args.full, logits.astype(np.float32))
    top = logits.max(axis=1, keepdims=True)
    logprobs = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    best = np.argsort(-logprobs, axis=1, kind="stable")[:, :K]
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / f"{args.name}.bin", "wb") as out:
        out.write(np.array(ids, "<i4").tobytes())
        out.write(best.astype("<u4").tobytes())
        out.write(np.take_along_axis(logprobs, best, 1).astype("<f2").tobytes())
    digest = hashlib.sha256(args.path.read_bytes()).hexdigest()
    info = {"file_bytes": args.path.stat().st_size, "sha256": digest, "positions": POSITIONS, "k": K,
            "vocab_size": int(logits.shape[1]), "llama_cpp_python": llama_cpp.__version__}
    (OUT / f"{args.name}.json").write_text(json.dumps(info, indent=1) + "\n")
    kept = np.exp(np.take_along_axis(logprobs, best, 1)).sum(1)
    print(f"{args.name}: {info['llama_cpp_python']}, mass in the {K} likeliest: min {kept.min():.3f} mean {kept.mean():.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
