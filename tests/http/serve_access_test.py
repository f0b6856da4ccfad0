#!/usr/bin/env python3
"""Drives `trine serve`: who may what: keys, hosts, origins, TLS, and what the start refuses.

Usage: serve_access_test.py TRINE_BINARY [unittest arguments]. Loopback only. Nothing here asserts how fast something is; waits have
long ends.
"""

import http.client
import json
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from serve_cases import ADMIN_KEY, KEY, OTHER_KEY, Shared, bearer, start, trine, main  # noqa: E402
from serving import SMALL, SOURCE, clean_environment, raw  # noqa: E402


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
            with start("--api-key-file", str(keys), model=SMALL) as server:
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
        done = subprocess.run([trine(), "serve", str(SMALL), "--port", "0", *args], capture_output=True, text=True, timeout=60,
                              env=clean_environment(HOME="/nonexistent", **env), check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def test_open_host_needs_a_key_or_a_flag(self):
        for host in ("0.0.0.0", "::", "192.0.2.1"):
            self.assertIn("--allow-no-auth", self.refused("--host", host))
        with start("--host", "0.0.0.0", "--allow-no-auth", model=SMALL) as server:
            self.assertEqual(server.get("/v1/models")[0], 200)
            self.assertIn("NO KEY", server.stderr())
        with start("--host", "0.0.0.0", model=SMALL, TRINE_API_KEY=KEY) as server:
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
            done = subprocess.run([trine(), "serve", str(bad), "--port", "0"], capture_output=True, text=True, timeout=60,
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


@unittest.skipIf(shutil.which("openssl") is None, "no openssl program here")
class Tls(unittest.TestCase):
    def test_https(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = pathlib.Path(folder) / "cert.pem", pathlib.Path(folder) / "key.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                            "-addext", "subjectAltName=IP:127.0.0.1", "-out", str(cert), "-keyout", str(key)], check=True, capture_output=True)
            with start("--tls-cert", str(cert), "--tls-key", str(key), "--header-timeout", "1", model=SMALL) as server:
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
    main()
