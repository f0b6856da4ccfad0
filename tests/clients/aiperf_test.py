#!/usr/bin/env python3
"""AIPerf (the load generator behind GenAI-Perf's name) beside `trine bench serve`: the same load on the same server, and the
same figures.

Usage: aiperf_test.py TRINE_BINARY [unittest arguments]. Needs requirements-aiperf.txt; loopback only, nothing is fetched.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "http"))
from serving import LARGE, Server, clean_environment  # noqa: E402

TRINE = ""
AIPERF = pathlib.Path(sys.executable).parent / "aiperf"
REQUESTS, CLIENTS, OUTPUT = 80, 4, 32
WORDS = "the time of a ship is long and it has no end when they go down to see what was there".split()


class AIPerf(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="trine-aiperf-")))
        draw = random.Random(3)
        prompts = [" ".join(draw.choice(WORDS) for _ in range(draw.randrange(10, 60))) for _ in range(REQUESTS)]
        for name, prompt_key, tokens_key in (("aiperf", "text", "output_length"), ("own", "prompt", "output_tokens")):
            lines = [{prompt_key: prompt, tokens_key: OUTPUT, **({"timestamp_ms": i} if name == "own" else {})} for i, prompt in enumerate(prompts)]
            (self.folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def run_json(self, command, out):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, check=False,
                              env=clean_environment(HOME=str(self.folder)))
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        return json.loads(out.read_text() if out else done.stdout)

    def aiperf(self, server):
        out = self.folder / "out"
        return self.run_json(
            [AIPERF, "profile", "--model", "docs-8m", "--url", f"http://127.0.0.1:{server.port}", "--endpoint-type", "completions", "--streaming",
             "--use-server-token-count", "--use-legacy-max-tokens", "--input-file", self.folder / "aiperf.jsonl", "--custom-dataset-type", "single_turn",
             "--concurrency", CLIENTS, "--request-count", REQUESTS, "--tokenizer", LARGE, "--extra-inputs", "ignore_eos:true", "--extra-inputs",
             "temperature:0", "--output-artifact-dir", out, "--ui-type", "none", "--no-gpu-telemetry"],
            out / "profile_export_aiperf.json")

    def own(self, server):
        return self.run_json(
            [TRINE, "bench", "serve", "--json", "--base-url", f"http://127.0.0.1:{server.port}", "--dataset", self.folder / "own.jsonl",
             "--dataset-format", "log", "--clients", CLIENTS, "--num-prompts", REQUESTS, "--warmup", "0", "--ignore-eos", "--max-lag", "100000",
             "--max-cpu-wait", "1"], None)

    def test_both_see_the_same(self):
        with Server(TRINE, "--no-prefix-cache", model=LARGE) as server:
            names = ("trine_prompt_tokens_total", "trine_generation_tokens_total")
            theirs = self.aiperf(server)
            counted = [server.metric(name) for name in names]
            own = self.own(server)
        self.assertEqual((theirs["is_complete"], theirs["error_summary"]), (True, []))
        counts = [theirs[key]["avg"] for key in ("request_count", "total_usage_prompt_tokens", "total_usage_completion_tokens")]
        self.assertEqual(counts, [own[key] for key in ("completed", "total_input_tokens", "total_output_tokens")])
        self.assertEqual(counts, [REQUESTS, *counted])  # and the server itself
        self.assertEqual(counts[2], REQUESTS * OUTPUT)
        self.assertEqual(own["failed"], 0)
        self.assertEqual(theirs["output_sequence_length"]["min"], OUTPUT)
        print(f"\n{'':28}{'AIPerf':>10}{'trine':>10}", file=sys.stderr)
        for key, statistic, mine in (
            ("time_to_first_token", "avg", "mean_ttft_ms"), ("time_to_first_token", "p50", "median_ttft_ms"),
            ("inter_token_latency", "avg", "mean_tpot_ms"), ("inter_token_latency", "p50", "median_tpot_ms"),
            ("request_latency", "avg", "mean_e2el_ms"), ("output_token_throughput", "avg", "output_throughput"),
        ):
            pair = theirs[key][statistic], own[mine]
            print(f"{mine:28}{pair[0]:10.2f}{pair[1]:10.2f}", file=sys.stderr)
            # Of one size: a test of what is counted and in which unit, on a machine that does other things too.
            self.assertTrue(0.1 < pair[0] / pair[1] < 10, (key, pair))


if __name__ == "__main__":
    TRINE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
