#!/usr/bin/env python3
"""Golden models in the layouts of quantized checkpoints, with the logits that they must give.

    python -P tools/golden/quantized_checkpoints.py [--only NAME]

Run with the Python of the golden venv and the packages of tools/golden/requirements-quantized.txt (installed with
--no-deps). Writes tests/golden/quantized_checkpoints/<case>/: config.json, model.safetensors, sometimes
quantize_config.json or quant_config.json, and logits.f32 (float32 little-endian, [tokens, vocabulary], from transformers
in float32 on the dequantized weights; tokens by the hash of families.py).

Who says what a layout is:
- compressed-tensors: the library itself compresses, and decompresses for the reference;
- GPTQ, natural order: this file packs, and AutoGPTQ's pack() must give the same words;
- AWQ GEMM and GEMV: this file packs, and AutoAWQ's from_linear() must give the same words;
- g_idx, wrapped zeros, version 2, words of 2025: this file alone, from the published layout.
"""
import argparse
import importlib.util
import json
import math
import pathlib
import sys
import types
import warnings

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
warnings.simplefilter("ignore")
OUT = HERE.parents[1] / "tests" / "golden" / "quantized_checkpoints"
VOCAB, WIDTH, MLP, TOKENS = 80, 64, 160, 24
CONFIG = dict(model_type="llama", vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=MLP, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=128, rms_norm_eps=1e-5,
              hidden_act="silu", rope_theta=10000.0, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
              torch_dtype="float16")


def load_file(path):
    spec = importlib.util.spec_from_file_location("golden_" + path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def module_from(package, path):
    """A module of an installed package without the package's own imports, which want a GPU's libraries."""
    if package not in sys.modules:
        root = importlib.util.find_spec(package).submodule_search_locations[0]
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = [root]
    root = pathlib.Path(sys.modules[package].__path__[0])
    return load_file(root / path)


hashed = load_file(HERE / "families.py").hashed


def base_weights():
    """float32 tensors by name; every value is exact in float16."""
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**CONFIG), attn_implementation="eager")
    out = {}
    for name, tensor in model.state_dict().items():
        u = (hashed(name, tensor.numel()) >> np.uint64(40)).astype(np.float64) / 2.0**23 - 1.0
        if name.endswith("norm.weight"):
            values = 1.0 + 0.25 * u
        elif "embed" in name:
            values = u
        else:
            values = (u + 0.2) * math.sqrt(3.0 / tensor.shape[-1])  # not centred, so that zero points matter
        out[name] = torch.from_numpy(values.reshape(tuple(tensor.shape))).half().float()
    return out


def linears(weights):
    return [n[: -len(".weight")] for n in weights if n.endswith("proj.weight")]


def logits_of(weights):
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**{**CONFIG, "torch_dtype": "float32"}),
                                             attn_implementation="eager").float().eval()
    model.load_state_dict(weights)
    tokens = (hashed("tokens", TOKENS) % np.uint64(VOCAB)).astype(np.int64)
    with torch.no_grad():
        return model(torch.from_numpy(tokens)[None]).logits[0].float().numpy()


# ---- integers in words

