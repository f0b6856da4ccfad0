#!/usr/bin/env python3
"""Golden files of the load generator: tests/golden/loadgen. Standard library only.

Arrival times come from this file's own Philox4x32-10, gamma sampler and logarithm; what the trace readers must find comes
from Python's csv, json and datetime.
"""

import csv
import datetime
import io
import json
import math
import pathlib
import random

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "loadgen"
PURPOSE = 255  # draws of the generator
MASK = 0xFFFFFFFF


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


class Gap:
    """Draws of one gap, in the order in which the sampler asks for them."""

    def __init__(self, seed, index):
        self.seed, self.index, self.k = seed, index, 0

    def words(self):
        self.k += 1
        return philox(self.seed, self.index, self.k - 1)

    def normal(self):
        while True:
            words = self.words()
            x, y = 2 * uniform(words, 0) - 1, 2 * uniform(words, 1) - 1
            r = x * x + y * y
            if 0 < r < 1:
                return x * math.sqrt(-2 * math.log(r) / r)

    def gamma(self, shape):
        """Marsaglia and Tsang 2000."""
        if shape < 1:
            boost = uniform(self.words(), 0) ** (1 / shape)
            return self.gamma(shape + 1) * boost
        d = shape - 1 / 3
        while True:
            x = self.normal()
            v = (1 + x / math.sqrt(9 * d)) ** 3
            if v <= 0:
                continue
            if math.log(uniform(self.words(), 0)) < 0.5 * x * x + d - d * v + d * math.log(v):
                return d * v


def arrivals(rate, shape, seed, count):
    now, out = 0.0, []
    for i in range(count):
        gap = -math.log(uniform(philox(seed, i, 0), 0)) if shape == 1 else Gap(seed, i).gamma(shape) / shape
        now += gap / rate
        out.append(now)
    return out


def azure_time(text):
    """Python reads six digits of a second's fraction: the rest is added."""
    text = text.removesuffix("+00:00")
    head, _, fraction = text.partition(".")
    time = datetime.datetime.strptime(head, "%Y-%m-%d %H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    return time.timestamp() * 1000 + float("0." + (fraction or "0")) * 1000


def in_order(entries):
    entries.sort(key=lambda e: e["at_ms"])
    first = entries[0]["at_ms"]
    return [{**e, "at_ms": e["at_ms"] - first} for e in entries]


def azure():
    draw = random.Random(1)
    time = datetime.datetime(2023, 11, 16, 23, 59, 50)
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for _ in range(40):
        time += datetime.timedelta(microseconds=draw.randrange(3_000_000))
        lines.append(f"{time:%Y-%m-%d %H:%M:%S.%f}{draw.randrange(10)},{draw.randrange(1, 7437)},{draw.randrange(1, 600)}")
    lines[3], lines[4] = lines[4], lines[3]
    text = "\r\n".join(lines) + "\r\n"
    rows = csv.DictReader(io.StringIO(text, newline=""))
    want = [{"at_ms": azure_time(r["TIMESTAMP"]), "prompt_tokens": int(r["ContextTokens"]), "output_tokens": int(r["GeneratedTokens"])} for r in rows]
    return text, in_order(want)


def mooncake():
    draw = random.Random(2)
    lines = []
    for i in range(30):
        length = draw.randrange(1, 4000)
        ids = list(range(-(-length // 512)))
        ids = [x if x < 2 else 100 * i + x for x in ids]
        lines.append(json.dumps({"timestamp": draw.randrange(4) * 3000, "input_length": length, "output_length": draw.randrange(1, 900), "hash_ids": ids}))
    text = "\n".join(lines) + "\n"
    want = [json.loads(line) for line in text.splitlines()]
    return text, in_order([{"at_ms": w["timestamp"], "prompt_tokens": w["input_length"], "output_tokens": w["output_length"], "blocks": w["hash_ids"]} for w in want])


def sharegpt():
    draw = random.Random(3)

    def words(count):
        return " ".join(draw.choice(["time", "é", "ship", "\"x\"", "日本", "line\nline"]) for _ in range(count))

    talks = [{"id": f"t{i}", "conversations": [{"from": who, "value": words(draw.choice([1, 30, 400, 1500]))} for who in ["human", "gpt"] * draw.randrange(3)]} for i in range(12)]
    want = []
    for talk in talks:
        turns = talk["conversations"]
        if len(turns) < 2:
            continue
        size = [-(-len(t["value"].encode()) // 4) for t in turns[:2]]
        if min(size) >= 4 and size[0] <= 1024 and sum(size) <= 2048:
            want.append({"prompt": turns[0]["value"], "output_tokens": size[1]})
    return json.dumps(talks, ensure_ascii=False) + "\n", want


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    cases = [{"rate": rate, "burstiness": shape, "seed": seed, "at_s": arrivals(rate, shape, seed, 50)}
             for rate, shape, seed in ((1.0, 1.0, 0), (8.0, 1.0, 7), (4.0, 0.5, 1), (4.0, 0.1, 2), (4.0, 3.0, 2**40 + 3), (0.25, 50.0, 5))]
    (OUT / "arrivals.json").write_text(json.dumps(cases, indent=0) + "\n")
    for name, suffix, maker in (("azure", "csv", azure), ("mooncake", "jsonl", mooncake), ("sharegpt", "json", sharegpt)):
        text, want = maker()
        (OUT / f"{name}.{suffix}").write_bytes(text.encode())
        (OUT / f"{name}.expected.json").write_text(json.dumps(want, indent=0) + "\n")


if __name__ == "__main__":
    main()
