"""The generator of synthetic models (bench/peers): each kind loads, computes something finite, and is the same every time."""

import array
import os
import re
import subprocess

from harness import Case, main

GENERATOR = os.environ["TRINE_SYNTHETIC_GGUF"]
TYPES = {  # weights -> types of the file's matrices
    "f16": {"F16"},
    "q4_0": {"Q4_0", "Q6_K"},
    "q8_0": {"Q8_0"},
    "q4_k": {"Q4_K", "Q6_K"},
    "q4_k_m": {"Q4_K", "Q6_K"},
}


class Synthetic(Case):
    def generate(self, *args):
        return subprocess.run([GENERATOR, *args], capture_output=True, text=True, check=False)

    def model(self, weights, name="model.gguf", *seed):
        path = self.path(name)
        done = self.generate("tiny", weights, path, *seed)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        return path

    def logits(self, path):
        out = self.path("logits.npy")
        self.ok("logits", path, "--tokens", "1,300,7,450", "--out", out, "--activations", "f32")
        with open(out, "rb") as file:
            data = file.read()
        header = data[10 : 10 + int.from_bytes(data[8:10], "little")].decode()
        self.assertRegex(header, r"'<f4'.*\(4, 512\)")
        values = array.array("f")
        values.frombytes(data[10 + len(header) :])
        return values

    def test_every_kind_computes_ordinary_numbers(self):
        for weights, types in TYPES.items():
            with self.subTest(weights=weights):
                path = self.model(weights)
                shown = self.ok("show", path).text
                self.assertEqual(set(re.findall(r"^  (\S+) +\d+ +\d+ ", shown, re.M)) - {"F32"}, types)
                values = self.logits(path)
                size = (sum(value * value for value in values) / len(values)) ** 0.5
                # Not finite fails here too. Rows of norm 1 after a norm of width 256: near 1.
                self.assertGreater(size, 0.3)
                self.assertLess(size, 3)

    def test_text_runs(self):
        path = self.model("q4_0")
        ids = [int(word) for word in self.ok("tokenize", path, "a tea").text.split()]
        self.assertEqual(ids[0], 1)
        self.assertGreater(len(ids), 1)
        done = self.ok("run", path, "-p", "a tea", "-n", "4", "--temperature", "0", "--json")
        self.assertEqual(len(done.json["ids"]), 4)

    def test_same_seed_same_bytes(self):
        def content(name, *seed):
            with open(self.model("q4_k", name, *seed), "rb") as file:
                return file.read()

        self.assertEqual(content("a"), content("b", "1"))
        self.assertNotEqual(content("a"), content("c", "2"))

    def test_refusals(self):
        path = self.path("none.gguf")
        for args, error in (
            (("13b", "q4_0", path), "shape '13b': there are tiny, 1.1b, 7b"),
            (("tiny", "q3_k", path), "weights 'q3_k': there are f16, q4_0, q8_0, q4_k, q4_k_m"),
            (("tiny", "q4_0", path, "x"), "seed 'x': give a whole number"),
            (("tiny", "q4_0"), "usage: synthetic_gguf SHAPE WEIGHTS FILE [SEED]"),
        ):
            done = self.generate(*args)
            self.assertEqual((done.returncode, done.stderr), (2, f"error: {error}\n"))
            self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    main()
