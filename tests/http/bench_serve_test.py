#!/usr/bin/env python3
"""`trine bench serve` against a real `trine serve`, against servers that misbehave, and beside another generator.

Usage: bench_serve_test.py TRINE_BINARY [unittest arguments]. Standard library, loopback only; asserts no time.
"""
import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from serving import SOURCE, SMALL, Server, clean_environment  # noqa: E402

TRINE = ""
GOLDEN = SOURCE / "tests" / "golden" / "loadgen"
# A busy machine must not fail a test of something else.
CALM = ("--max-lag", "100000", "--max-cpu-wait", "1")
KEY = "user-key-0123456789"


def bench(port, *args, calm=True, **env):
    command = [TRINE, "bench", "serve", "--base-url", f"http://127.0.0.1:{port}", *(CALM if calm else ()), *args]
    return subprocess.run(command, capture_output=True, text=True, env=clean_environment(**env), timeout=120, check=False)


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(TRINE, model=SMALL)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def report(self, *args, status=0, **kwargs):
        done = bench(self.server.port, "--json", *args, **kwargs)
        self.assertEqual(done.returncode, status, done.stderr)
        return json.loads(done.stdout)

    def test_open_loop_counts_by_usage(self):
        before = self.server.metric("trine_generation_tokens_total")
        out = self.report("--num-prompts", "20", "--request-rate", "200", "--burstiness", "0.5", "--input-len", "30-60",
                          "--output-len", "7", "--ignore-eos", "--warmup", "3")
        self.assertEqual((out["completed"], out["failed"], out["failures"]), (20, 0, {}))
        self.assertEqual(out["total_output_tokens"], 20 * 7)
        # Two measure the words, three warm up.
        self.assertEqual(self.server.metric("trine_generation_tokens_total") - before, 20 * 7 + 2 + 3 * 7)
        self.assertEqual(out["model_id"], "docs-1m")
        for metric in ("ttft", "tpot", "itl", "e2el"):
            self.assertLessEqual(out[f"p50_{metric}_ms"], out[f"p99_{metric}_ms"])
            low, high = out["intervals_95"][f"mean_{metric}_ms"]
            self.assertLessEqual(low, out[f"mean_{metric}_ms"])
            self.assertGreaterEqual(high, out[f"mean_{metric}_ms"])
        self.assertIsNone(out["void"])

    def test_closed_loop_duration_and_chat(self):
        out = self.report("docs-1m", "--clients", "3", "--duration", "0.3", "--endpoint", "chat", "--input-len", "80",
                          "--output-len", "4", "--ignore-eos")
        self.assertGreater(out["completed"], 3)
        self.assertLessEqual(out["max_concurrent_requests"], 3)
        self.assertEqual(out["max_concurrency"], 3)

    def test_prefixes_are_found_cached(self):
        out = self.report("--clients", "1", "--num-prompts", "10", "--input-len", "16", "--prefix-len", "128", "--output-len", "2",
                          "--ignore-eos")
        self.assertGreaterEqual(out["total_cached_tokens"], 9 * 96)
        # Other prompts of the same lengths are not.
        self.assertEqual(self.report("--clients", "1", "--num-prompts", "10", "--input-len", "144", "--output-len", "2", "--ignore-eos",
                                     "--seed", "5")["total_cached_tokens"], 0)

    def test_replays(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text, args in (
                ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,40,3\n2023-11-16 18:17:04.1,50,4\n", ()),
                ("mooncake", "".join(json.dumps({"timestamp": 50 * i, "input_length": 40, "output_length": 5, "hash_ids": [7]}) + "\n" for i in range(4)), ()),
                ("log", '{"timestamp_ms": 5, "prompt": "The engine", "output_tokens": 6}\n{"timestamp_ms": 9, "prompt_tokens": 20, "output_tokens": 2}\n', ()),
                ("sharegpt", (GOLDEN / "sharegpt.json").read_text(), ("--clients", "2", "--num-prompts", "1")),
            ):
                with self.subTest(name):
                    path = pathlib.Path(folder, name)
                    path.write_text(text)
                    out = self.report("--dataset", str(path), "--dataset-format", name, "--time-scale" if not args else "--warmup", "1",
                                      "--input-len", "30", "--ignore-eos", *args)
                    expected = {"azure": (2, 7), "mooncake": (4, 20), "log": (2, 8)}.get(name)
                    if expected:
                        self.assertEqual((out["completed"], out["total_output_tokens"]), expected)
                        self.assertTrue(out["arrivals"].startswith("replay"))
            done = bench(self.server.port, "--dataset", str(path), "--dataset-format", "azure")
            self.assertEqual(done.returncode, 3)
            self.assertRegex(done.stderr, r"sharegpt: line 1: the header is")

    def test_text_report_and_saved_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "out.json")
            done = bench(self.server.port, "--num-prompts", "5", "--input-len", "20", "--output-len", "3", "--save", str(path),
                         "--goodput", "ttft:100000", "--goodput", "e2el:100000")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("============ Serving Benchmark Result ============", done.stdout)
            self.assertRegex(done.stdout, r"Successful requests: +5 ")
            saved = json.loads(path.read_text())
            self.assertEqual(len(saved["ttfts"]), 5)
            self.assertEqual(saved["request_goodput"], saved["request_throughput"])

    def test_the_same_seed_sends_the_same(self):
        a, b = (self.report("--num-prompts", "6", "--input-len", "20-60", "--output-len", "3", "--seed", "4", "--warmup", "0")
                for _ in range(2))
        self.assertEqual(a["total_input_tokens"], b["total_input_tokens"])

    def test_a_late_schedule_is_void(self):
        done = bench(self.server.port, "--json", "--num-prompts", "50", "--request-rate", "100000", "--input-len", "20", "--output-len",
                     "2", "--max-lag", "0.001", calm=False)
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertEqual(json.loads(done.stdout)["void"]["reason"], "schedule_lag")
        self.assertIn("void: requests were sent up to", done.stderr)

    def test_usage_errors(self):
        for args, pattern in (
            (("--request-rate", "0"), "--request-rate 0: give"),
            (("--request-rate", "1-5"), "--duration"),
            (("--request-rate", "1", "--clients", "2"), "one of them"),
            (("--clients", "2", "--burstiness", "2"), "--burstiness needs"),
            (("--dataset", "x"), "together"),
            (("--goodput", "itl:5"), "--goodput itl:5"),
            (("--input-len", "9-3"), "--input-len 9-3"),
            (("--threads", "2"), "--threads: bench serve does not take it"),
            (("--time-scale", "2"), "--time-scale"),
            (("--duration", "1"), "--num-prompts"),
            (("--extra-body", "{"), "--extra-body"),
            (("--base-url", "http://127.0.0.1/v1"), "without /v1"),
            (("--base-url", "ftp://x"), "--base-url"),
        ):
            with self.subTest(args):
                done = bench(self.server.port, *args)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(pattern, done.stderr)

    def test_another_generator_sees_the_same(self):
        """Counts are equal; throughput and TTFT are of one size (a test of units and clocks, not of speed)."""
        other = subprocess.run(
            [sys.executable, str(pathlib.Path(__file__).with_name("load_generator.py")), "--base-url", f"http://127.0.0.1:{self.server.port}",
             "--num-prompts", "40", "--clients", "4", "--input-words", "30", "--output-len", "32"], capture_output=True, text=True, check=True)
        other = json.loads(other.stdout)
        own = self.report("--num-prompts", "40", "--clients", "4", "--input-len", str(other["total_input_tokens"] // 40), "--output-len",
                          "32", "--ignore-eos")
        for key in ("completed", "failed", "total_output_tokens"):
            self.assertEqual(own[key], other[key], key)
        self.assertAlmostEqual(own["total_input_tokens"] / other["total_input_tokens"], 1, delta=0.2)
        for key in ("output_throughput", "mean_ttft_ms", "mean_e2el_ms"):
            self.assertTrue(0.1 < own[key] / other[key] < 10, (key, own[key], other[key]))


class Keys(unittest.TestCase):
    def test_the_key_comes_from_the_environment_or_a_file(self):
        with Server(TRINE, model=SMALL, TRINE_API_KEY=KEY) as server, tempfile.NamedTemporaryFile("w") as file:
            file.write(KEY + "\nother\n")
            file.flush()
            args = ("--num-prompts", "2", "--input-len", "20", "--output-len", "2")
            self.assertEqual(bench(server.port, *args, TRINE_API_KEY=KEY).returncode, 0)
            self.assertEqual(bench(server.port, *args, "--api-key-file", file.name).returncode, 0)
            done = bench(server.port, *args)
            self.assertEqual(done.returncode, 1)
            self.assertIn("HTTP status 401", done.stderr)
            self.assertNotIn(KEY, done.stderr + done.stdout)


class Broken(http.server.BaseHTTPRequestHandler):
    """Answers the requests that measure words; then each request breaks in its own way."""

    count = 0
    START = 'data: {"choices":[{"text":"a","finish_reason":null}]}\n\n'
    END = 'data: {"choices":[{"text":"","finish_reason":"length"}]}\n\n'

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        usage = 'data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":1}}\n\n' % len(body["prompt"].split())
        n = Broken.count
        Broken.count += 1
        texts = [self.START + self.END + usage + "data: [DONE]\n\n"] * 2 + [
            self.START + self.END + "data: [DONE]\n\n",
            self.START,
            'data: {"error":{"message":"it broke"}}\n\n',
            "data: {nonsense\n\n",
            None,
            "cut",
            self.START + self.END + usage + "data: [DONE]\n\n",
        ]
        text = texts[n % len(texts)]
        if text is None:
            self.send_response(429)
            self.send_header("Retry-After", "1")
            answer = b'{"error":{"message":"too much"}}'
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        if text == "cut":
            self.send_header("Content-Length", "1000")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(text.encode())
        self.close_connection = True


class Failures(unittest.TestCase):
    def test_each_kind_is_counted_apart(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Broken)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            done = bench(server.server_port, "m", "--json", "--num-prompts", "7", "--clients", "1", "--warmup", "0")
        finally:
            server.shutdown()
            server.server_close()
        self.assertEqual(done.returncode, 0, done.stderr)
        out = json.loads(done.stdout)
        self.assertEqual(out["completed"], 1)
        self.assertEqual(out["failures"], {"no_usage": 1, "malformed": 2, "error_event": 1, "http_429": 1, "connection": 1})

    def test_a_server_that_hangs_and_one_that_is_not_there(self):
        import socket
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            done = bench(port, "m", "--request-timeout", "0.3")
            self.assertEqual(done.returncode, 1)
            self.assertIn("timeout", done.stderr)
        done = bench(port, "m")
        self.assertEqual(done.returncode, 1)
        self.assertIn("connection", done.stderr)


if __name__ == "__main__":
    TRINE = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=1)
