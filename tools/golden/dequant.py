#!/usr/bin/env python3
"""Writes tests/golden/dequant/dequant.safetensors: random blocks of every block type and their values.

For each type T it stores T.blocks (U8 [n, block bytes]) and T.values (F32 [n, block elements]), decoded by an
independent implementation: the numpy code of the `gguf` package, torch for the 8-bit floats, and for the three types
that neither knows (Q8_1, Q1_0, Q2_0) a direct transcription of the layout in this script, which --ggml LIB checks
against ggml's own C functions where the given libggml-base.so exports them.

Run with the Python of the golden venv, from the repository root. Same output on every run.
"""
import argparse
import ctypes
import pathlib

import gguf
import numpy as np
import torch
from gguf.constants import GGMLQuantizationType as Q
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/dequant/dequant.safetensors"
ELEMS_PER_TYPE = 3072

# Extreme f16 scales: zeros, smallest and largest subnormal, smallest normal, largest, infinities, NaN.
F16_EDGES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x3C00]

# Type -> (elements, bytes, offsets of f16 fields).
LAYOUTS = {
    "Q4_0": (32, 18, [0]), "Q4_1": (32, 20, [0, 2]), "Q5_0": (32, 22, [0]), "Q5_1": (32, 24, [0, 2]),
    "Q8_0": (32, 34, [0]), "Q8_1": (32, 36, [0]), "Q2_K": (256, 84, [80, 82]), "Q3_K": (256, 110, [108]),
    "Q4_K": (256, 144, [0, 2]), "Q5_K": (256, 176, [0, 2]), "Q6_K": (256, 210, [208]),
    "IQ4_NL": (32, 18, [0]), "IQ4_XS": (256, 136, [0]), "MXFP4": (32, 17, []), "NVFP4": (64, 36, []),
    "TQ1_0": (256, 54, [52]), "TQ2_0": (256, 66, [64]), "Q1_0": (128, 18, [0]), "Q2_0": (64, 18, [0]),
}


def random_blocks(name, rng):
    """Random bytes; the scales are mostly ordinary numbers, the first blocks get the extreme ones."""
    elems, size, scales = LAYOUTS[name]
    count = max(ELEMS_PER_TYPE // elems, len(F16_EDGES))
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in scales:
        values = rng.normal(0, 0.05, count).astype(np.float16).view(np.uint16)
        values[: len(F16_EDGES)] = rng.permutation(F16_EDGES)
        blocks[:, at : at + 2] = values[:, None].view(np.uint8)
    if name == "MXFP4":
        edges = [0, 1, 2, 127, 253, 254, 255]
        blocks[: len(edges), 0] = edges
    if name == "NVFP4":
        edges = [0, 1, 7, 8, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF]
        blocks[: len(edges), 0] = edges
    return blocks


def transcribed(name, blocks):
    """Q8_1, Q1_0 and Q2_0 straight from their layouts."""
    d = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
    if name == "Q8_1":  # f16 d, f16 sum, 32 i8
        return d * np.ascontiguousarray(blocks[:, 4:]).view(np.int8).astype(np.float32)
    if name == "Q1_0":  # f16 d, 128 bits, set = +d
        bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little")
        return np.where(bits == 1, d, -d)
    if name == "Q2_0":  # f16 d, 64 two-bit codes, code - 1
        codes = (blocks[:, 2:, None] >> np.array([0, 2, 4, 6], dtype=np.uint8)) & 3
        return d * (codes.reshape(len(blocks), 64).astype(np.float32) - 1)
    raise KeyError(name)


def check_with_ggml(library, name, blocks, values):
    """Says whether ggml's own function gives the same bits; NaN compares equal to NaN."""
    symbol = f"dequantize_row_{name.lower().replace('_k', '_K')}"
    if not hasattr(library, symbol):
        print(f"  {name}: not in this libggml")
        return
    out = np.empty_like(values)
    raw = np.ascontiguousarray(blocks)
    getattr(library, symbol)(raw.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p),
                             ctypes.c_int64(values.size))
    same = (out.view(np.uint32) == values.view(np.uint32)) | (np.isnan(out) & np.isnan(values))
    print(f"  {name}: {'equal' if same.all() else f'{(~same).sum()} of {same.size} DIFFER'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ggml", help="path of a libggml-base.so to compare with")
    args = parser.parse_args()
    library = ctypes.CDLL(args.ggml) if args.ggml else None
    out = {}
    with np.errstate(all="ignore"):
        for index, name in enumerate(LAYOUTS):
            blocks = random_blocks(name, np.random.default_rng(1000 + index))
            if name in ("Q8_1", "Q1_0", "Q2_0"):
                values = transcribed(name, blocks)
            else:
                values = gguf.quants.dequantize(blocks, Q[name]).astype(np.float32, copy=False)
            values = np.ascontiguousarray(values.reshape(len(blocks), LAYOUTS[name][0]), dtype=np.float32)
            out[f"{name}.blocks"], out[f"{name}.values"] = blocks, values
            if library:
                check_with_ggml(library, name, blocks, values)
    every_byte = np.arange(256, dtype=np.uint8)
    for name, dtype in (("F8_E4M3", torch.float8_e4m3fn), ("F8_E5M2", torch.float8_e5m2)):
        out[f"{name}.blocks"] = every_byte.reshape(256, 1)
        out[f"{name}.values"] = torch.from_numpy(every_byte).view(dtype).float().numpy().reshape(256, 1)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    save_file(out, OUT)
    print(f"{OUT.name}: {OUT.stat().st_size} bytes, {len(out) // 2} types")


if __name__ == "__main__":
    main()
