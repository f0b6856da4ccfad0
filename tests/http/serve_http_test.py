#!/usr/bin/env python3
"""Drives `trine serve`: HTTP itself: health, paths, methods, framing, what smugglers send, curl.

Usage: serve_http_test.py TRINE_BINARY [unittest arguments]. Loopback only. Nothing here asserts how fast something is; waits have
long ends.
"""

import json
import pathlib
import socket
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from serve_cases import Shared, trine, main  # noqa: E402
from serving import clean_environment, raw  # noqa: E402


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

    def test_request_id_of_what_never_reached_a_route(self):
        """The client's own where the header was read; it is in the log beside the reason."""
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine-7\r\n"
        for status, rest in ((b"413", b"Content-Length: 20481\r\n\r\n"), (b"415", b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"),
                             (b"417", b"Expect: tea\r\n\r\n"), (b"501", b"Transfer-Encoding: gzip\r\n\r\n"),
                             (b"400", b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n")):
            with self.subTest(status=status):
                out = raw(self.server.port, head + rest)
                self.assertTrue(out.startswith(b"HTTP/1.1 " + status), out)
                self.assertIn(b"\r\nX-Request-Id: mine-7\r\n", out)

    def test_health_and_version_as_peers_have_them(self):
        status, _, body = self.server.get("/health")
        self.assertEqual((status, json.loads(body)), (200, {"status": "ok"}))
        status, _, body = self.server.get("/version")
        done = subprocess.run([trine(), "--version"], capture_output=True, text=True, check=True)
        self.assertEqual(status, 200)
        self.assertIn(json.loads(body)["version"], done.stdout)

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
                self.assertRegex(out, rb"\r\nX-Request-Id: req_[0-9a-f]{32}\r\n")
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


if __name__ == "__main__":
    main()
