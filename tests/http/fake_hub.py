"""A hub-layout server for tests that can also cut, lie, redirect and refuse.

Only the standard library. Every request is recorded. Loopback and an ephemeral port.
"""

import hashlib
import http.server
import json
import threading
import time
import urllib.parse


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class File:
    """Content of one file and how the server misbehaves when it is fetched."""

    def __init__(self, data, lfs=True, **behaviour):
        self.data = data
        self.lfs = lfs
        self.listed_size = behaviour.pop("listed_size", len(data))
        self.listed_sha = behaviour.pop("listed_sha", sha256(data))
        # Offsets (in the file) at which the connection is cut, one per response.
        self.cuts = list(behaviour.pop("cuts", []))
        self.always_cut = behaviour.pop("always_cut", None)
        self.ignore_range = behaviour.pop("ignore_range", False)
        # The Content-Length to announce, the bytes to send after the end, or no length at all.
        self.content_length = behaviour.pop("content_length", None)
        self.chunked = behaviour.pop("chunked", False)
        self.extra = behaviour.pop("extra", b"")
        self.redirect = behaviour.pop("redirect", None)
        self.statuses = list(behaviour.pop("statuses", []))  # (status, headers) before it works
        self.always_status = behaviour.pop("always_status", None)
        self.etag = behaviour.pop("etag", '"tag-1"')
        self.headers = behaviour.pop("headers", {})
        self.seconds_per_chunk = behaviour.pop("seconds_per_chunk", 0.0)
        # Instead of the asked range: (first, last, total) of Content-Range.
        self.wrong_range = behaviour.pop("wrong_range", None)
        assert not behaviour, behaviour


class Repo:
    def __init__(self, files, commit="0123456789abcdef0123456789abcdef01234567", **more):
        self.files = files
        self.commit = commit
        self.listing = more.pop("listing", None)  # replaces the whole answer (text)
        self.extra_names = more.pop("extra_names", [])
        self.revisions = more.pop("revisions", ["main"])
        self.need_token = more.pop("need_token", None)
        self.statuses = list(more.pop("statuses", []))
        self.error_codes = more.pop("error_codes", True)
        self.pinned = more.pop("pinned", True)  # files are served under the commit too
        assert not more, more

    def answer(self):
        if self.listing is not None:
            return self.listing
        siblings = []
        for name, file in self.files.items():
            entry = {"rfilename": name, "size": file.listed_size}
            if file.lfs:
                entry["lfs"] = {"sha256": file.listed_sha, "size": file.listed_size, "pointerSize": 130}
            siblings.append(entry)
        siblings += [{"rfilename": name, "size": 3} for name in self.extra_names]
        return json.dumps(
            {"id": "org/repo", "sha": self.commit, "cardData": {"license": "mit"}, "siblings": siblings}
        )


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        pass

    def do_GET(self):
        hub = self.server.hub
        with hub.lock:
            hub.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        try:
            hub.serve(self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def reply(self, status, body=b"", headers=None):
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def cut(self):
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(2)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a client that went away


class FakeHub:
    def __init__(self):
        self.repos = {}
        self.raw = {}  # path -> function(handler)
        self.requests = []
        self.lock = threading.Lock()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.hub = self
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def paths(self, part):
        return [path for path, _ in self.requests if part in path]

    def headers_of(self, part):
        return [headers for path, headers in self.requests if part in path]

    def serve(self, handler):
        path = urllib.parse.urlsplit(handler.path).path
        if path in self.raw:
            self.raw[path](handler)
            return
        parts = [urllib.parse.unquote(part) for part in path.split("/")[1:]]
        if parts[:2] == ["api", "models"] and len(parts) in (4, 6):
            self.serve_api(handler, "/".join(parts[2:4]), parts[5] if len(parts) == 6 else None)
        elif len(parts) >= 5 and parts[2] == "resolve":
            self.serve_file(handler, "/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            handler.reply(404)

    def serve_api(self, handler, name, revision):
        repo = self.repos.get(name)
        if repo is None:
            handler.reply(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            return
        if repo.statuses:
            status, headers = repo.statuses.pop(0)
            handler.reply(status, b"", headers)
            return
        if repo.need_token and handler.headers.get("Authorization") != "Bearer " + repo.need_token:
            handler.reply(401 if handler.headers.get("Authorization") is None else 403)
            return
        if revision is not None and revision not in repo.revisions:
            handler.reply(404, b"{}", {"X-Error-Code": "RevisionNotFound"} if repo.error_codes else {})
            return
        handler.reply(200, repo.answer().encode(), {"Content-Type": "application/json"})

    def serve_file(self, handler, name, revision, path):
        repo = self.repos.get(name)
        known = repo is not None and (revision in repo.revisions or (repo.pinned and revision == repo.commit))
        file = repo.files.get(path) if known else None
        if file is None:
            handler.reply(404)
            return
        with self.lock:
            status = file.statuses.pop(0) if file.statuses else None
        if status is not None:
            handler.reply(status[0], b"busy", status[1])
        elif file.always_status is not None:
            handler.reply(file.always_status, b"no")
        elif file.redirect is not None:
            handler.reply(302, b"", {"Location": file.redirect, **file.headers})
        else:
            self.send_file(handler, file)

    def send_file(self, handler, file):
        start = 0
        wanted = handler.headers.get("Range")
        condition = handler.headers.get("If-Range")
        if wanted and not file.ignore_range and condition in (None, file.etag):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(file.data):
                handler.reply(416)
                return
            handler.send_response(206)
            first, last, total = file.wrong_range or (start, len(file.data) - 1, len(file.data))
            handler.send_header("Content-Range", f"bytes {first}-{last}/{total}")
            start = first  # what is sent begins where the header says
        else:
            handler.send_response(200)
        if file.etag:
            handler.send_header("ETag", file.etag)
        for key, value in file.headers.items():
            handler.send_header(key, value)
        body = file.data[start:] + file.extra
        if file.chunked:
            handler.send_header("Transfer-Encoding", "chunked")
        else:
            announced = len(file.data) - start if file.content_length is None else file.content_length
            handler.send_header("Content-Length", str(announced))
        handler.end_headers()
        with self.lock:
            cut = file.cuts.pop(0) if file.cuts else file.always_cut
        end = len(body) if cut is None else max(0, cut - start)
        for at in range(0, min(end, len(body)), 16384):
            piece = body[at : min(at + 16384, end)]
            if file.chunked:
                piece = b"%x\r\n%s\r\n" % (len(piece), piece)
            handler.wfile.write(piece)
            handler.wfile.flush()
            if file.seconds_per_chunk:
                time.sleep(file.seconds_per_chunk)
        if cut is not None:
            handler.cut()
        elif file.chunked:
            handler.wfile.write(b"0\r\n\r\n")
        elif file.content_length is not None:
            handler.close_connection = True
