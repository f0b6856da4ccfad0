#!/usr/bin/env python3
"""Golden logits of tiny models of every family, computed with the `transformers` package.

    python -P tools/golden/families.py [--only NAME] [--check]

Run with the Python of the golden venv (tools/golden/requirements.txt). Writes tests/golden/families/<case>/:

    config.json      the hub's spelling of the configuration
    config_v5.json   the same as transformers 5 saves it
    case.json        tensor names and shapes, token count, positions whose logits are stored, LoadOptions
    logits.f32       float32 little-endian, [positions, vocabulary]

Weights and tokens are not stored. Both sides make them from a hash (tests/support/hash_weights.h):
    h(name)   = FNV-1a 64 of the UTF-8 name
    x(name,i) = splitmix64(h(name) + i), i the flat index, row-major
    u(name,i) = (x >> 40) / 2^23 - 1                         in [-1, 1), exact in float64
    weight    = float32(offset + scale * u), scale and offset by the kind of tensor (case.json says which)
    token t   = x("tokens", t) % vocabulary
--check recomputes and compares instead of writing. Everything runs in float32 with eager attention.
"""
import argparse
import json
import math
import pathlib
import sys

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "families"
MASK = (1 << 64) - 1


def fnv1a(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def hashed(name, count):
    """x(name, 0 .. count-1) as uint64."""
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a(name)) + np.arange(count, dtype=np.uint64)
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def scale_and_offset(name, shape, gemma):
    """Spread of a tensor's values: norms near 1 (near 0 where the norm adds 1), matrices by their width."""
    if name.endswith("norm.weight"):
        return 0.25, 0.0 if gemma else 1.0
    if name.endswith(".bias"):
        return 0.25, 0.0
    if "embed_tokens" in name:
        return 1.0, 0.0
    if "q_proj" in name or "k_proj" in name or "qkv_proj" in name:
        return 2.0 * math.sqrt(3.0 / shape[-1]), 0.0  # attention that prefers some positions
    if "gate.weight" in name:  # the router of a mixture of experts
        return 2.0 * math.sqrt(3.0 / shape[-1]), 0.0
    return math.sqrt(3.0 / shape[-1]), 0.0


def weight(name, shape, gemma):
    scale, offset = scale_and_offset(name, shape, gemma)
    u = (hashed(name, int(np.prod(shape))) >> np.uint64(40)).astype(np.float64) / 2.0**23 - 1.0
    return (offset + scale * u).astype(np.float32).reshape(shape)


BASE = dict(vocab_size=131, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5, hidden_act="silu",
            rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=False, torch_dtype="float32",
            bos_token_id=1, eos_token_id=2)


def llama(**more):
    return dict(BASE, model_type="llama", architectures=["LlamaForCausalLM"], attention_bias=False, mlp_bias=False) | more


def qwen(model_type, **more):
    arch = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}[model_type]
    return dict(BASE, model_type=model_type, architectures=[arch], use_sliding_window=False, sliding_window=None,
                rms_norm_eps=1e-6) | more


def gemma(**more):
    base = {k: v for k, v in BASE.items() if k != "hidden_act"}
    return dict(base, model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], num_hidden_layers=6, head_dim=24,
                hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6, tie_word_embeddings=True,
                query_pre_attn_scalar=20, sliding_window=16, sliding_window_pattern=3, rope_theta=1000000.0,
                rope_local_base_freq=10000.0, attention_bias=False) | more


def phi(**more):
    return dict(BASE, model_type="phi3", architectures=["Phi3ForCausalLM"], sliding_window=None,
                original_max_position_embeddings=512, pad_token_id=0) | more


