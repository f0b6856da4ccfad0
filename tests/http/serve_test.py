#!/usr/bin/env python3
"""Drives `trine serve`: HTTP, limits, keys, streams, refusals, drain, several models.

Usage: serve_test.py TRINE_BINARY [unittest arguments]. Standard library, curl and openssl only; loopback only.
Nothing here asserts how fast something is; waits have long ends.
"""

import http.client
import json
import os
import re
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from serving import LARGE, SMALL, SOURCE, EventStream, Server, clean_environment, raw  # noqa: E402

TRINE = ""
KEY, OTHER_KEY, ADMIN_KEY = "user-key-0123456789", "other-key-0123456789", "admin-key-0123456789"


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


class Shared(unittest.TestCase):
    """One server with default settings for all cases of a class."""

    args = ()
    env = {}
    model = LARGE

    @classmethod
    def setUpClass(cls):
        cls.server = Server(TRINE, *cls.args, model=cls.model, **cls.env)
        if "TRINE_API_KEY" in cls.env:
            cls.server.auth = bearer(KEY)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        assert status == 0, status


class Http(Shared):
    args = ("--max-header", "4K", "--max-body", "20K")

    def test_health(self):
        for path, word in (("live", "live"), ("ready", "ready"), ("progress", "moving")):
            status, headers, body = self.server.get(f"/health/{path}")
            self.assertEqual((status, json.loads(body)), (200, {"status": word}))
            self.assertEqual(headers["content-type"], "application/json")
            self.assertEqual(headers["x-content-type-options"], "nosniff")

    def test_unknown_paths_and_methods_in_openai_shape(self):
        for method, path, status, code in (
            ("GET", "/nope", 404, "unknown_path"),
            ("POST", "/v1/chat/completions/x", 404, "unknown_path"),
            ("GET", "/v1/completions", 405, "method_not_allowed"),
            ("DELETE", "/health/live", 405, "method_not_allowed"),
            ("PATCH", "/v1/models", 405, "method_not_allowed"),
            ("BREW", "/v1/models", 405, "method_not_allowed"),
        ):
            with self.subTest(method=method, path=path):
                got, headers, body = self.server.call(method, path)
                self.assertEqual(got, status)
                error = json.loads(body)["error"]
                self.assertEqual(sorted(error), ["code", "message", "param", "type"])
                self.assertEqual(error["code"], code)
                self.assertEqual("allow" in headers, status == 405)
        self.assertEqual(self.server.call("GET", "/v1/completions")[1]["allow"], "POST, OPTIONS")

    def test_head_and_options(self):
        status, headers, body = self.server.call("HEAD", "/v1/models")
        self.assertEqual((status, body), (200, ""))
        self.assertEqual(headers["content-length"], str(len(self.server.get("/v1/models")[2])))
        status, headers, body = self.server.call("OPTIONS", "/v1/models")
        self.assertEqual((status, body, headers["allow"]), (204, "", "GET, HEAD, OPTIONS"))
        self.assertNotIn("access-control-allow-origin", headers)
        self.assertEqual(self.server.call("OPTIONS", "*")[0], 204)

    def test_request_id(self):
        self.assertRegex(self.server.get("/health/live")[1]["x-request-id"], r"^req_[0-9a-f]{32}$")
        self.assertEqual(self.server.get("/health/live", X_Request_Id="abc-1.2_3")[1]["x-request-id"], "abc-1.2_3")
        for bad in ("a b", "x" * 200, "a;b"):
            self.assertRegex(self.server.get("/health/live", X_Request_Id=bad)[1]["x-request-id"], r"^req_")

    def test_keep_alive_and_pipelining(self):
        connection = self.server.connection()
        for _ in range(3):
            connection.request("GET", "/health/live")
            self.assertEqual(connection.getresponse().read(), b'{"status":"live"}')
        connection.close()
        body = json.dumps({"prompt": "The engine", "max_tokens": 4, "temperature": 0}).encode()
        slow = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        one = b"GET /nope%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
        last = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        text = raw(self.server.port, b"".join([one % 1, slow, one % 2, one % 3]) + last).decode()
        places = [text.index(part) for part in ("/nope1", "text_completion" if "text_completion" in text else '"choices"', "/nope2", "/nope3", '"live"')]
        self.assertEqual(places, sorted(places))
        self.assertEqual(text.count("HTTP/1.1 "), 5)

    def test_any_cut_of_the_bytes(self):
        body = json.dumps({"prompt": "a", "max_tokens": 1, "temperature": 0}).encode()
        whole = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        for cut in range(1, len(whole), 13):
            with self.subTest(cut=cut):
                self.assertIn(b"HTTP/1.1 200 OK", raw(self.server.port, [whole[:cut], whole[cut:]], pause=0.001))

    def test_http_1_0(self):
        out = raw(self.server.port, b"GET /health/live HTTP/1.0\r\n\r\n")
        self.assertTrue(out.startswith(b"HTTP/1.1 200 OK"))
        self.assertIn(b"Connection: close", out)
        body = json.dumps({"prompt": "The", "max_tokens": 3, "stream": True}).encode()
        out = raw(self.server.port, b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.assertNotIn(b"chunked", out)
        self.assertTrue(out.endswith(b"data: [DONE]\n\n"))

    def test_expect_continue_and_chunked_body(self):
        body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
            self.assertEqual(client.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            client.sendall(body)
            self.assertTrue(client.recv(15).startswith(b"HTTP/1.1 200 OK"))
        chunks = b"".join(b"%x;note=1\r\n%c\r\n" % (1, byte) for byte in body) + b"0\r\nX-Trailer: 1\r\n\r\n"
        out = raw(self.server.port, b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunks)
        self.assertTrue(out.startswith(b"HTTP/1.1 200 OK"), out)

    def test_what_a_smuggler_sends_is_refused(self):
        host = b"Host: localhost\r\n"
        post = b"POST /tokenize HTTP/1.1\r\n"
        for status, data in (
            (b"400", post + host + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            (b"400", post + host + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"),
            (b"400", post + host + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
            (b"400", post + host + b"Content-Length: -1\r\n\r\n{}"),
            (b"400", post + host + b"Content-Length: 2x\r\n\r\n{}"),
            (b"501", post + host + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            (b"501", post + host + b"Transfer-Encoding: identity\r\n\r\n"),
            (b"400", post + host + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n"),
            (b"400", post + host + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 9000),
            (b"415", post + host + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"),
            (b"417", post + host + b"Expect: tea\r\nContent-Length: 2\r\n\r\n{}"),
            (b"400", b"GET /health/live HTTP/1.1\r\n" + host + b"A: b\r\n c\r\n\r\n"),
            (b"400", b"GET /health/live HTTP/1.1\n" + host + b"\r\n"),
            (b"400", b"GET /health/live HTTP/1.1\r\n" + host + b"A: b\nC: d\r\n\r\n"),
            (b"400", b"GET /health/live HTTP/1.1\r\n" + host + host + b"\r\n"),
            (b"400", b"GET /health/live HTTP/1.1\r\nA: b\r\n\r\n"),
            (b"400", b"GET /health/live HTTP/1.1\r\n" + host + b"A : b\r\n\r\n"),
            (b"400", b"GET /%zz HTTP/1.1\r\n" + host + b"\r\n"),
            (b"400", b"GET /a%00b HTTP/1.1\r\n" + host + b"\r\n"),
            (b"400", b"GET nope HTTP/1.1\r\n" + host + b"\r\n"),
            (b"505", b"GET /health/live HTTP/2.0\r\n" + host + b"\r\n"),
            (b"400", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
            (b"431", b"GET /health/live HTTP/1.1\r\n" + host + b"A: " + b"x" * 5000 + b"\r\n\r\n"),
            (b"431", b"GET /" + b"x" * 5000),
            (b"413", post + host + b"Content-Length: 20481\r\n\r\n"),
            (b"413", post + host + b"Transfer-Encoding: chunked\r\n\r\n6000\r\n" + b"x" * 0x6000),
        ):
            with self.subTest(data=data[:120]):
                out = raw(self.server.port, data)
                self.assertTrue(out.startswith(b"HTTP/1.1 " + status), out[:300])
                self.assertEqual(out.count(b"HTTP/1.1 4") + out.count(b"HTTP/1.1 5"), 1, out)
                self.assertIn(b"Connection: close\r\n", out)
                json.loads(out.split(b"\r\n\r\n", 1)[1])

    def test_a_body_at_the_limit_is_read(self):
        for size, status in ((20480, 200), (20481, 413)):
            body = json.dumps({"prompt": ""})
            body = json.dumps({"prompt": "a" * (size - len(body))})
            self.assertEqual(len(body), size)
            self.assertEqual(self.server.call("POST", "/tokenize", body)[0], status)

    def test_absolute_target(self):
        self.assertIn(b"200 OK", raw(self.server.port, b"GET http://localhost/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))

    def test_curl(self):
        url = f"http://127.0.0.1:{self.server.port}"
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "stream": True, "temperature": 0})
        done = subprocess.run(
            ["curl", "-sS", "-N", "--max-time", "60", f"{url}/v1/chat/completions", "-H", "Content-Type: application/json", "-d", body],
            capture_output=True, text=True, env=clean_environment(), check=True,
        )
        events = [line[6:] for line in done.stdout.split("\n") if line.startswith("data: ")]
        self.assertEqual(events[-1], "[DONE]")
        for event in events[:-1]:
            self.assertIn("choices", json.loads(event))
        done = subprocess.run(["curl", "-sS", "-f", "-I", f"{url}/v1/models"], capture_output=True, text=True, env=clean_environment(), check=True)
        self.assertIn("200 OK", done.stdout)


class Streams(Shared):
    def test_stream_and_whole_answer_agree(self):
        _, _, whole = self.server.complete(max_tokens=20, seed=1)
        stream = self.server.stream(max_tokens=20, seed=1)
        self.assertEqual(stream.answer.getheader("Content-Type"), "text/event-stream; charset=utf-8")
        events = list(stream.events())
        self.assertEqual(events[-1], "[DONE]")
        pieces = [json.loads(event) for event in events[:-1]]
        text = "".join(choice["text"] for piece in pieces for choice in piece["choices"])
        self.assertEqual(text, whole["choices"][0]["text"])
        self.assertEqual(pieces[-1]["choices"][0]["finish_reason"], "length")

    def test_error_before_the_stream_has_a_status(self):
        status, _, body = self.server.call("POST", "/v1/completions", {"prompt": "a" * 9000, "max_tokens": 10, "stream": True})
        self.assertEqual(status, 400)
        self.assertIn("context", json.loads(body)["error"]["message"])

    def test_bad_words_do_not_appear(self):
        _, _, free = self.server.complete(max_tokens=20, temperature=0)
        word = max(re.findall(r"[A-Za-z]+", free["choices"][0]["text"]), key=len)
        status, _, held = self.server.complete(max_tokens=20, temperature=0, bad_words=[word])
        self.assertEqual(status, 200)
        self.assertNotEqual(held["choices"][0]["text"], free["choices"][0]["text"])
        self.assertNotRegex(held["choices"][0]["text"], rf"\b{word}\b")

    def test_echo_with_logprobs_scores_the_prompt(self):
        prompt = "The engine of a car is in the front, and the engine of a boat is not."
        ids = json.loads(self.server.call("POST", "/tokenize", {"prompt": prompt})[2])["tokens"]
        # As evaluations send it: the last token is drawn and dropped.
        ask = {"max_tokens": 1, "logprobs": 1, "echo": True, "seed": 1234}
        _, _, whole = self.server.complete(prompt=ids, **ask)
        logprobs = whole["choices"][0]["logprobs"]
        values, tops = logprobs["token_logprobs"], logprobs["top_logprobs"]
        self.assertEqual(len(values), len(ids) + 1)
        self.assertEqual((values[0], tops[0]), (None, None))
        for token, value, top in list(zip(logprobs["tokens"], values, tops))[1:]:
            self.assertEqual(top[token], value)
            self.assertLessEqual(value, max(top.values()))
        # Every value is what the model says of that token as its answer to the tokens before.
        for at in (1, len(ids) // 2, len(ids) - 1):
            _, _, one = self.server.complete(prompt=ids[:at], max_tokens=1, logprobs=1)
            best = one["choices"][0]["logprobs"]["token_logprobs"][0]
            self.assertEqual(max(tops[at].values()), best)
        # Again, now that the prefix cache has it; as a text; without a drawn token; streamed.
        self.assertEqual(self.server.complete(prompt=ids, **ask)[2]["choices"], whole["choices"])
        self.assertEqual(self.server.complete(prompt=prompt, **ask)[2]["choices"][0]["logprobs"], logprobs)
        _, _, none = self.server.complete(prompt=ids, **{**ask, "max_tokens": 0})
        self.assertEqual(none["choices"][0]["logprobs"]["token_logprobs"], values[:-1])
        self.assertEqual(none["usage"]["completion_tokens"], 0)
        stream = self.server.stream(prompt=ids, **ask)
        pieces = [json.loads(event)["choices"][0] for event in stream.events() if event != "[DONE]"]
        self.assertEqual(sum((p["logprobs"]["token_logprobs"] for p in pieces), []), values)
        self.assertEqual("".join(p["text"] for p in pieces), whole["choices"][0]["text"])
        # Several prompts, several answers: each has its own.
        _, _, many = self.server.complete(prompt=[ids, ids[:9]], n=2, **ask)
        for choice, size in zip(many["choices"], (len(ids), len(ids), 9, 9)):
            self.assertEqual(choice["logprobs"]["token_logprobs"][:size], values[:size])

    def test_unknown_model(self):
        status, _, body = self.server.complete(model="nobody")
        self.assertEqual((status, body["error"]["code"]), (404, "model_not_found"))
        self.assertEqual(self.server.get("/v1/models/nobody")[0], 404)

    def test_disconnect_frees_pages(self):
        before = self.server.metric("trine_requests_running")
        self.assertEqual(before, 0)
        aborted = self.server.metric("trine_request_success_total", finished_reason="abort") or 0
        streams = [self.server.stream(prompt=f"Number {i} is", max_tokens=1900, ignore_eos=True) for i in range(3)]
        for stream in streams:
            next(stream.events())
        self.server.wait_metric("trine_requests_running", lambda value: value == 3)
        self.assertGreater(self.server.metric("trine_kv_cache_usage_ratio"), 0)
        for stream in streams:
            stream.close()
        self.server.wait_metric("trine_requests_running", lambda value: value == 0)
        self.assertEqual(self.server.metric("trine_kv_cache_usage_ratio"), 0)
        pages = [self.server.metric(f"trine_kv_pages{kind}") for kind in ("", "_free", "_evictable")]
        self.assertEqual(pages[0], pages[1] + pages[2])
        self.assertEqual(self.server.metric("trine_request_success_total", finished_reason="abort"), aborted + 3)
        # Far fewer tokens were computed than asked for: the work stopped.
        self.assertLess(self.server.metric("trine_generation_tokens_total"), 3 * 1900)

    def test_disconnect_of_a_whole_answer(self):
        body = json.dumps({"prompt": "The", "max_tokens": 1900, "ignore_eos": True}).encode()
        client = socket.create_connection(("127.0.0.1", self.server.port))
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.server.wait_metric("trine_requests_running", lambda value: value >= 1)
        client.close()
        self.server.wait_metric("trine_requests_running", lambda value: value == 0)

    def test_refusals_of_the_engine_name_the_field_as_the_request_does(self):
        long = "word " * 9000
        talk = lambda text: [{"role": "user", "content": text}]  # noqa: E731
        for path, body, param, words in (
            ("completions", {"prompt": "a", "max_tokens": 5000}, "max_tokens", "5000 max_tokens need"),
            ("completions", {"prompt": "a", "max_completion_tokens": 5000}, "max_completion_tokens", "5000 max_completion_tokens need"),
            ("completions", {"prompt": "a", "n_predict": 5000}, "n_predict", "5000 n_predict need"),
            ("completions", {"prompt": long}, "prompt", "prompt has"),
            ("completions", {"prompt": ["a", long]}, "prompt[1]", "prompt[1] has"),
            ("completions", {"prompt": [99999]}, "prompt", "prompt: token 99999"),
            ("completions", {"prompt": "a", "stop_token_ids": [99999]}, "stop_token_ids", "stop_token_ids: token 99999"),
            ("completions", {"prompt": "a", "logit_bias": {"99999": 1}}, "logit_bias", "logit_bias: token 99999"),
            ("completions", {"prompt": "a", "n": 100}, "n", "n is 100, must be in [1, 64]"),
            ("completions", {"prompt": "a", "grammar": "root ="}, "grammar", "grammar"),
            ("chat/completions", {"messages": talk("a"), "max_tokens": 5000}, "max_tokens", "5000 max_tokens need"),
            ("chat/completions", {"messages": talk("a"), "max_completion_tokens": 5000}, "max_completion_tokens", "5000 max_completion_tokens need"),
            ("chat/completions", {"messages": talk(long)}, "messages", "messages has"),
            ("responses", {"input": "a", "max_output_tokens": 5000}, "max_output_tokens", "5000 max_output_tokens need"),
            ("responses", {"input": long}, "input", "input has"),
        ):
            with self.subTest(path=path, body=str(body)[:80]):
                status, _, text = self.server.call("POST", f"/v1/{path}", body)
                error = json.loads(text)["error"]
                self.assertEqual((status, error["param"]), (400, param), error)
                self.assertIn(words, error["message"])

    def test_counters_move_with_every_step(self):
        """While an answer is on its way, not when it ends; the same under vLLM's names."""
        names = [f"{prefix}{name}_tokens_total" for prefix in ("trine_", "vllm:") for name in ("prompt", "generation")]
        before = self.server.metrics(names)
        stream = self.server.stream(prompt="Four five six", max_tokens=1900, ignore_eos=True, stream_options={"include_usage": True})
        for _ in range(20):
            next(events := stream.events())
        during = [value - b for value, b in zip(self.server.metrics(names), before)]
        usage = json.loads([event for event in events if event != "[DONE]"][-1])["usage"]
        self.assertEqual(during[0], usage["prompt_tokens"])
        self.assertGreaterEqual(during[1], 20)
        self.assertLess(during[1], 1900)  # it goes on
        self.assertEqual(during[2], during[0])
        self.assertGreaterEqual(during[3], during[1])
        after = [value - b for value, b in zip(self.server.metrics(names), before)]
        self.assertEqual(after, [usage["prompt_tokens"], 1900] * 2)

    def test_metrics_count(self):
        names = ("trine_prompt_tokens_total", "trine_generation_tokens_total", "trine_time_to_first_token_seconds_count", "trine_inter_token_latency_seconds_count")
        before = [self.server.metric(name) or 0 for name in names]
        _, _, body = self.server.complete(prompt="One two three", max_tokens=7)
        after = [self.server.metric(name) for name in names]
        usage = body["usage"]
        self.assertEqual([b - a for a, b in zip(before, after)], [usage["prompt_tokens"], 7, 1, 6])


class Embeddings(Shared):
    def embed(self, **body):
        status, _, text = self.server.call("POST", "/v1/embeddings", body)
        return status, json.loads(text)

    def vectors(self, **body):
        status, got = self.embed(**body)
        self.assertEqual(status, 200, got)
        return [one["embedding"] for one in got["data"]]

    def test_every_form_of_input(self):
        texts = ["The engine of a car", "A page"]
        ids = [json.loads(self.server.call("POST", "/tokenize", {"prompt": text})[2])["tokens"] for text in texts]
        both = self.vectors(input=texts)
        self.assertEqual(self.vectors(input=texts[0]), both[:1])
        self.assertEqual(self.vectors(input=ids[1]), both[1:])
        self.assertEqual(self.vectors(input=ids), both)
        self.assertEqual(self.vectors(input=texts), both)  # and again, from the cache
        self.assertNotEqual(both[0], both[1])
        status, got = self.embed(input=texts)
        self.assertEqual(got["usage"], {"prompt_tokens": sum(map(len, ids)), "total_tokens": sum(map(len, ids))})

    def test_pooling_and_length(self):
        text = "The engine of a car"
        last, mean = self.vectors(input=text, pooling="last")[0], self.vectors(input=text, pooling="mean")[0]
        self.assertEqual(self.vectors(input=text)[0], last)
        self.assertNotEqual(last, mean)
        raw = self.vectors(input=text, pooling="mean", normalize=False)[0]
        norm = sum(x * x for x in raw) ** 0.5
        self.assertGreater(abs(norm - 1), 0.01)
        for x, y in zip(raw, mean):
            self.assertAlmostEqual(x / norm, y, places=6)
        self.assertEqual(self.vectors(input=text, dimensions=len(last)), [last])

    def test_the_same_alone_and_in_a_crowd(self):
        texts = [f"Number {i} is a number and has a page of its own" for i in range(12)]
        streams = [self.server.stream(prompt=f"Text {i}", max_tokens=60) for i in range(4)]
        for pooling in ("mean", "last"):
            crowd = self.vectors(input=texts, pooling=pooling)
            for i in (0, 7, 11):
                self.assertEqual(self.vectors(input=texts[i], pooling=pooling), [crowd[i]])
        for stream in streams:
            self.assertEqual(list(stream.events())[-1], "[DONE]")
            stream.close()

    def test_refusals(self):
        for body, param in (
            ({}, "input"),
            ({"input": []}, "input"),
            ({"input": ""}, "input"),
            ({"input": ["a", ""]}, "input[1]"),
            ({"input": [[1], []]}, "input[1]"),
            ({"input": "a", "dimensions": 7}, "dimensions"),
            ({"input": "a", "pooling": "cls"}, "pooling"),
            ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
            ({"input": "a", "stream": True}, "stream"),
            ({"input": [[99999999]]}, "input"),
            ({"input": ["a", [99999999]]}, "input[1]"),
            ({"input": "word " * 9000}, "input"),
        ):
            with self.subTest(body=str(body)[:60]):
                status, got = self.embed(**body)
                self.assertEqual((status, got["error"]["param"]), (400, param), got)

    def test_metrics_count(self):
        before = self.server.metric("trine_prompt_tokens_total")
        usage = self.embed(input=["One two three", "Four"])[1]["usage"]
        self.assertEqual(self.server.metric("trine_prompt_tokens_total") - before, usage["prompt_tokens"])
        self.assertEqual(self.server.metric("trine_requests_running"), 0)


class MeanPooling(Shared):
    args = ("--pooling", "mean")
    model = SMALL

    def test_the_servers_pooling(self):
        vectors = {}
        for pooling in (None, "mean", "last"):
            body = {"input": "The engine of a car", "pooling": pooling}
            vectors[pooling] = json.loads(self.server.call("POST", "/v1/embeddings", body)[2])["data"][0]["embedding"]
        self.assertEqual(vectors[None], vectors["mean"])
        self.assertNotEqual(vectors[None], vectors["last"])


class GenerationConfig(unittest.TestCase):
    def model(self, folder, config):
        """docs-1m with another generation_config.json."""
        model = pathlib.Path(folder) / "model"
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(SMALL, model)
        (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2], **config}))
        return model

    def serve(self, folder, config, *args):
        return Server(TRINE, *args, model=self.model(folder, config))

    def answer(self, server, path="/v1/completions", **fields):
        body = {"prompt": "The engine"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "hi"}]}
        status, _, text = server.call("POST", path, {**body, **fields})
        self.assertEqual(status, 200, text)
        choice = json.loads(text)["choices"][0]
        return choice.get("text") or choice["message"]["content"], json.loads(text)["usage"]["completion_tokens"]

    def test_defaults_apply_where_a_request_says_nothing(self):
        long = {"max_tokens": 40, "ignore_eos": True}
        with tempfile.TemporaryDirectory() as folder:
            with self.serve(folder, {"temperature": 0.0, "max_new_tokens": 7}) as server:
                self.assertIn("temperature 0, max_new_tokens 7 (generation_config.json)", server.stderr())
                self.assertEqual(server.started["models"][0]["sampling_defaults"], "temperature 0, max_new_tokens 7 (generation_config.json)")
                greedy = self.answer(server, temperature=0, **long)
                self.assertEqual(self.answer(server, seed=5, **long), greedy)
                self.assertNotEqual(self.answer(server, seed=5, temperature=1, **long), greedy)
                for path in ("/v1/completions", "/v1/chat/completions"):
                    self.assertEqual(self.answer(server, path, ignore_eos=True)[1], 7)
                self.assertEqual(self.answer(server, max_tokens=9, ignore_eos=True)[1], 9)
                body = json.loads(server.call("POST", "/v1/responses", {"input": "hi"})[2])
                self.assertEqual(body["temperature"], 0)
            with self.serve(folder, {"temperature": 0.0, "max_new_tokens": 7}, "--generation-config", "none") as server:
                self.assertIn("no defaults of the model", server.stderr())
                self.assertNotEqual(self.answer(server, seed=5, **long), greedy)
                self.assertEqual(self.answer(server, ignore_eos=True)[1], 16)
            for config in ({"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}):
                with self.subTest(config=config), self.serve(folder, config) as server:
                    self.assertEqual(self.answer(server, seed=5, **long), greedy)
            with self.serve(folder, {"temperature": 0, "repetition_penalty": 50.0, "top_k": -1}) as server:
                self.assertNotEqual(self.answer(server, **long), greedy)
                self.assertEqual(self.answer(server, repetition_penalty=1, **long), greedy)

    def test_the_default_length_yields_to_the_context(self):
        with tempfile.TemporaryDirectory() as folder, self.serve(folder, {"max_new_tokens": 5000}) as server:
            ids = [5] * 2040
            self.assertEqual(self.answer(server, prompt=ids, ignore_eos=True)[1], 8)
            status, _, text = server.call("POST", "/v1/completions", {"prompt": ids, "max_tokens": 5000})
            self.assertEqual(status, 400, text)

    def test_values_that_cannot_be(self):
        with tempfile.TemporaryDirectory() as folder:
            for config in ({"temperature": -1.0}, {"top_p": 2.0}, {"top_k": -7}, {"max_new_tokens": 0}, {"repetition_penalty": 0.0}):
                with self.subTest(config=config):
                    done = subprocess.run([TRINE, "serve", str(self.model(folder, config)), "--port", "0"], capture_output=True, text=True,
                                          timeout=60, env=clean_environment(HOME="/nonexistent"), check=False)
                    self.assertEqual(done.returncode, 3, done.stderr)
                    self.assertRegex(done.stderr, "generation_config.json: .*--generation-config none")
                    self.serve(folder, config, "--generation-config", "none").stop()


class Pings(Shared):
    args = ("--ping-interval", "0.05", "--max-sequences", "1")

    def test_a_silent_stream_gets_comments(self):
        first = self.server.stream(max_tokens=1900)
        next(first.events())
        second = self.server.stream(max_tokens=1)  # waits for the first
        self.assertIn(": ping", [next(second.lines()) for _ in range(1)] + [line for line, _ in zip(second.lines(), range(3))])
        first.close()
        self.assertEqual(list(second.events())[-1], "[DONE]")
        second.close()


class TargetItl(unittest.TestCase):
    def test_the_banner_tells_and_answers_do_not_depend_on_it(self):
        long = "The engine reads long prompts in chunks beside the answers that run. " * 40
        answers = []
        for args, env, told, text in (
            ([], {}, "auto", "2.5 times a step that reads no prompt"),
            (["--target-itl", "0"], {}, 0, "their tokens: none"),
            ([], {"TRINE_TARGET_ITL": "0.01"}, 0.01, "their tokens: 0.01 ms"),
        ):
            with self.subTest(args=args, env=env), Server(TRINE, *args, **env) as server:
                self.assertEqual(server.started["target_itl_ms"], told)
                self.assertIn(text, server.stderr())
                running = server.stream(max_tokens=200, ignore_eos=True)
                events = running.events()
                next(events)
                beside = server.complete(long, max_tokens=12)[2]["choices"][0]["text"]
                texts = [json.loads(event)["choices"][0]["text"] for event in events if event != "[DONE]"]
                running.close()
                answers.append((beside, "".join(texts)))
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(answers[0], answers[2])


class Refusals(Shared):
    args = ("--max-waiting", "2", "--max-sequences", "1")

    def test_full_queue_is_429_with_retry_after(self):
        running = self.server.stream(max_tokens=1900)
        next(running.events())
        waiting = [threading.Thread(target=self.server.complete, kwargs={"max_tokens": 1}) for _ in range(2)]
        for thread in waiting:
            thread.start()
        self.server.wait_metric("trine_requests_waiting", lambda value: value == 2)
        status, headers, body = self.server.complete(max_tokens=1)
        self.assertEqual((status, body["error"]["type"], body["error"]["code"]), (429, "rate_limit_error", "queue_full"))
        self.assertGreaterEqual(int(headers["retry-after"]), 1)
        self.assertIn("2 of 2 requests", body["error"]["message"])
        self.assertEqual(json.loads(self.server.get("/health/ready")[2])["status"], "queue_full")
        self.assertEqual(self.server.metric("trine_requests_rejected_total"), 1)
        # Two prompts need two places: all or none.
        status, _, _ = self.server.complete(prompt=["a", "b"], max_tokens=1)
        self.assertEqual(status, 429)
        # Three never have room: trying again would not help, so it is no 429.
        status, _, body = self.server.complete(prompt=["a", "b", "c"], max_tokens=1)
        self.assertEqual((status, body["error"]["param"]), (400, "prompt"))
        self.assertIn("has 3 prompts, at most 2", body["error"]["message"])
        running.close()
        for thread in waiting:
            thread.join()
        self.assertEqual(self.server.complete(max_tokens=1)[0], 200)
        self.assertEqual(self.server.get("/health/ready")[0], 200)
        self.server.wait_metric("trine_requests_running", lambda value: value == 0)


class Slow(Shared):
    args = ("--header-timeout", "0.4", "--body-timeout", "0.4", "--idle-timeout", "0.4", "--max-connections", "12", "--max-connections-per-address", "8")

    def test_slowloris(self):
        started = time.monotonic()
        # A byte now and then does not buy time.
        out = raw(self.server.port, [b"GET / HT"] + [b"T"] * 30, pause=0.05)
        self.assertTrue(out.startswith(b"HTTP/1.1 408"), out)
        self.assertGreaterEqual(time.monotonic() - started, 0.4)
        out = raw(self.server.port, [b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"] + [b"x"] * 30, pause=0.05)
        self.assertTrue(out.startswith(b"HTTP/1.1 408"), out)
        self.assertEqual(raw(self.server.port, b""), b"")  # idle: closed without a word
        self.assertGreaterEqual(self.server.metric("trine_http_timeouts_total"), 2)

    def test_connection_cap_per_address(self):
        held = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(8)]
        try:
            time.sleep(0.1)
            out = raw(self.server.port, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertTrue(out.startswith(b"HTTP/1.1 503"), out)
            head, body = out.split(b"\r\n\r\n", 1)
            self.assertEqual(json.loads(body)["error"]["code"], "connections")
            self.assertIn(b"Content-Length: %d" % len(body), head)
        finally:
            for client in held:
                client.close()
        deadline = time.monotonic() + 30
        while True:
            try:
                self.assertEqual(self.server.get("/health/live")[0], 200)
                break
            except (AssertionError, OSError):
                self.assertLess(time.monotonic(), deadline)


class SlowReader(Shared):
    args = ("--stream-buffer", "64K", "--write-timeout", "30", "--kv-tokens", "64K", "--max-sequences", "64")
    model = SMALL

    def test_who_does_not_read_is_dropped(self):
        body = json.dumps({"prompt": "The", "max_tokens": 400, "n": 32, "stream": True, "logprobs": 5, "ignore_eos": True}).encode()
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", self.server.port))
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        # The request may be gone before anybody sees it running; the count stays.
        self.server.wait_metric("trine_http_slow_readers_total", lambda value: value == 1, timeout=120)
        self.server.wait_metric("trine_requests_running", lambda value: value == 0)
        client.close()
        self.assertEqual(self.server.complete(max_tokens=2)[0], 200)


def documented_routes():
    """(method, path, auth) of the table of endpoints in docs/serving.md, which a unit test holds to the program's."""
    out = []
    for line in (SOURCE / "docs" / "serving.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if len(cells) >= 3 and cells[0] in ("GET", "POST", "DELETE") and cells[2] in ("none", "user", "admin"):
            out.append(tuple(cells[:3]))
    return out


class Auth(Shared):
    env = {"TRINE_API_KEY": KEY, "TRINE_ADMIN_KEY": ADMIN_KEY}
    model = SMALL

    def test_every_route_with_every_key(self):
        routes = documented_routes()
        self.assertGreater(len(routes), 15)
        wrong = [{}, bearer("wrong-key-0123456789"), bearer(KEY[:-1]), bearer(KEY + "x"), bearer(""), {"Authorization": KEY},
                 {"Authorization": f"Basic {KEY}"}]
        for method, path, auth in routes:
            path = path.replace("*", "docs-1m")
            body = "{}" if method == "POST" else None
            refused = set()
            for headers in wrong:
                with self.subTest(method=method, path=path, headers=headers):
                    status, got, text = self.server.call(method, path, body, headers)
                    if auth == "none":
                        self.assertNotIn(status, (401, 403))
                    else:
                        self.assertEqual(status, 401)
                        self.assertEqual(got["www-authenticate"], "Bearer")
                        refused.add(text)
            # Missing and wrong look the same.
            self.assertLessEqual(len(refused), 1)
            with self.subTest(method=method, path=path):
                status = self.server.call(method, path, body, bearer(KEY))[0]
                self.assertEqual(status == 403, auth == "admin", status)
                self.assertNotEqual(status, 401)
                if path not in ("/admin/models/unload", "/admin/models/load"):
                    self.assertNotIn(self.server.call(method, path, body, bearer(ADMIN_KEY))[0], (401, 403))

    def test_bearer_is_not_case_sensitive_but_the_key_is(self):
        self.assertEqual(self.server.call("GET", "/v1/models", headers={"Authorization": f"bEaReR {KEY}"})[0], 200)
        self.assertEqual(self.server.call("GET", "/v1/models", headers=bearer(KEY.upper()))[0], 401)

    def test_unknown_paths_need_no_key_and_tell_nothing(self):
        self.assertEqual(self.server.get("/admin/nope")[0], 404)

    def test_keys_are_not_shown(self):
        self.assertNotIn(KEY, self.server.stderr())
        self.assertIn("an API key is needed; /admin/ needs an admin key", self.server.stderr())


class Tenants(unittest.TestCase):
    def test_keys_share_no_prefix_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder) / "keys"
            keys.write_text(f"# two users\n{KEY}\n\n{OTHER_KEY}\n")
            keys.chmod(0o600)
            with Server(TRINE, "--api-key-file", str(keys), model=SMALL) as server:
                server.auth = bearer(KEY)

                def hits(key):
                    before = server.metric("trine_prefix_cache_hits_total")
                    prompt = "The same long beginning of a prompt, over and over again. " * 4
                    status, _, _ = server.call("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 2}, bearer(key))
                    self.assertEqual(status, 200)
                    return server.metric("trine_prefix_cache_hits_total") - before

                self.assertEqual(hits(KEY), 0)
                self.assertGreater(hits(KEY), 0)
                self.assertEqual(hits(OTHER_KEY), 0)
                self.assertGreater(hits(OTHER_KEY), 0)


class Start(unittest.TestCase):
    def refused(self, *args, status=2, **env):
        done = subprocess.run([TRINE, "serve", str(SMALL), "--port", "0", *args], capture_output=True, text=True, timeout=60,
                              env=clean_environment(HOME="/nonexistent", **env), check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def test_open_host_needs_a_key_or_a_flag(self):
        for host in ("0.0.0.0", "::", "192.0.2.1"):
            self.assertIn("--allow-no-auth", self.refused("--host", host))
        with Server(TRINE, "--host", "0.0.0.0", "--allow-no-auth", model=SMALL) as server:
            self.assertEqual(server.get("/v1/models")[0], 200)
            self.assertIn("NO KEY", server.stderr())
        with Server(TRINE, "--host", "0.0.0.0", model=SMALL, TRINE_API_KEY=KEY) as server:
            self.assertEqual(server.get("/v1/models")[0], 401)

    def test_key_files(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder) / "keys"
            self.assertIn("No such file", self.refused("--api-key-file", str(keys), status=1))
            keys.write_text(KEY)
            for mode in (0o644, 0o604, 0o620):
                keys.chmod(mode)
                self.assertIn("chmod 600", self.refused("--api-key-file", str(keys)))
            keys.chmod(0o600)
            for text in ("", "# none\n", "short\n", "with blank inside\n", "x" * 600):
                keys.write_text(text)
                message = self.refused("--api-key-file", str(keys))
                self.assertNotIn("blank inside", message.replace("without blanks", ""))
        self.assertIn("unknown option --api-key", self.refused("--api-key", KEY))
        self.assertIn("TRINE_API_KEY", self.refused(TRINE_API_KEY="short"))

    def test_other_refusals(self):
        self.assertIn("address", self.refused("--host", "example.org", "--allow-no-auth"))
        self.assertIn("both", self.refused("--tls-cert", "x.pem"))
        self.assertIn("x.pem", self.refused("--tls-cert", "x.pem", "--tls-key", "y.pem"))
        self.assertIn("cors origin", self.refused("--cors-origins", "*"))
        self.assertIn("cors origin", self.refused("--cors-origins", "https://a.example/path"))
        self.assertIn("--served-name", self.refused(str(SMALL)))
        self.assertIn("--served-name", self.refused("--served-name", "a", "--served-name", "b"))
        taken = socket.create_server(("127.0.0.1", 0))
        self.assertIn("cannot listen", self.refused("--port", str(taken.getsockname()[1]), status=1))
        taken.close()

    def test_broken_model_ends_the_start(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = pathlib.Path(folder) / "bad.gguf"
            bad.write_bytes(b"GGUF" + bytes(100))
            done = subprocess.run([TRINE, "serve", str(bad), "--port", "0"], capture_output=True, text=True, timeout=60,
                                  env=clean_environment(HOME="/nonexistent"), check=False)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("bad.gguf", done.stderr)


class Sites(Shared):
    args = ("--allowed-hosts", "models.example", "--cors-origins", "https://app.example:8443")
    model = SMALL

    def test_host(self):
        for host, ok in (("localhost", 1), (f"localhost:{self.server.port}", 1), ("127.0.0.1:1", 1), ("[::1]:80", 1), ("192.0.2.7", 1),
                         ("models.example", 1), ("MODELS.example.:443", 1), ("evil.example", 0), ("localhost.evil.example", 0),
                         ("127.0.0.1.evil.example", 0), ("", 0)):
            with self.subTest(host=host):
                out = raw(self.server.port, f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                self.assertTrue(out.startswith(b"HTTP/1.1 200" if ok else b"HTTP/1.1 403"), out)
                self.assertEqual(b"host_not_allowed" in out, not ok)

    def test_origin(self):
        own = f"http://127.0.0.1:{self.server.port}"
        for origin, status, allowed in (("https://app.example:8443", 200, True), (own, 200, False), ("https://app.example", 403, False),
                                        ("http://app.example:8443", 403, False), ("null", 403, False), ("http://evil.example", 403, False),
                                        (f"http://127.0.0.1:{self.server.port + 1}", 403, False)):
            with self.subTest(origin=origin):
                got, headers, _ = self.server.get("/v1/models", Origin=origin)
                self.assertEqual(got, status)
                self.assertEqual(headers.get("access-control-allow-origin"), origin if allowed else None)
                self.assertNotIn("access-control-allow-credentials", headers)

    def test_preflight(self):
        ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        status, headers, _ = self.server.call("OPTIONS", "/v1/chat/completions", headers={"Origin": "https://app.example:8443", **ask})
        self.assertEqual((status, headers["access-control-allow-methods"]), (204, "POST"))
        self.assertEqual(headers["access-control-allow-origin"], "https://app.example:8443")
        # Any header: OpenAI's client in a browser sends its own. * does not cover Authorization.
        self.assertEqual(headers["access-control-allow-headers"], "Authorization, *")
        status, headers, _ = self.server.call("OPTIONS", "/v1/chat/completions", headers={"Origin": "https://evil.example", **ask})
        self.assertEqual(status, 403)
        self.assertNotIn("access-control-allow-origin", headers)


class Drain(unittest.TestCase):
    def test_running_answers_finish(self):
        with Server(TRINE) as server:
            stream = server.stream(max_tokens=300)
            events = stream.events()
            next(events)
            idle = server.connection()
            idle.request("GET", "/health/live")
            idle.getresponse().read()
            server.process.send_signal(signal.SIGTERM)
            self.wait_draining(server)
            status, headers, body = server.complete(max_tokens=1)
            self.assertEqual((status, body["error"]["code"]), (503, "shutting_down"))
            self.assertEqual(headers["connection"], "close")
            rest = list(events)
            self.assertEqual(rest[-1], "[DONE]")
            self.assertEqual(sum(1 for event in rest if '"choices"' in event and '"text"' in event) + 1, 300)
            self.assertEqual(server.process.wait(60), 0)

    def wait_draining(self, server):
        deadline = time.monotonic() + 30
        while server.get("/health/ready")[0] != 503:
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(server.get("/health/live")[0], 200)

    def test_past_the_limit_a_stream_ends_with_an_error_event(self):
        for by in ("limit", "second signal"):
            with self.subTest(by=by), Server(TRINE, "--drain-timeout", "0.3" if by == "limit" else "600") as server:
                stream = server.stream(max_tokens=2000)
                events = stream.events()
                next(events)
                server.process.send_signal(signal.SIGINT)
                if by != "limit":
                    self.wait_draining(server)
                    server.process.send_signal(signal.SIGINT)
                rest = list(events)
                errors = [json.loads(event)["error"] for event in rest if event.startswith('{"error"')]
                self.assertEqual(len(errors), 1, rest[-3:])
                self.assertEqual(errors[0]["code"], "shutting_down")
                self.assertEqual(server.process.wait(60), 0)

    def test_an_idle_server_ends_at_once(self):
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            server = Server(TRINE, "--drain-timeout", "600", model=SMALL)
            self.assertEqual(server.stop(sig), 0)


class Models(unittest.TestCase):
    def setUp(self):
        self.auth = bearer(ADMIN_KEY)

    def admin(self, server, action, model, **more):
        status, _, body = server.call("POST", f"/admin/models/{action}", {"model": model, **more}, self.auth)
        return status, json.loads(body)

    def states(self, server):
        return {m["id"]: m["state"] for m in json.loads(server.call("GET", "/admin/models", headers=self.auth)[2])["models"]}

    def test_two_models_load_unload_drain(self):
        with Server(TRINE, "--served-name", "small", "--served-name", "large", model=[SMALL, LARGE], TRINE_ADMIN_KEY=ADMIN_KEY) as server:
            self.assertEqual(self.states(server), {"small": "ready", "large": "ready"})
            self.assertEqual(server.complete(max_tokens=1)[2]["model"], "small")
            stream = server.stream(model="large", max_tokens=400)
            events = stream.events()
            next(events)
            self.assertEqual(self.admin(server, "unload", "large", wait=False)[0], 202)
            self.assertEqual(server.complete(model="large", max_tokens=1)[0], 503)
            self.assertEqual(server.complete(model="small", max_tokens=1)[0], 200)
            self.assertEqual(list(events)[-1], "[DONE]")
            deadline = time.monotonic() + 30
            while self.states(server)["large"] != "unloaded":
                self.assertLess(time.monotonic(), deadline)
            self.assertEqual(server.complete(model="large", max_tokens=1)[0], 503)
            self.assertEqual(self.admin(server, "load", "large"), (200, {"status": "done"}))
            self.assertEqual(server.complete(model="large", max_tokens=1)[0], 200)
            self.assertEqual(self.admin(server, "unload", "nobody")[0], 404)
            for name in ("../../etc/passwd", "/etc/passwd", str(SMALL), "a/b", ""):
                self.assertIn(self.admin(server, "load", name)[0], (400, 404))
            self.assertEqual(server.call("POST", "/admin/models/load", {"model": "small", "path": "/x"}, self.auth)[0], 400)
            self.assertEqual(server.call("POST", "/admin/cache/clear", "", self.auth)[0], 200)
            self.assertEqual(server.call("POST", "/admin/cache/clear", {}, self.auth)[0], 200)
            self.assertEqual(server.call("POST", "/admin/cache/clear", {"model": "small"}, self.auth)[0], 400)

    def test_keep_alive_unloads_and_loads_again(self):
        with Server(TRINE, "--keep-alive", "0.2", model=SMALL, TRINE_ADMIN_KEY=ADMIN_KEY) as server:
            deadline = time.monotonic() + 30
            while self.states(server)["docs-1m"] != "unloaded":
                self.assertLess(time.monotonic(), deadline)
            # A readiness probe that failed now would keep away the request that loads it again.
            self.assertEqual(server.get("/health/ready")[0], 200)
            card = json.loads(server.get("/v1/models")[2])["data"][0]
            self.assertEqual(card["max_model_len"], 2048)
            self.assertGreater(card["created"], 0)
            self.assertEqual(server.complete(max_tokens=1)[0], 200)
            self.admin(server, "unload", "docs-1m")  # the last word: not loaded on demand any more
            self.assertEqual(server.get("/health/ready")[0], 503)

    def test_what_users_are_told_names_no_path(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "copied"
            shutil.copytree(SMALL, model)
            config = json.loads((model / "tokenizer_config.json").read_text())
            config.pop("chat_template")
            (model / "tokenizer_config.json").write_text(json.dumps(config))
            with Server(TRINE, "--keep-alive", "0.2", model=model, TRINE_ADMIN_KEY=ADMIN_KEY) as server:
                messages = [{"role": "user", "content": "a"}]
                status, _, body = server.call("POST", "/v1/chat/completions", {"messages": messages})
                self.assertEqual((status, json.loads(body)["error"]["param"]), (400, "messages"))
                self.assertIn("no chat template", body.decode() if isinstance(body, bytes) else body)
                self.assertNotIn(folder, str(body))
                deadline = time.monotonic() + 30
                while self.states(server)["copied"] != "unloaded":
                    self.assertLess(time.monotonic(), deadline)
                for weights in model.glob("*.safetensors"):
                    os.truncate(weights, 100)
                status, _, body = server.complete(max_tokens=1)
                self.assertEqual(status, 503)
                self.assertNotIn(folder, str(body))
                self.assertIn("truncated", str(server.call("GET", "/admin/models", headers=self.auth)[2]))

    def test_no_request_falls_between_keep_alive_and_load(self):
        with Server(TRINE, "--keep-alive", "0.01", model=SMALL, TRINE_ADMIN_KEY=ADMIN_KEY) as server:
            for _ in range(40):
                self.assertEqual(server.complete(max_tokens=1)[0], 200)
                time.sleep(0.03)

    def test_memory_budget(self):
        names = ("--served-name", "small", "--served-name", "large", "--kv-tokens", "2048")
        with Server(TRINE, *names, "--memory-budget", "27m", model=[SMALL, LARGE], TRINE_ADMIN_KEY=ADMIN_KEY) as server:
            self.assertEqual(self.states(server), {"small": "unloaded", "large": "ready"})
            stream = server.stream(model="large", max_tokens=1500)
            next(stream.events())
            status, body = self.admin(server, "load", "small")
            self.assertEqual(status, 400)
            self.assertIn("--memory-budget", body["error"]["message"])
            stream.close()
            server.wait_metric("trine_requests_running", lambda value: value == 0)
            # Its request has left the engine a moment before the model counts as idle.
            deadline = time.monotonic() + 30
            while self.admin(server, "load", "small")[0] != 200:
                self.assertLess(time.monotonic(), deadline)
            self.assertEqual(self.states(server), {"small": "ready", "large": "unloaded"})


@unittest.skipIf(shutil.which("openssl") is None, "no openssl program here")
class Tls(unittest.TestCase):
    def test_https(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = pathlib.Path(folder) / "cert.pem", pathlib.Path(folder) / "key.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                            "-addext", "subjectAltName=IP:127.0.0.1", "-out", str(cert), "-keyout", str(key)], check=True, capture_output=True)
            with Server(TRINE, "--tls-cert", str(cert), "--tls-key", str(key), "--header-timeout", "1", model=SMALL) as server:
                self.assertTrue(server.started["url"].startswith("https://"))
                trust = ssl.create_default_context(cafile=str(cert))
                connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=trust, timeout=60)
                body = json.dumps({"prompt": "The", "max_tokens": 20, "stream": True})
                for _ in range(2):
                    connection.request("POST", "/v1/completions", body)
                    answer = connection.getresponse()
                    self.assertTrue(answer.read().endswith(b"data: [DONE]\n\n"))
                connection.close()
                for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
                    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
                    try:
                        old.minimum_version = old.maximum_version = version
                    except (ValueError, ssl.SSLError):
                        continue
                    with self.assertRaises(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=30) as plain:
                        old.wrap_socket(plain)
                self.assertNotIn(b"HTTP", raw(server.port, b"GET / HTTP/1.1\r\n\r\n"))
                self.assertEqual(raw(server.port, b""), b"")  # a handshake that never comes


if __name__ == "__main__":
    TRINE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