def pack_dense(values, bits):
    """[lines, n] unsigned -> [lines, ceil(n * bits / 32)] int32; value i at bit i * bits of its line."""
    lines, n = values.shape
    stream = np.zeros((lines, math.ceil(n * bits / 32) * 32), dtype=np.uint8)
    for i in range(n):
        for b in range(bits):
            stream[:, i * bits + b] = values[:, i].astype(np.int64) >> b & 1
    words = (stream.reshape(lines, -1, 32).astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(-1)
    return words.astype(np.uint32).view(np.int32)


def pack_spaced(values, bits):
    """The packing of 2025: 32 // bits values in a word, the rest of it idle."""
    per = 32 // bits
    lines, n = values.shape
    padded = np.zeros((lines, math.ceil(n / per) * per), dtype=np.uint64)
    padded[:, :n] = values
    words = (padded.reshape(lines, -1, per) << (bits * np.arange(per, dtype=np.uint64))).sum(-1)
    return words.astype(np.uint32).view(np.int32)


def quantize(w, bits, index, symmetric, scale_type):
    """Round to nearest on the groups of `index` (one per column): codes, zeros [out, groups], scales [out, groups]."""
    w = w.numpy()
    groups = int(index.max()) + 1
    top = 2**bits - 1
    codes = np.zeros(w.shape, dtype=np.int64)
    zeros = np.zeros((w.shape[0], groups), dtype=np.int64)
    scales = torch.zeros((w.shape[0], groups))
    for g in range(groups):
        part = w[:, index == g]
        low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
        if symmetric:
            step = np.maximum(-low, high) * 2 / top
        else:
            step = (high - low) / top
        scales[:, g] = torch.from_numpy(step).to(scale_type).float()
        s = scales[:, g].numpy()
        zeros[:, g] = 2 ** (bits - 1) if symmetric else np.clip(np.round(-low / s), 0, top)
        codes[:, index == g] = np.clip(np.round(part / s[:, None]) + zeros[:, g : g + 1], 0, top)
    expected = (codes - zeros[:, index]) * scales.numpy()[:, index]
    return codes, zeros, scales, torch.from_numpy(expected.astype(np.float32))


def run_index(cols, group):
    return np.arange(cols) // (cols if group < 0 else group)


# ---- cases; each gives (files' configs, tensors, dequantized weights)

def rest(weights, skipped):
    return {n: t.half() for n, t in weights.items() if n[: -len(".weight")] not in skipped}


def gptq(weights, bits=4, group=32, sym=True, v2=False, label=None, act_order=False, scale_type=torch.float16, own=None,
         lm_head=False, skip=(), flat_index=False, wrap=False):
    tensors, expected = {}, dict(weights)
    names = [n for n in linears(weights) + (["lm_head"] if lm_head else []) if not any(s in n for s in skip)]
    rng = np.random.default_rng(5)
    for name in names:
        b, g = next(((x, y) for s, x, y in (own or []) if s in name), (bits, group))
        w = weights[name + ".weight"]
        index = run_index(w.shape[1], g)
        if act_order:
            index = index[rng.permutation(len(index))]
        if wrap:
            w = w.abs()  # the range starts at 0, and so do the zero points
        codes, zeros, scales, expected[name + ".weight"] = quantize(w, b, index, sym, scale_type)
        stored = (zeros if v2 else zeros - 1) % 2**b
        tensors[name + ".qweight"] = torch.from_numpy(np.ascontiguousarray(pack_dense(codes.T.T, b).T))
        tensors[name + ".qzeros"] = torch.from_numpy(pack_dense(np.ascontiguousarray(stored.T), b))
        tensors[name + ".scales"] = scales.T.contiguous().to(scale_type)
        tensors[name + ".g_idx"] = torch.from_numpy(np.zeros_like(index) if flat_index else index).int()
        if not (act_order or v2 or wrap) and scale_type == torch.float16 and w.shape[1] % max(g, 1) == 0:
            check_autogptq(tensors, name, b, g, w.shape, expected[name + ".weight"], scales, zeros)
    config = dict(quant_method="gptq", bits=bits, group_size=group, desc_act=act_order,
                  checkpoint_format=label or ("gptq_v2" if v2 else "gptq"), sym=sym, lm_head=lm_head)
    return config, {**tensors, **rest(weights, names)}, expected


def check_autogptq(tensors, name, bits, group, shape, expected, scales, zeros):
    linear = torch.nn.Linear(shape[1], shape[0], bias=False, dtype=torch.float32)
    linear.weight.data = expected
    if shape[0] % 32:
        return
    other = AUTO_GPTQ.QuantLinear(bits, group, shape[1], shape[0], bias=False, weight_dtype=torch.float32)
    other.pack(linear, scales, zeros=torch.from_numpy(zeros).float(), g_idx=None)
    assert torch.equal(other.qweight, tensors[name + ".qweight"]), name
    assert torch.equal(other.qzeros, tensors[name + ".qzeros"]), name


AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def awq(weights, group=32, gemv=False):
    tensors, expected = {}, dict(weights)
    names = [n for n in linears(weights) if group < 0 or weights[n + ".weight"].shape[1] % group == 0]
    for name in names:
        w = weights[name + ".weight"]
        size = w.shape[1] if group < 0 else group
        codes, zeros, scales, expected[name + ".weight"] = quantize(w, 4, run_index(w.shape[1], group), False,
                                                                    torch.float16)
        linear = torch.nn.Linear(w.shape[1], w.shape[0], bias=False, dtype=torch.float32)
        linear.weight.data = expected[name + ".weight"]
        if gemv:
            other = AWQ_GEMV.WQLinear_GEMV.from_linear(linear, 4, size, scales=scales, zeros=torch.from_numpy(zeros))
            mine = pack_dense(codes, 4)
        else:
            other = AWQ_GEMM.WQLinear_GEMM.from_linear(linear, 4, size, scales=scales.T.contiguous(),
                                                       zeros=torch.from_numpy(np.ascontiguousarray(zeros.T)))
            order = (np.arange(w.shape[0]).reshape(-1, 8)[:, AWQ_ORDER]).reshape(-1)
            mine = pack_dense(codes.T[:, order], 4)
        assert np.array_equal(other.qweight.numpy(), mine), name
        for part in ("qweight", "qzeros", "scales"):
            tensors[f"{name}.{part}"] = getattr(other, part).contiguous()
    config = dict(quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemv" if gemv else "gemm",
                  modules_to_not_convert=None)
    return config, {**tensors, **rest(weights, names)}, expected


def compressed(weights, groups, form, ignore=("lm_head",), spaced=False, act_order=False, scale_type=torch.float16,
               input_scale=False, per_group_format=False):
    """groups: (pattern or None, targets, weight arguments, input arguments)."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams
    tensors, expected, config_groups, done = {}, dict(weights), {}, []
    rng = np.random.default_rng(6)
    for number, (part, targets, weight_args, input_args) in enumerate(groups):
        scheme = QuantizationScheme(targets=targets, weights=QuantizationArgs(**weight_args),
                                    input_activations=QuantizationArgs(**input_args) if input_args else None)
        style = form if not per_group_format else ("int-quantized" if input_args else "pack-quantized")
        entry = json.loads(scheme.model_dump_json())
        entry["format"] = style
        config_groups[f"group_{number}"] = entry
        args = scheme.weights
        for name in linears(weights):
            if name in done or name in ignore or (part is not None and part not in name):
                continue
            done.append(name)
            w = weights[name + ".weight"]
            state = dict(weight=w)
            strategy = str(getattr(args.strategy, "value", args.strategy))
            size = args.group_size if strategy == "group" else w.shape[1]
            if strategy == "tensor":
                low, high = w.min()[None], w.max()[None]
            elif strategy == "block":
                r, c = args.block_structure
                padded = torch.zeros(math.ceil(w.shape[0] / r) * r, math.ceil(w.shape[1] / c) * c)
                padded[: w.shape[0], : w.shape[1]] = w
                tiles = padded.reshape(padded.shape[0] // r, r, -1, c)
                low, high = tiles.amin((1, 3)), tiles.amax((1, 3))
            else:
                tiles = w.reshape(w.shape[0], -1, size)
                low, high = tiles.amin(-1), tiles.amax(-1)
            scale, zero = calculate_qparams(low, high, args)
            state["weight_scale"] = scale.to(scale_type).float()
            if not args.symmetric:
                state["weight_zero_point"] = zero.to(torch.int8)
            compressor = BaseCompressor.get_value_from_registry(style)
            packed = compressor.compress(state, scheme)
            plain = compressor.decompress(packed, scheme)["weight"].float()
            if spaced:
                packed["weight_packed"] = respaced(packed["weight_packed"], args.num_bits, w.shape[1], 1)
                if "weight_zero_point" in packed:
                    packed["weight_zero_point"] = respaced(packed["weight_zero_point"], args.num_bits, w.shape[0], 0)
            if act_order:
                # The columns in another order, and for each the group that it was quantized in.
                order = torch.from_numpy(rng.permutation(w.shape[1]))
                codes = torch.from_numpy(unpack_dense(packed["weight_packed"].numpy(), args.num_bits, w.shape[1]))
                packed["weight_packed"] = torch.from_numpy(pack_dense(codes[:, order].numpy(), args.num_bits))
                packed["weight_g_idx"] = (order // size).int()
                plain = plain[:, order]
            packed["weight_scale"] = packed["weight_scale"].to(scale_type)
            if input_scale:
                packed["input_scale"] = torch.tensor([0.02])
            expected[name + ".weight"] = plain
            tensors.update({f"{name}.{key}": value.contiguous() for key, value in packed.items() if value is not None})
    config = dict(quant_method="compressed-tensors", format="mixed-precision" if per_group_format else form,
                  quantization_status="compressed", ignore=list(ignore), config_groups=config_groups,
                  kv_cache_scheme=None, global_compression_ratio=None)
    return config, {**tensors, **rest(weights, done)}, expected


def unpack_dense(words, bits, n):
    out = np.zeros((words.shape[0], n), dtype=np.int64)
    wide = words.view(np.uint32).astype(np.uint64)
    for i in range(n):
        for b in range(bits):
            bit = i * bits + b
            out[:, i] |= ((wide[:, bit // 32] >> np.uint64(bit % 32)) & np.uint64(1)).astype(np.int64) << b
    return out


def respaced(words, bits, n, dim):
    words = words if dim == 1 else words.T
    packed = pack_spaced(unpack_dense(np.ascontiguousarray(words.numpy()), bits, n), bits)
    return torch.from_numpy(packed if dim == 1 else np.ascontiguousarray(packed.T))


def fp8(weights, block):
    tensors, expected = {}, dict(weights)
    for name in linears(weights):
        w = weights[name + ".weight"]
        rows, cols = (math.ceil(w.shape[0] / block), math.ceil(w.shape[1] / block))
        scale = torch.zeros(rows, cols)
        for r in range(rows):
            for c in range(cols):
                scale[r, c] = w[r * block:(r + 1) * block, c * block:(c + 1) * block].abs().max() / 448.0
        wide = scale.repeat_interleave(block, 0).repeat_interleave(block, 1)[: w.shape[0], : w.shape[1]]
        codes = (w / wide).to(torch.float8_e4m3fn)
        expected[name + ".weight"] = codes.float() * wide
        tensors[name + ".weight"] = codes
        tensors[name + ".weight_scale_inv"] = scale
    config = dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[block, block],
                  modules_to_not_convert=["lm_head"])
    return config, {**tensors, **rest(weights, linears(weights))}, expected


def int_args(bits, strategy, symmetric=True, group=None):
    return dict(num_bits=bits, type="int", strategy=strategy, symmetric=symmetric, group_size=group)


FP8 = dict(num_bits=8, type="float", symmetric=True)
TOKEN_INT8 = dict(num_bits=8, type="int", strategy="token", symmetric=True, dynamic=True)
TOKEN_FP8 = dict(num_bits=8, type="float", strategy="token", symmetric=True, dynamic=True)
ALL = ["Linear"]


def one(args, inputs=None):
    return [(None, ALL, args, inputs)]


CASES = {
    "gptq-w4-g32": lambda w: gptq(w),
    "gptq-w4-asym-g64": lambda w: gptq(w, group=64, sym=False, wrap=False),
    "gptq-w4-wrapped-zeros": lambda w: gptq(w, group=32, sym=False, wrap=True),
    "gptq-w3-asym-g32": lambda w: gptq(w, bits=3, group=32, sym=False),
    "gptq-w2-g64-flat-g_idx": lambda w: gptq(w, bits=2, group=64, flat_index=True),
    "gptq-w8-row": lambda w: gptq(w, bits=8, group=-1),
    "gptq-w4-act-order": lambda w: gptq(w, act_order=True, sym=False),
    "gptq-w8-act-order-v2-g64": lambda w: gptq(w, bits=8, group=64, act_order=True, v2=True),
    "gptq-w4-label-v1-data-v2": lambda w: gptq(w, v2=True, label="gptq"),
    "gptq-w4-g16-bf16": lambda w: gptq(w, group=16, v2=True, sym=False, scale_type=torch.bfloat16),
    "gptq-w4-dynamic-head": lambda w: gptq(w, group=128, own=[("down_proj", 8, 32)], lm_head=True, skip=("o_proj",)),
    "awq-gemm-g32": lambda w: awq(w),
    "awq-gemm-row-older": lambda w: awq(w, group=-1),
    "awq-gemv-g64": lambda w: awq(w, group=64, gemv=True),
    "ct-w4a16-g32": lambda w: compressed(w, one(int_args(4, "group", group=32)), "pack-quantized"),
    "ct-w4a16-asym-g32": lambda w: compressed(w, one(int_args(4, "group", False, 32)), "pack-quantized"),
    "ct-w3a16-asym-g32": lambda w: compressed(w, one(int_args(3, "group", False, 32)), "pack-quantized"),
    "ct-w3a16-asym-spaced": lambda w: compressed(w, one(int_args(3, "group", False, 32)), "pack-quantized", spaced=True),
    "ct-w2a16-channel": lambda w: compressed(w, one(int_args(2, "channel")), "pack-quantized"),
    "ct-w8a16-channel-f32": lambda w: compressed(w, one(int_args(8, "channel")), "pack-quantized",
                                                 scale_type=torch.float32),
    "ct-w4a16-act-order": lambda w: compressed(w, one(int_args(4, "group", group=32)), "pack-quantized", act_order=True),
    "ct-w8a8": lambda w: compressed(w, one(int_args(8, "channel"), TOKEN_INT8), "int-quantized"),
    "ct-w8a8-asym-f32": lambda w: compressed(w, one(int_args(8, "channel", False), TOKEN_INT8), "int-quantized",
                                             scale_type=torch.float32),
    "ct-fp8-tensor-static": lambda w: compressed(w, one(dict(FP8, strategy="tensor"), dict(FP8, strategy="tensor")),
                                                 "float-quantized", scale_type=torch.float32, input_scale=True),
    "ct-fp8-channel": lambda w: compressed(w, one(dict(FP8, strategy="channel"), TOKEN_FP8), "float-quantized",
                                           scale_type=torch.bfloat16),
    "ct-fp8-block": lambda w: compressed(w, one(dict(FP8, strategy="block", block_structure=[32, 32])), "float-quantized"),
    "ct-mixed": lambda w: compressed(
        w, [("mlp", ["re:.*mlp[.](gate|up|down)_proj$"], int_args(4, "group", group=32), None),
            (None, ALL, int_args(8, "channel"), TOKEN_INT8)],
        "", ignore=("lm_head", "model.layers.0.self_attn.o_proj"), per_group_format=True),
    "fp8-block": lambda w: fp8(w, 48),
}


def write(name):
    config, tensors, expected = CASES[name](base_weights())
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    model = dict(CONFIG, architectures=["LlamaForCausalLM"])
    if name == "gptq-w4-dynamic-head":  # the older file and older names
        older = dict(w_bit=4, q_group_size=128, desc_act=False, sym=True, lm_head=True,
                     dynamic={r"+:.*\.down_proj$": dict(bits=8, group_size=32), r"-:.*o_proj": {}})
        (folder / "quantize_config.json").write_text(json.dumps(older, indent=1) + "\n")
    elif name == "awq-gemm-row-older":
        older = dict(w_bit=4, q_group_size=-1, zero_point=True, version="GEMM")
        (folder / "quant_config.json").write_text(json.dumps(older, indent=1) + "\n")
    elif name == "gptq-w8-row":  # nobody says sym
        del config["sym"]
        model["quantization_config"] = config
    else:
        model["quantization_config"] = config
    if name == "gptq-w4-g32":  # converters of old wrote biases that are not there
        for linear in linears(expected):
            tensors[linear + ".bias"] = torch.zeros(expected[linear + ".weight"].shape[0], dtype=torch.float16)
    (folder / "config.json").write_text(json.dumps(model, indent=1) + "\n")
    save_file({n: t.contiguous() for n, t in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    logits = logits_of({n: t.float() for n, t in expected.items()})
    logits.astype("<f4").tofile(folder / "logits.f32")
    print(f"{name}: {len(tensors)} tensors, logits up to {np.abs(logits).max():.2f}")


def main():
    global AUTO_GPTQ, AWQ_GEMM, AWQ_GEMV
    parser = argparse.ArgumentParser()
    parser.add_argument("--only")
    options = parser.parse_args()
    AUTO_GPTQ = module_from("auto_gptq", "nn_modules/qlinear/qlinear_cuda_old.py")
    AWQ_GEMM = module_from("awq", "modules/linear/gemm.py")
    AWQ_GEMV = module_from("awq", "modules/linear/gemv.py")
    for name in CASES:
        if options.only in (None, name):
            write(name)


if __name__ == "__main__":
    main()
