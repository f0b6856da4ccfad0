"""convert: a directory with safetensors as a GGUF file."""

import json
import os
import re
import shutil
import stat
import struct

from harness import MODEL, SOURCE, Case, flags_of, main

DOCS_8M = os.path.join(SOURCE, "assets", "models", "docs-8m")


class Convert(Case):
    def convert(self, *args, model=MODEL, out="out.gguf"):
        path = self.path(out)
        self.ok("convert", model, "--out", path, *args)
        return path

    def test_the_file_answers_as_the_directory(self):
        path = self.convert(model=DOCS_8M)
        ask = ("-p", "The file system", "--raw", "-n", "32", "--temperature", "0")
        self.assertEqual(self.ok("run", path, *ask).out, self.ok("run", DOCS_8M, *ask).out)
        for text in ("Hello, world! 1234 naïve\n\n  x = y", "<|im_start|>"):
            for flag in ("--parse-special", "--no-bos"):
                self.assertEqual(self.ok("tokenize", path, text, flag).out, self.ok("tokenize", DOCS_8M, text, flag).out)
        self.assertEqual(self.ok("show", path, "--template").out, self.ok("show", DOCS_8M, "--template").out)
        shown = self.ok("show", path, "--json").json
        self.assertEqual((shown["format"], shown["architecture"]), ("GGUF v3", "llama"))
        self.assertEqual(shown["tokenizer"], "gpt2, splitter smaug-bpe")

    def test_types(self):
        for flag, name in (("f32", "F32"), ("f16", "F16"), ("bf16", "BF16"), ("q8_0", "Q8_0")):
            path = self.convert("--type", flag, out=flag + ".gguf")
            types = {row["type"] for row in self.ok("show", path, "--json").json["types"]}
            self.assertEqual(types, {"F32", name})
            self.ok("run", path, "-p", "a", "--raw", "-n", "4")

    def test_output(self):
        path = self.path("out.gguf")
        done = self.ok("convert", MODEL, "--out", path)
        self.assertRegex(done.text, r"^\S*out\.gguf: llama, \d+ tensors, F16, [0-9.]+ MB\n$")
        self.assertIn("out.gguf: 1 file, ", done.error)
        done = self.ok("convert", MODEL, "-o", path, "--force", "--json", "--quiet")
        value = done.json
        self.assertEqual(done.err, b"")
        self.assertEqual(value["bytes"], os.path.getsize(path))
        self.assertEqual((value["file"], value["architecture"], value["type"]), (path, "llama", "F16"))
        self.assertEqual((value["tokenizer"], value["notes"]), (True, []))
        self.assertEqual(os.listdir(self.tmp), ["out.gguf"])

    def test_context(self):
        path = self.convert("--ctx", "128")
        self.assertEqual(self.ok("show", path, "--json").json["config"]["context_length"], 128)
        self.bad(2, "--ctx.*4096", "convert", MODEL, "--out", self.path("x.gguf"), "--ctx", "4096")

    def test_an_output_that_exists_is_kept(self):
        path = self.path("out.gguf", b"mine")
        self.bad(2, r"out\.gguf exists; --force replaces it", "convert", MODEL, "--out", path)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), b"mine")
        os.chmod(path, 0o600)
        self.ok("convert", MODEL, "--out", path, "--force")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.bad(2, "is a directory", "convert", MODEL, "--out", self.tmp, "--force")

    def test_sources_that_are_refused(self):
        out = self.path("x.gguf")
        path = self.convert()
        self.bad(2, "out.gguf is a GGUF file already", "convert", path, "--out", out)
        self.bad(1, "nosuch", "convert", self.path("nosuch"), "--out", out)
        self.bad(2, "missing --out", "convert", MODEL)
        self.bad(2, "--type", "convert", MODEL, "--out", out, "--type", "q4_0")
        mamba = self.copy_model("mamba", replace={"config.json": self.edit_json("config.json", model_type="mamba", architectures=None)})
        self.bad(3, "mamba", "convert", mamba, "--out", out)
        window = {"config.json": self.edit_json("config.json", model_type="mistral", architectures=None, sliding_window=64)}
        self.bad(3, r"layer 0 sees 64 tokens.*--ctx 64", "convert", self.copy_model("window", replace=window), "--out", out)
        quantized = {"config.json": self.edit_json("config.json", quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128})}
        self.bad(3, "quantiz", "convert", self.copy_model("quantized", replace=quantized), "--out", out)
        with open(os.path.join(MODEL, "tokenizer.json"), encoding="utf-8") as file:
            tokenizer = json.load(file)
        tokenizer["normalizer"] = {"type": "Lowercase"}
        lower = self.copy_model("lower", replace={"tokenizer.json": json.dumps(tokenizer)})
        self.bad(3, r"tokenizer\.json: normalizer Lowercase: a GGUF file cannot say that", "convert", lower, "--out", out)
        self.assertFalse(os.path.exists(out))

    def test_without_a_tokenizer(self):
        model = self.copy_model(without=["tokenizer.json"])
        done = self.ok("convert", model, "--out", self.path("ids.gguf"))
        self.assertIn("note: the directory has no tokenizer.json", done.error)
        for name, path in (("a", model), ("b", self.path("ids.gguf"))):
            self.ok("logits", path, "--tokens", "1,2,3", "--out", self.path(name), "--positions", "last")
        self.bad(3, "no tokenizer", "run", self.path("ids.gguf"), "-p", "a")

    def test_nothing_is_left_of_what_fails(self):
        model = self.copy_model()
        os.unlink(os.path.join(model, "model.safetensors"))
        shutil.copy(os.path.join(MODEL, "model.safetensors"), model)
        with open(os.path.join(model, "model.safetensors"), "r+b") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            begin = json.loads(file.read(size))["model.layers.1.mlp.down_proj.weight"]["data_offsets"][0]
            file.seek(8 + size + begin)
            file.write(b"\x00\x7e")  # NaN in half precision
        self.bad(3, "down_proj.weight: the value nan for row 0, column 0 .* cannot be held in Q8_0", "convert", model, "--out", self.path("x.gguf"), "--type", "q8_0")
        self.assertEqual(os.listdir(self.tmp), ["model"])
        if os.path.exists("/dev/full"):
            self.bad(4, "No space left", "convert", MODEL, "--out", "/dev/full")

    def test_no_flag_without_a_test_here(self):
        common = {"json", "quiet", "log-level", "config", "home", "catalogue"}
        self.assertEqual(flags_of(self, "convert") - common, {"out", "type", "ctx", "force"})
        self.assertTrue(re.search(r"(?m)^  convert ", self.ok("help").text))


if __name__ == "__main__":
    main()
