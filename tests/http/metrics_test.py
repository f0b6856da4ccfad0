#!/usr/bin/env python3
"""The metrics page, read by Prometheus' own Python parser.

Usage: metrics_test.py TRINE_BINARY [unittest arguments]. Needs prometheus_client (requirements.txt).
"""

import os
import pathlib
import sys
import unittest

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from serving import SMALL, Server  # noqa: E402

TRINE = ""

# Ours, and vLLM's name for the same.
PAIRS = {
    "trine_requests_running": "vllm:num_requests_running",
    "trine_requests_waiting": "vllm:num_requests_waiting",
    "trine_kv_cache_usage_ratio": "vllm:kv_cache_usage_perc",
    "trine_preemptions": "vllm:num_preemptions",
    "trine_prompt_tokens": "vllm:prompt_tokens",
    "trine_prompt_tokens_cached": "vllm:prompt_tokens_cached",
    "trine_generation_tokens": "vllm:generation_tokens",
    "trine_request_success": "vllm:request_success",
    "trine_time_to_first_token_seconds": "vllm:time_to_first_token_seconds",
    "trine_inter_token_latency_seconds": "vllm:inter_token_latency_seconds",
    "trine_request_time_per_output_token_seconds": "vllm:request_time_per_output_token_seconds",
    "trine_e2e_request_latency_seconds": "vllm:e2e_request_latency_seconds",
    "trine_request_queue_time_seconds": "vllm:request_queue_time_seconds",
    "trine_request_prefill_time_seconds": "vllm:request_prefill_time_seconds",
    "trine_request_decode_time_seconds": "vllm:request_decode_time_seconds",
    "trine_request_inference_time_seconds": "vllm:request_inference_time_seconds",
    "trine_prefix_cache_queries": "vllm:prefix_cache_queries",
    "trine_prefix_cache_hits": "vllm:prefix_cache_hits",
}


class Page(unittest.TestCase):
    def test_parses_and_agrees(self):
        with Server(TRINE, model=SMALL) as server:
            for i in range(3):
                self.assertEqual(server.complete(f"Number {i}", max_tokens=4)[0], 200)
            status, headers, text = server.get("/metrics")
            self.assertEqual(status, 200)
            self.assertTrue(headers["content-type"].startswith("text/plain; version=0.0.4"))
            families = {family.name: family for family in text_string_to_metric_families(text)}
        self.assertTrue(all(family.documentation for family in families.values()))
        for ours, theirs in PAIRS.items():
            with self.subTest(name=ours):
                self.assertEqual(families[ours].type, families[theirs].type)
                for mine, alias in zip(families[ours].samples, families[theirs].samples):
                    self.assertEqual((mine.value, {**mine.labels, "engine": "0"}), (alias.value, alias.labels))
                    self.assertEqual(mine.name.replace(ours, ""), alias.name.replace(theirs, ""))
                self.assertTrue(any(sample.labels.get("model_name") == "docs-1m" for sample in families[ours].samples))
        for name in ("trine_time_to_first_token_seconds", "trine_request_queue_time_seconds", "trine_request_prefill_time_seconds",
                     "trine_request_decode_time_seconds", "trine_e2e_request_latency_seconds"):
            with self.subTest(name=name):
                self.assertEqual(families[name].type, "histogram")
                counts = {s.name.removeprefix(name): s.value for s in families[name].samples}
                self.assertEqual(counts["_count"], 3)
                buckets = [s.value for s in families[name].samples if s.name.endswith("_bucket")]
                self.assertEqual(buckets, sorted(buckets))
                self.assertEqual(buckets[-1], 3)
        values = {s.name: s.value for family in families.values() for s in family.samples}
        self.assertEqual(values["trine_generation_tokens_total"], 12)
        self.assertEqual(values["trine_inter_token_latency_seconds_count"], 9)


if __name__ == "__main__":
    TRINE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
