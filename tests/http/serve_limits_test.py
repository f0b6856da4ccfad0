#!/usr/bin/env python3
"""Drives `trine serve`: limits: full queues, slow clients, too many connections, readers that do not read.

Usage: serve_limits_test.py TRINE_BINARY [unittest arguments]. Loopback only. Nothing here asserts how fast something is; waits have
long ends.
"""

import json
import pathlib
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from serve_cases import Shared, start, main  # noqa: E402
from serving import SMALL, raw  # noqa: E402

ID = rb"\r\nX-Request-Id: req_[0-9a-f]{32}\r\n"


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
        # Whoever restarts what is not healthy must not do it for that.
        self.assertEqual(self.server.get("/health")[0], 200)
        self.assertEqual(self.server.metric("trine_requests_rejected_total"), 1)
        status, _, _ = self.server.complete(prompt=["a", "b", "c"], max_tokens=1)
        self.assertEqual(status, 429)
        self.assertEqual(self.server.metric("trine_requests_rejected_total"), 2)
        running.close()
        for thread in waiting:
            thread.join()
        # More prompts than places: a free place is enough, so that trying again helps.
        status, _, body = self.server.complete(prompt=["a", "b", "c", "d"], max_tokens=1)
        self.assertEqual((status, len(body["choices"])), (200, 4))
        self.assertEqual(self.server.get("/health/ready")[0], 200)
        self.server.wait_metric("trine_requests_running", lambda value: value == 0)


class LongPrompts(Shared):
    args = ("--max-waiting-tokens", "8", "--max-sequences", "1")

    def test_a_prompt_above_the_limit_waits_like_any_other(self):
        """Taken while fewer tokens wait than may: a 429 is never for good."""
        long = [5] * 100
        running = self.server.stream(max_tokens=1900, ignore_eos=True)
        next(running.events())
        answers = []
        waiting = [
            threading.Thread(target=lambda p=prompt: answers.append(self.server.complete(prompt=p, max_tokens=1)[0])) for prompt in ([5] * 3, long)
        ]
        for thread, count in zip(waiting, (1, 2)):
            thread.start()
            self.server.wait_metric("trine_requests_waiting", lambda value, count=count: value == count)
        status, _, body = self.server.complete(prompt=[5], max_tokens=1)
        self.assertEqual((status, body["error"]["code"]), (429, "queue_full"))
        self.assertIn("103 of 8 prompt tokens", body["error"]["message"])
        running.close()
        for thread in waiting:
            thread.join()
        self.assertEqual(answers, [200, 200])
        self.assertEqual(self.server.complete(prompt=[long, long], max_tokens=1)[0], 200)


class Deadline(Shared):
    args = ("--max-sequences", "1")

    def check(self, error):
        self.assertEqual((error["type"], error["code"], error["param"]), ("timeout_error", "deadline_exceeded", "timeout_ms"))
        self.assertRegex(error["message"], r"^timeout_ms is \d+, and \d+ ms have passed since submit$")

    def test_past_it_the_answer_is_504_and_not_to_be_tried_again(self):
        status, headers, body = self.server.complete(max_tokens=1900, ignore_eos=True, timeout_ms=30)
        self.assertEqual(status, 504)
        self.check(body["error"])
        self.assertEqual(headers["x-should-retry"], "false")
        # In the queue too.
        running = self.server.stream(max_tokens=1900, ignore_eos=True)
        next(running.events())
        self.assertEqual(self.server.complete(max_tokens=1, timeout_ms=20)[0], 504)
        running.close()

    def test_a_stream_ends_with_the_error(self):
        stream = self.server.stream(max_tokens=1900, ignore_eos=True, timeout_ms=200)
        events = list(stream.events())
        self.assertEqual(events[-1], "[DONE]")
        self.check(json.loads(events[-2])["error"])


class Slow(Shared):
    args = ("--header-timeout", "0.4", "--body-timeout", "0.4", "--idle-timeout", "0.4", "--max-connections", "12", "--max-connections-per-address", "8")

    def test_slowloris(self):
        started = time.monotonic()
        # A byte now and then does not buy time.
        out = raw(self.server.port, [b"GET / HT"] + [b"T"] * 30, pause=0.05)
        self.assertTrue(out.startswith(b"HTTP/1.1 408"), out)
        self.assertRegex(out, ID)
        self.assertGreaterEqual(time.monotonic() - started, 0.4)
        out = raw(self.server.port, [b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"] + [b"x"] * 30, pause=0.05)
        self.assertTrue(out.startswith(b"HTTP/1.1 408"), out)
        self.assertRegex(out, ID)
        self.assertEqual(raw(self.server.port, b""), b"")  # idle: closed without a word
        self.assertGreaterEqual(self.server.metric("trine_http_timeouts_total"), 2)

    def test_connection_cap_per_address(self):
        held = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(8)]
        try:
            time.sleep(0.1)
            out = raw(self.server.port, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertTrue(out.startswith(b"HTTP/1.1 503"), out)
            self.assertRegex(out, ID)
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


if __name__ == "__main__":
    main()
