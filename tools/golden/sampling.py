#!/usr/bin/env python3
"""Writes tests/golden/sampling/cases.json: laws, draws and log-probabilities of random cases.

An independent implementation of docs/sampling.md in NumPy; where transformers defines the same step, the script
first checks that both agree. Run from the repository root with the Python of the golden venv.
"""
import json
import pathlib

import numpy as np
import torch
import transformers as hf

OUT = pathlib.Path("tests/golden/sampling")
MASK = (1 << 32) - 1


def philox(seed, position, purpose, index):
    c = [position & MASK, position >> 32, purpose, index]
    k = [seed & MASK, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & MASK, (a >> 32) ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def noise(seed, position, token):
    w = philox(seed, position, 0, token)
    return -np.log((((w[0] << 32 | w[1]) >> 12) + 0.5) * 2.0**-52)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def adjust(raw, p, prompt, output, stop_ids):
    x = raw.copy()
    seen = sorted(set(prompt) | set(output))
    r = p.get("repetition_penalty", 1.0)
    for t in seen:
        x[t] = np.float32(float(x[t]) / r if x[t] > 0 else float(x[t]) * r)
    for t in sorted(set(output)):
        x[t] = np.float32(float(x[t]) - p.get("presence_penalty", 0.0))
        x[t] = np.float32(float(x[t]) - p.get("frequency_penalty", 0.0) * output.count(t))
    for t, b in p.get("logit_bias", []):
        x[t] = np.float32(float(x[t]) + b)
    history = prompt + output
    for word in p.get("bad_words", []):
        if history[len(history) - len(word) + 1:] == word[:-1] and len(word) - 1 <= len(history):
            x[word[-1]] = -np.inf
    if len(output) < p.get("min_tokens", 0):
        x[stop_ids] = -np.inf
    return x


def law(raw, p, prompt, output, stop_ids):
    x = adjust(raw, p, prompt, output, stop_ids)
    if p.get("temperature", 1.0) == 0.0:
        return {int(np.argmax(x)): 1.0}
    probs = softmax(x.astype(np.float64) / p.get("temperature", 1.0))
    order = sorted(range(len(x)), key=lambda t: (-x[t], t))
    keep = [t for t in order if probs[t] > 0]
    if p.get("top_k", 0) > 0:
        keep = keep[:p["top_k"]]
    if p.get("top_p", 1.0) < 1.0:
        q = np.cumsum([probs[t] for t in keep]) / sum(probs[t] for t in keep)
        keep = keep[:int(np.searchsorted(q, p["top_p"])) + 1]
    if p.get("min_p", 0.0) > 0.0:
        keep = [t for t in keep if probs[t] >= p["min_p"] * probs[keep[0]]]
    if p.get("typical_p", 1.0) < 1.0:
        q = np.array([probs[t] for t in keep])
        q /= q.sum()
        far = np.abs(-np.log(q) - -(q * np.log(q)).sum())
        by = sorted(range(len(keep)), key=lambda i: (far[i], keep[i]))
        mass = np.cumsum(q[by])
        keep = [keep[i] for i in by[:int(np.searchsorted(mass, p["typical_p"])) + 1]]
    total = sum(probs[t] for t in keep)
    return {t: probs[t] / total for t in keep}


def transformers_law(raw, p, prompt, output):
    """The same law by transformers' processors, or None where a step has no counterpart there."""
    if p.keys() & {"presence_penalty", "frequency_penalty", "logit_bias", "bad_words", "min_tokens"}:
        return None
    if p.get("temperature", 1.0) == 0.0:
        return None
    ids = torch.tensor([prompt + output])
    x = torch.tensor(raw, dtype=torch.float64)[None]
    if "repetition_penalty" in p:
        x = hf.RepetitionPenaltyLogitsProcessor(p["repetition_penalty"])(ids, x)
    steps = [("temperature", hf.TemperatureLogitsWarper), ("top_k", hf.TopKLogitsWarper),
             ("top_p", hf.TopPLogitsWarper), ("min_p", hf.MinPLogitsWarper), ("typical_p", hf.TypicalLogitsWarper)]
    for name, warper in steps:
        if name in p:
            x = warper(p[name])(ids, x)
    probs = torch.softmax(x, -1)[0].numpy()
    return {int(t): float(probs[t]) for t in np.nonzero(probs)[0]}


def main():
    rng = np.random.default_rng(20260101)
    singles = [{}, {"temperature": 0.0}, {"temperature": 0.3}, {"temperature": 2.0}, {"top_k": 1}, {"top_k": 7},
               {"top_p": 0.1}, {"top_p": 0.9}, {"min_p": 0.05}, {"typical_p": 0.5}, {"typical_p": 0.95},
               {"repetition_penalty": 1.3}, {"repetition_penalty": 0.8}, {"presence_penalty": 1.5},
               {"frequency_penalty": -0.7}, {"logit_bias": [[3, 5.5], [4, -100.0]]},
               {"bad_words": [[5], [1, 2], [2, 1, 2]]}, {"min_tokens": 9}]
    cases, compared = [], 0
    for i in range(60):
        vocab = int(rng.integers(12, 90))
        raw = (rng.normal(size=vocab) * rng.choice([0.5, 2.0, 5.0])).astype(np.float32)
        p = {}
        for extra in ([singles[i]] if i < len(singles) else rng.choice(len(singles), 4)):
            p.update(extra if isinstance(extra, dict) else singles[extra])
        if i >= len(singles) and p.get("temperature") == 0.0:
            p["temperature"] = 0.9
        prompt = [int(t) for t in rng.integers(0, 6, size=rng.integers(1, 8))]
        output = [int(t) for t in rng.integers(0, 6, size=rng.integers(0, 8))]
        stop_ids = [0, 7]
        want = law(raw, p, prompt, output, stop_ids)
        theirs = transformers_law(raw, p, prompt, output)
        # Rounding to f32 after the repetition penalty is ours alone, so probabilities agree to f32 only.
        if theirs is not None:
            assert want.keys() == theirs.keys(), (p, want, theirs)
            assert all(abs(want[t] - theirs[t]) < 1e-6 for t in want), p
            compared += 1
        position = len(prompt) + len(output)
        draws = []
        for seed in [0, 1, 2**64 - 1] + [int(s) for s in rng.integers(0, 2**63, size=5)]:
            draws.append([seed, min(want, key=lambda t: (noise(seed, position, t) / want[t], t))])
        raw64 = raw.astype(np.float64)
        logprobs = raw64 - raw64.max() - np.log(np.exp(raw64 - raw64.max()).sum())
        top = sorted(range(vocab), key=lambda t: (-raw[t], t))[:5]
        cases.append({"params": p, "prompt": prompt, "output": output, "stop_ids": stop_ids,
                      "logits_bits": [int(b) for b in raw.view(np.uint32)],
                      "tokens": list(want), "probabilities": list(want.values()), "draws": draws,
                      "top": top, "logprobs": [float(logprobs[t]) for t in top]})
    assert compared >= 10
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / "cases.json", "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
    print(f"{len(cases)} cases, {compared} of them also by transformers {hf.__version__}")


if __name__ == "__main__":
    main()
