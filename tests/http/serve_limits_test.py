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


if __name__ == "__main__":
    main()