def longrope(half):
    return {"type": "longrope", "short_factor": [1.0 + 0.03 * i for i in range(half)],
            "long_factor": [1.0 + 0.4 * i for i in range(half)]}


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
# name -> (config, tokens, max_context for our loader: 0 keeps the file's)
CASES = {
    "llama": (llama(), 80, 0),
    "llama-bias-tied": (llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True, head_dim=24,
                              num_key_value_heads=4), 60, 0),
    "llama-llama3": (llama(rope_theta=500000.0, rope_scaling=LLAMA3), 200, 0),
    "llama-linear": (llama(rope_scaling={"type": "linear", "factor": 4.0}), 200, 0),
    "llama-yarn": (llama(rope_scaling=YARN), 200, 0),
    "llama-yarn-mscale": (llama(rope_scaling=YARN | {"mscale": 1.0, "mscale_all_dim": 0.5, "beta_fast": 16.0,
                                                     "beta_slow": 2.0, "truncate": False}), 200, 0),
    "llama-yarn-factor": (llama(rope_scaling=YARN | {"attention_factor": 1.3}), 200, 0),
    "llama-4k": (llama(num_hidden_layers=2, max_position_embeddings=8192, rope_theta=500000.0,
                       rope_scaling=LLAMA3 | {"original_max_position_embeddings": 1024}), 4100, 0),
    "mistral": (dict(BASE, model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=24,
                     head_dim=20), 120, 0),
    "mistral-4k": (dict(BASE, model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=1000,
                        num_hidden_layers=2, max_position_embeddings=8192), 4100, 0),
    "qwen2": (qwen("qwen2", tie_word_embeddings=True), 80, 0),
    "qwen2-window": (qwen("qwen2", use_sliding_window=True, sliding_window=20, max_window_layers=1), 120, 0),
    "qwen3": (qwen("qwen3", head_dim=24, rope_scaling=YARN, attention_bias=False), 200, 0),
    "qwen3-window-bias": (qwen("qwen3", head_dim=16, attention_bias=True, use_sliding_window=True, sliding_window=20,
                               max_window_layers=2), 120, 0),
    "qwen3-moe": (qwen("qwen3_moe", head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
                       norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[]), 80, 0),
    "qwen3-moe-sparse": (qwen("qwen3_moe", head_dim=16, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=32,
                              norm_topk_prob=False, decoder_sparse_step=2, mlp_only_layers=[3], num_hidden_layers=4,
                              use_sliding_window=True, sliding_window=20), 80, 0),
    "mixtral": (dict(BASE, model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=4,
                     num_experts_per_tok=2, sliding_window=None, rope_theta=1000000.0), 80, 0),
    "gemma3": (gemma(), 120, 0),
    "gemma3-scaled": (gemma(rope_scaling={"rope_type": "linear", "factor": 8.0}, final_logit_softcapping=30.0,
                            num_hidden_layers=4, sliding_window_pattern=2, num_key_value_heads=1), 120, 0),
    "phi3": (phi(sliding_window=30), 120, 0),
    "phi3-longrope-long": (phi(original_max_position_embeddings=64, rope_scaling=longrope(8)), 200, 0),
    "phi3-longrope-short": (phi(original_max_position_embeddings=64, rope_scaling=longrope(8)), 64, 64),
    "phi3-partial": (phi(original_max_position_embeddings=64, partial_rotary_factor=0.75,
                         rope_scaling=longrope(6) | {"type": "longrope"}), 200, 0),
}


def positions_of(tokens):
    """First, page and window borders, past scaling borders, last."""
    wanted = [0, 1, 15, 16, 19, 20, 23, 24, 29, 30, 31, 32, 33, 63, 64, 65, 100, 150, 1000, 1024, 2048, 4095, 4096,
              tokens - 1]
    step = [p for p in wanted if p < tokens]
    return sorted(set(step if tokens < 1000 else [0, 33, 999, 1000, 1024, 2048, 4095, 4096, tokens - 1]))


