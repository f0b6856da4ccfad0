"""Starts `trine serve` for tests and talks to it; standard library only, loopback only."""

import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SMALL = SOURCE / "assets" / "models" / "docs-1m"
LARGE = SOURCE / "assets" / "models" / "docs-8m"


def clean_environment(**more):
    """Nothing of the caller's environment may configure the server or lead out of the loopback."""
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.upper().endswith("_PROXY") and not key.startswith(("TRINE_", "HF_", "XDG_"))
    }
    env.update(NO_PROXY="*", **more)
    return env


class Server:
    """A running `trine serve` on a free port; a context manager that ends it."""

    def __init__(self, binary, *args, model=LARGE, wait=True, **env):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="trine-serve-"))
        models = [str(m) for m in (model if isinstance(model, list) else [model])]
        self.log = open(self.dir / "stderr", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [binary, "serve", *models, "--port", "0", "--json", *args],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=clean_environment(HOME=str(self.dir), TRINE_HOME=str(self.dir / "home"), **env),
        )
        self.port = None
        if not wait:
            return
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the server did not start: {self.stderr()}")
        self.started = json.loads(line)
        self.port = self.started["port"]

    def wait_listening(self):
        """For wait=False: until the address is known."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = re.search(r"listening\s+https?://\S+:(\d+)", self.stderr())
            if found:
                self.port = int(found.group(1))
                return
            time.sleep(0.01)
        raise AssertionError(self.stderr())

    def stderr(self):
        self.log.flush()
        return (self.dir / "stderr").read_text(encoding="utf-8")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()

    def stop(self, sig=signal.SIGTERM, timeout=60):
        """Ends the server and gives its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            status = self.process.wait(timeout)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()
            self.log.close()
            shutil.rmtree(self.dir, ignore_errors=True)
        return status

    # -- requests

    def connection(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def call(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers with lower-case names, body as text)"""
        connection = self.connection(timeout)
        try:
            data = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.call("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def complete(self, prompt="The engine", **fields):
        status, headers, body = self.call("POST", "/v1/completions", {"prompt": prompt, "temperature": 0, **fields})
        return status, headers, json.loads(body)

    def stream(self, prompt="The engine", headers=None, timeout=60, **fields):
        """An open event stream."""
        return EventStream(self, {"prompt": prompt, "temperature": 0, "stream": True, **fields}, headers, timeout)

    def metric(self, name, **labels):
        """The sum of all series of a metric with these labels; None when there is none."""
        return self.metrics([name], **labels)[0]

    def metrics(self, names, **labels):
        """The same of several, of one moment."""
        status, _, text = self.call("GET", "/metrics", headers=self.metrics_headers())
        assert status == 200, text
        return [self.sum_of(text, name, labels) for name in names]

    @staticmethod
    def sum_of(text, name, labels):
        found = None
        for line in text.splitlines():
            if line.startswith("#") or not line.startswith(name):
                continue
            match = re.fullmatch(re.escape(name) + r"(?:\{(.*)\})? (\S+)", line)
            if match and all(f'{k}="{v}"' in (match.group(1) or "") for k, v in labels.items()):
                found = (found or 0) + float(match.group(2))
        return found

    def metrics_headers(self):
        return getattr(self, "auth", {})

    def wait_metric(self, name, accept, timeout=30):
        """Until accept(value); the value, or a failure with the last one."""
        deadline = time.monotonic() + timeout
        value = self.metric(name)
        while not accept(value):
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} stays {value}")
            time.sleep(0.01)
            value = self.metric(name)
        return value


class EventStream:
    def __init__(self, server, body, headers=None, timeout=60, path="/v1/completions"):
        data = json.dumps(body).encode()
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=timeout)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        for key, value in (headers or {}).items():
            head += f"{key}: {value}\r\n"
        self.socket.sendall(head.encode() + b"\r\n" + data)
        self.answer = http.client.HTTPResponse(self.socket, method="POST")
        self.answer.begin()
        self.status = self.answer.status

    def events(self):
        """Data lines in order; comments are left out."""
        for line in self.lines():
            if line.startswith("data: "):
                yield line[len("data: ") :]

    def lines(self):
        while True:
            line = self.answer.readline()
            if not line:
                return
            yield line.decode("utf-8").rstrip("\n")

    def close(self):
        self.answer.close()
        self.socket.close()


def raw(port, data, timeout=30, pause=0.0):
    """What the server answers to these bytes until it closes; data may be a list of pieces."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as client:
        for piece in data if isinstance(data, list) else [data]:
            try:
                client.sendall(piece)
            except OSError:
                break
            time.sleep(pause)
        out = b""
        while True:
            try:
                part = client.recv(65536)
            except ConnectionResetError:
                break
            if not part:
                break
            out += part
    return out
