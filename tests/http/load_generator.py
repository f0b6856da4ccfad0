#!/usr/bin/env python3
"""A small load generator in the manner of vLLM's, independent of `trine bench serve`: asyncio and the standard library only.

    load_generator.py --base-url URL --num-prompts N (--clients C | --request-rate R) [--input-words W] [--output-len T] [--seed S]

Prints one JSON object with vLLM's keys. Latencies count from the scheduled arrival, tokens by the server's usage.
"""
import argparse
import asyncio
import json
import random
import statistics
import time
import urllib.parse


class Answer:
    def __init__(self, scheduled):
        self.scheduled = scheduled
        self.outputs = []
        self.end = None
        self.status = None
        self.usage = None
        self.done = False
        self.error = ""

    def ok(self):
        return self.status == 200 and self.done and self.usage is not None and not self.error


async def lines_of(reader, chunked):
    """Lines of the body."""
    rest = b""
    while True:
        if chunked:
            size = int((await reader.readline()).split(b";")[0] or b"0", 16)
            data = await reader.readexactly(size)
            await reader.readline()
            if size == 0:
                break
        else:
            data = await reader.read(65536)
            if not data:
                break
        rest += data
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r").decode()


async def ask(host, port, path, body, scheduled):
    answer = Answer(scheduled)
    writer = None
    try:
        reader, writer = await asyncio.open_connection(host, port)
        data = json.dumps(body).encode()
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        answer.status = int((await reader.readline()).split()[1])
        chunked = False
        while (line := (await reader.readline()).strip().lower()) != b"":
            chunked = chunked or line == b"transfer-encoding: chunked"
        async for line in lines_of(reader, chunked):
            if line == "data: [DONE]":
                answer.done = True
            elif line.startswith("data: "):
                event = json.loads(line[6:])
                answer.error = answer.error or json.dumps(event.get("error") or "").strip('"')
                answer.usage = event.get("usage") or answer.usage
                if any(choice.get("text") for choice in event.get("choices", [])):
                    answer.outputs.append(time.monotonic())
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        answer.error = repr(error)
    finally:
        answer.end = time.monotonic()
        if writer:
            writer.close()
    return answer


def percentile(values, q):
    values = sorted(values)
    at = q * (len(values) - 1)
    low = int(at)
    return values[low] + (at - low) * (values[min(low + 1, len(values) - 1)] - values[low]) if values else 0.0


def report(answers, start):
    good = [a for a in answers if a.ok()]
    seconds = max(a.end for a in answers) - start
    tokens = sum(a.usage["completion_tokens"] for a in good)
    out = {"completed": len(good), "failed": len(answers) - len(good), "duration": seconds, "total_output_tokens": tokens,
           "total_input_tokens": sum(a.usage["prompt_tokens"] for a in good), "output_throughput": tokens / seconds,
           "request_throughput": len(good) / seconds}
    metrics = {
        "ttft": [a.outputs[0] - a.scheduled for a in good if a.outputs],
        "tpot": [(a.outputs[-1] - a.outputs[0]) / (a.usage["completion_tokens"] - 1) for a in good if len(a.outputs) > 1],
        "itl": [b - a for one in good for a, b in zip(one.outputs, one.outputs[1:])],
        "e2el": [a.end - a.scheduled for a in good],
    }
    for name, values in metrics.items():
        ms = [1e3 * v for v in values]
        out[f"mean_{name}_ms"] = statistics.fmean(ms) if ms else 0.0
        for q in (50, 90, 95, 99):
            out[f"p{q}_{name}_ms"] = percentile(ms, q / 100)
        out[f"median_{name}_ms"] = out[f"p50_{name}_ms"]
    return out


async def run(args):
    url = urllib.parse.urlsplit(args.base_url)
    draw = random.Random(args.seed)
    words = ["time", "work", "long", "hand", "part", "place", "case", "week", "point", "company"]

    def body():
        return {"prompt": " ".join(draw.choice(words) for _ in range(args.input_words)), "max_tokens": args.output_len, "temperature": 0,
                "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}

    async def one(scheduled):
        return await ask(url.hostname, url.port, "/v1/completions", body(), scheduled)

    start = time.monotonic()
    if args.clients:
        left = [args.num_prompts]

        async def client():
            out = []
            while left[0] > 0:
                left[0] -= 1
                out.append(await one(time.monotonic()))
            return out

        answers = sum(await asyncio.gather(*(client() for _ in range(args.clients))), [])
    else:
        at, tasks = start, []
        for _ in range(args.num_prompts):
            at += draw.expovariate(args.request_rate)
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            tasks.append(asyncio.create_task(one(at)))
        answers = await asyncio.gather(*tasks)
    return report(answers, start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--num-prompts", type=int, default=100)
    load = parser.add_mutually_exclusive_group(required=True)
    load.add_argument("--clients", type=int)
    load.add_argument("--request-rate", type=float)
    parser.add_argument("--input-words", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    print(json.dumps(asyncio.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
