"""tools/demo.sh with stand-ins for what it calls: when it says that nothing had to be set up."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ["TRINE_SOURCE_DIR"])
LINE = "nothing had to be set up"
# A stand-in takes less time than a tick of the file system's clock, so what it makes is dated a second later.
TRINE = """#!/bin/sh
[ "$1" = pull ] || { echo "answer $2"; exit 0; }
[ ! -e pull-fetches ] || touch -d '+1 second' model/manifest.json
printf 'smollm2-135m\\t%s/model/m.gguf\\n' "$PWD"
"""


class Demo(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="trine-demo-"))
        self.addCleanup(shutil.rmtree, self.root)
        for name in ("tools", "build/release", "model"):
            (self.root / name).mkdir(parents=True)
        shutil.copy(SOURCE / "tools/demo.sh", self.root / "tools/demo.sh")
        self.script("tools/setup.sh", "#!/bin/sh\n")
        self.script("tools/build.sh", "#!/bin/sh\n")
        self.script("build/release/trine", TRINE)
        (self.root / "model/manifest.json").write_text("old")
        hour_ago = time.time() - 3600
        for name in ("build/release/trine", "model/manifest.json"):
            os.utime(self.root / name, (hour_ago, hour_ago))

    def script(self, name, text):
        (self.root / name).write_text(text)
        (self.root / name).chmod(0o755)

    def demo(self):
        done = subprocess.run([self.root / "tools/demo.sh"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("answer smollm2-135m", done.stdout)
        return done.stdout

    def test_all_in_place(self):
        self.assertEqual(self.demo().count(LINE), 1)

    def test_packages_installed(self):
        self.script("tools/setup.sh", "#!/bin/sh\necho '==> installing 1 Debian packages: x'\n")
        self.assertNotIn(LINE, self.demo())

    def test_program_built(self):
        self.script("tools/build.sh", "#!/bin/sh\ntouch -d '+1 second' build/release/trine\n")
        self.assertNotIn(LINE, self.demo())

    def test_model_fetched(self):
        (self.root / "pull-fetches").touch()
        self.assertNotIn(LINE, self.demo())

    def test_failures_end_it(self):
        self.script("tools/setup.sh", "#!/bin/sh\nexit 1\n")
        done = subprocess.run([self.root / "tools/demo.sh"], capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("answer", done.stdout)


if __name__ == "__main__":
    unittest.main()
