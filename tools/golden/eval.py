#!/usr/bin/env python3
"""Golden files of `trine eval`: tests/golden/eval. Needs NumPy and SciPy.

Statistics come from scipy.stats, numpy.percentile and scipy.optimize, divergences from scipy.special, and the draws of the
bootstrap from this file's own Philox4x32-10.
"""

import json
import math
import pathlib

import numpy
from scipy import optimize, special, stats

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "eval"
PURPOSE = 5  # draws of a bootstrap
MASK = 0xFFFFFFFF
RESAMPLES = 2000


def philox(seed, position, index):
    c = [position & MASK, position >> 32, PURPOSE, index]
    k = [seed & MASK, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def uniform(words, half):
    return (((words[2 * half] << 32 | words[2 * half + 1]) >> 12) + 0.5) / 2**52


def bootstrap(values, seed):
    """The 95 % interval of the mean: item k of a resample is drawn by half k % 2 of block k // 2."""
    n, means = len(values), []
    for r in range(RESAMPLES):
        drawn = [values[int(uniform(philox(seed, r, k // 2), k % 2) * n)] for k in range(n)]
        means.append(math.fsum(drawn) / n)
    return numpy.percentile(means, [2.5, 97.5]).tolist()


def mdd(n, discordant):
    psi = (discordant + 1) / (n + 2)
    za, zb = stats.norm.ppf(0.975), stats.norm.ppf(0.8)

    def excess(d):
        p = max(psi, d)
        return d * math.sqrt(n) - za * math.sqrt(p) - zb * math.sqrt(max(0.0, p - d * d))

    if n < 6 or excess(1.0) < 0:
        return 1.0
    return max(optimize.brentq(excess, 1e-12, 1.0, xtol=1e-14), 6 / n)


def macro_f1(confusion):
    matrix = numpy.array(confusion)
    scores = []
    for i in range(matrix.shape[0]):
        hits, expected, answered = matrix[i, i], matrix[i].sum(), matrix[:, i].sum()
        if expected + answered:
            precision = hits / answered if answered else 0.0
            recall = hits / expected if expected else 0.0
            scores.append(2 * precision * recall / (precision + recall) if hits else 0.0)
    return float(numpy.mean(scores))


def rows(random):
    """Pairs of logit rows, some far apart, some nearly equal, and what follows from them."""
    out = []
    for width, spread, noise in ((5, 1.0, 1.0), (64, 4.0, 0.1), (64, 30.0, 5.0), (997, 3.0, 1e-3), (997, 8.0, 2.0)):
        p = (random.standard_normal(width) * spread).astype(numpy.float32)
        q = (p + random.standard_normal(width) * noise).astype(numpy.float32)
        target = int(random.integers(width))
        log_p, log_q = (special.log_softmax(x.astype(numpy.float64)) for x in (p, q))
        top_p, top_q = (numpy.argsort(-x, kind="stable")[:5] for x in (p, q))
        out.append(
            {
                "reference": p.tolist(),
                "logits": q.tolist(),
                "target": target,
                "loss": -log_q[target],
                "reference_loss": -log_p[target],
                "kl": float(numpy.sum(numpy.exp(log_p) * (log_p - log_q))),
                "same_top1": bool(top_p[0] == top_q[0]),
                "shared_top5": len(set(top_p.tolist()) & set(top_q.tolist())),
            }
        )
    return out


def main():
    random = numpy.random.default_rng(7)
    values = random.exponential(size=37).tolist()
    heavy = (random.pareto(1.5, size=2500)).tolist()
    confusions = [
        [[5, 1, 0], [2, 7, 1]],
        [[3, 0, 0, 0], [0, 0, 0, 4], [1, 2, 6, 0]],
        [[0, 0], [0, 9]],
    ]
    golden = {
        "mcnemar": [
            [b, c, float(stats.binomtest(min(b, c), b + c, 0.5).pvalue) if b + c else 1.0]
            for b, c in ((0, 0), (0, 5), (6, 0), (1, 7), (3, 3), (4, 5), (10, 25), (120, 80), (900, 1000), (0, 300))
        ],
        "bootstrap": [
            {"values": part, "seed": seed, "interval": bootstrap(part, seed)}
            for part, seed in ((values, 1), (values, 77), (values[:2], 1), (values[:9], 2**40 + 3))
        ],
        "quantiles": [
            {
                "values": part,
                "mean": float(numpy.mean(part)),
                "median": float(numpy.percentile(part, 50)),
                "p99": float(numpy.percentile(part, 99)),
                "p999": float(numpy.percentile(part, 99.9)),
                "max": max(part),
            }
            for part in (values, heavy, [3.5])
        ],
        "mdd": [
            [n, d, mdd(n, d)]
            for n, d in ((5, 0), (6, 0), (10, 3), (30, 0), (30, 12), (99, 10), (500, 50), (500, 500), (20000, 1500))
        ],
        "macro_f1": [[matrix, macro_f1(matrix)] for matrix in confusions],
        "rows": rows(random),
    }
    (OUT / "statistics.json").write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