def hub_tensors(model, config):
    """(name, shape) of every stored tensor as hub checkpoints name them, with per-expert matrices."""
    out = []
    for name, value in model.state_dict().items():
        shape = list(value.shape)
        if name == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        if name.endswith("experts.gate_up_proj") or name.endswith("experts.down_proj"):
            mixtral = config["model_type"] == "mixtral"
            prefix = name[: name.rindex("experts.") + len("experts.")]
            if mixtral:
                prefix = prefix.replace(".mlp.", ".block_sparse_moe.")
            for e in range(shape[0]):
                if name.endswith("down_proj"):
                    out.append((f"{prefix}{e}.{'w2' if mixtral else 'down_proj'}.weight", shape[1:]))
                else:
                    half = [shape[1] // 2, shape[2]]
                    out.append((f"{prefix}{e}.{'w1' if mixtral else 'gate_proj'}.weight", half))
                    out.append((f"{prefix}{e}.{'w3' if mixtral else 'up_proj'}.weight", half))
            continue
        if config["model_type"] == "mixtral":
            name = name.replace(".mlp.gate.", ".block_sparse_moe.gate.")
        out.append((name, shape))
    return out


def fill(model, config, tensors):
    is_gemma = config["model_type"] == "gemma3_text"
    values = {name: torch.from_numpy(weight(name, shape, is_gemma)) for name, shape in tensors}
    used = set()

    def take(name):
        used.add(name)
        return values[name]

    with torch.no_grad():
        for name, param in model.state_dict().items():
            if name == "lm_head.weight" and config["tie_word_embeddings"]:
                continue
            hub = name
            mixtral = config["model_type"] == "mixtral"
            if mixtral:
                hub = hub.replace(".mlp.", ".block_sparse_moe.") if (".experts." in hub or ".gate." in hub) else hub
            if hub.endswith("experts.gate_up_proj"):
                prefix = hub[: -len("gate_up_proj")]
                names = ("w1", "w3") if mixtral else ("gate_proj", "up_proj")
                param.copy_(torch.stack([torch.cat([take(f"{prefix}{e}.{n}.weight") for n in names])
                                         for e in range(param.shape[0])]))
            elif hub.endswith("experts.down_proj"):
                prefix = hub[: -len("down_proj")]
                leaf = "w2" if mixtral else "down_proj"
                param.copy_(torch.stack([take(f"{prefix}{e}.{leaf}.weight") for e in range(param.shape[0])]))
            else:
                param.copy_(take(hub))
    assert used == set(values), sorted(set(values) - used)


def run_case(name):
    hub, tokens, max_context = CASES[name]
    config = AutoConfig.for_model(hub["model_type"], **{k: v for k, v in json.loads(json.dumps(hub)).items()
                                                        if k not in ("model_type", "architectures")})
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    assert model.config._attn_implementation == "eager"
    tensors = hub_tensors(model, hub)
    fill(model, hub, tensors)
    if hub["tie_word_embeddings"]:
        model.tie_weights()
        assert model.get_output_embeddings().weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
    ids = (hashed("tokens", tokens) % np.uint64(hub["vocab_size"])).astype(np.int64)
    positions = positions_of(tokens)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None]).logits[0, positions].float().numpy()
    v5 = json.loads(model.config.to_json_string(use_diff=True))
    v5["architectures"] = hub["architectures"]
    is_gemma = hub["model_type"] == "gemma3_text"
    case = {"tokens": tokens, "max_context": max_context, "positions": positions,
            "tensors": [[n, s, *scale_and_offset(n, s, is_gemma)] for n, s in tensors]}
    return hub, v5, case, logits.astype("<f4")


def dump(value):
    text = json.dumps(value, indent=1)
    return text + "\n"


def dump_case(case):
    rows = ",\n  ".join(json.dumps(t) for t in case["tensors"])
    head = {k: v for k, v in case.items() if k != "tensors"}
    return json.dumps(head)[:-1] + ', "tensors": [\n  ' + rows + "\n]}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    bad = 0
    for name in CASES if args.only is None else [args.only]:
        hub, v5, case, logits = run_case(name)
        folder = OUT / name
        if args.check:
            old = np.frombuffer((folder / "logits.f32").read_bytes(), "<f4").reshape(logits.shape)
            error = float((np.abs(old - logits).max(1) / np.abs(logits).max(1)).max())
            print(f"{name}: {error:.1e}")
            bad += error > 1e-5
            continue
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(dump(hub))
        (folder / "config_v5.json").write_text(dump(v5))
        (folder / "case.json").write_text(dump_case(case))
        (folder / "logits.f32").write_bytes(logits.tobytes())
        print(f"{name}: {logits.shape}, |logit| max {np.abs(logits).max():.2f}, transformers {transformers.__version__}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
