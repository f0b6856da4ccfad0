#!/usr/bin/env python3
"""Drives `trine pull` against a hub over TLS whose certificate nobody but the test trusts.

Usage: tls_test.py TRINE_BINARY. Standard library and the openssl program only; loopback only.
"""

import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from fake_hub import FakeHub, File, Repo  # noqa: E402

TRINE = ""


class SecureHub(FakeHub):
    def __init__(self, certificate, key):
        super().__init__()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        # The handshake belongs to the connection's thread, not to the one that accepts.
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self):
        return super().url.replace("http://", "https://")


@unittest.skipIf(shutil.which("openssl") is None, "no openssl program here")
class Tls(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="trine-tls-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def certificate(self, name, subject_alt_name):
        cert, key = self.dir / f"{name}.pem", self.dir / f"{name}.key"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
            + ["-addext", f"subjectAltName={subject_alt_name}", "-out", str(cert), "-keyout", str(key)],
            check=True,
            capture_output=True,
        )
        return cert, key

    def hub(self, cert, key):
        hub = SecureHub(cert, key)
        self.addCleanup(hub.close)
        hub.repos["org/repo"] = Repo({"m.gguf": File(b"GGUF" + bytes(1000))})
        return hub

    def pull(self, hub, **env):
        kept = {k: v for k, v in os.environ.items() if not k.upper().endswith("_PROXY")}
        for name in ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR", "HF_TOKEN", "TRINE_HUB_TOKEN"):
            kept.pop(name, None)
        kept.update(TRINE_HOME=str(self.dir / "home"), TRINE_HUB_URL=hub.url, HOME=str(self.dir), HF_TOKEN="hf_secret", **env)
        return subprocess.run([TRINE, "pull", "hf:org/repo:m.gguf", "--force"], env=kept, capture_output=True, text=True, timeout=60, check=False)

    def test_unknown_authority_is_refused_and_a_named_one_accepted(self):
        cert, key = self.certificate("hub", "IP:127.0.0.1")
        other, _ = self.certificate("other", "IP:127.0.0.1")
        hub = self.hub(cert, key)
        for env in ({}, {"SSL_CERT_FILE": str(other)}, {"CURL_CA_BUNDLE": str(other), "SSL_CERT_FILE": str(cert)}):
            done = self.pull(hub, **env)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr, r"(?i)error: .*https://127\.0\.0\.1:\d+.*certificate.*SSL_CERT_FILE")
            # Final at once: nothing is asked for, and the token does not leave.
            self.assertNotIn("trying again", done.stderr)
            self.assertEqual(hub.requests, [])
        for env in ({"SSL_CERT_FILE": str(cert)}, {"CURL_CA_BUNDLE": str(cert)}):
            done = self.pull(hub, **env)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(hub.requests[0][1].get("authorization"), "Bearer hf_secret")

    def test_name_of_another_host_is_refused(self):
        cert, key = self.certificate("elsewhere", "DNS:elsewhere.example")
        hub = self.hub(cert, key)
        done = self.pull(hub, SSL_CERT_FILE=str(cert))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"(?i)error: .*https://127\.0\.0\.1.*certificate")
        self.assertEqual(hub.requests, [])

    def test_unreadable_bundle_is_named(self):
        cert, key = self.certificate("hub", "IP:127.0.0.1")
        done = self.pull(self.hub(cert, key), SSL_CERT_FILE=str(self.dir / "gone.pem"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("gone.pem", done.stderr)


if __name__ == "__main__":
    TRINE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
