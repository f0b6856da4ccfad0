"""Runs the trine binary in a clean environment. Standard library only.

TRINE_BIN, TRINE_TEST_MODEL and TRINE_SOURCE_DIR are set by ctest; to run a file by hand:
    TRINE_BIN=build/release/trine TRINE_TEST_MODEL=assets/models/docs-1m TRINE_SOURCE_DIR=. python3 tests/cli/test_run.py
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

BIN = os.path.abspath(os.environ["TRINE_BIN"])
MODEL = os.path.abspath(os.environ["TRINE_TEST_MODEL"])
SOURCE = os.path.abspath(os.environ["TRINE_SOURCE_DIR"])


class Done:
    """What a finished command left: code, out and err as bytes, text and parsed forms on demand."""

    def __init__(self, process):
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr

    @property
    def text(self):
        return self.out.decode("utf-8")

    @property
    def error(self):
        return self.err.decode("utf-8", "backslashreplace")

    @property
    def json(self):
        return json.loads(self.out)


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.tmp = tempfile.mkdtemp(prefix="trine-cli-")
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)
        # Nothing of the caller's configuration reaches the program.
        self.env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": self.tmp,
            "TRINE_HOME": os.path.join(self.tmp, "store"),
            "TERM": "xterm",
        }
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                self.env[name] = os.environ[name]

    def path(self, name, content=None):
        path = os.path.join(self.tmp, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    def trine(self, *args, stdin=b"", env=None, **kwargs):
        if isinstance(stdin, str):
            stdin = stdin.encode("utf-8")
        process = subprocess.run(
            [BIN, *args],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self.env, **(env or {})},
            timeout=120,
            check=False,
            **kwargs,
        )
        return Done(process)

    def ok(self, *args, **kwargs):
        done = self.trine(*args, **kwargs)
        self.assertEqual(done.code, 0, (args, done.error))
        return done

    def bad(self, code, pattern, *args, **kwargs):
        """The command ends with `code`, no result, and one line `error: ...` that matches."""
        done = self.trine(*args, **kwargs)
        self.assertEqual(done.code, code, (args, done.error))
        self.assertEqual(done.out, b"", args)
        lines = [line for line in done.error.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(lines), 1, (args, done.error))
        self.assertRegex(lines[0], pattern, args)
        return done

    def copy_model(self, name="model", without=(), replace=None):
        """A changed copy of the test model; big files are linked."""
        directory = os.path.join(self.tmp, name)
        os.makedirs(directory)
        for entry in os.listdir(MODEL):
            if entry in without or not os.path.isfile(os.path.join(MODEL, entry)):
                continue
            os.symlink(os.path.join(MODEL, entry), os.path.join(directory, entry))
        for entry, content in (replace or {}).items():
            target = os.path.join(directory, entry)
            if os.path.lexists(target):
                os.unlink(target)
            with open(target, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
        return directory

    def edit_json(self, name, **changes):
        """The text of a JSON file of the test model with some keys replaced; None removes a key."""
        with open(os.path.join(MODEL, name), encoding="utf-8") as file:
            value = json.load(file)
        for key, new in changes.items():
            if new is None:
                value.pop(key, None)
            else:
                value[key] = new
        return json.dumps(value)


def flags_of(case, command):
    """All long flags that a command takes, from its completion script."""
    script = case.ok("completion", "fish").text
    pattern = r"__fish_seen_subcommand_from " + re.escape(command) + r"' -l (\S+)"
    return set(re.findall(pattern, script))


def main():
    unittest.main(verbosity=1)
