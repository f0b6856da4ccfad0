"""Models that cannot be used end in one clear line and status 3, in every command."""

import json
import os
import struct

from harness import MODEL, Case, main


class Broken(Case):
    def commands(self, model):
        out = self.path("x.npy")
        return [
            ("run", model, "-p", "x", "-n", "1"),
            ("chat", model),
            ("logits", model, "--tokens", "1", "--out", out),
            ("verify", "invariance", model, "--prompts", "1", "--mixtures", "0"),
            ("show", model),
        ]

    def all_bad(self, pattern, model, code=3, shows=False):
        # `show` describes what the headers say, also where the forward pass cannot follow.
        for command in self.commands(model)[: 4 if shows else 5]:
            self.bad(code, pattern, *command)
        self.assertFalse(os.path.exists(self.path("x.npy")))

    def test_missing(self):
        self.all_bad("nosuch", self.path("nosuch"), code=1)

    def test_broken_config(self):
        self.all_bad("config.json", self.copy_model(replace={"config.json": '{"model_type": '}))

    def test_missing_parts(self):
        self.all_bad("config.json", self.copy_model("a", without=["config.json"]), shows=True)
        self.all_bad("no .safetensors", self.copy_model("b", without=["model.safetensors"]))
        index = json.dumps({"metadata": {}, "weight_map": {"a": "gone.safetensors"}})
        sharded = self.copy_model("c", without=["model.safetensors"], replace={"model.safetensors.index.json": index})
        self.all_bad("gone.safetensors", sharded)

    def test_unknown_architecture(self):
        config = self.edit_json("config.json", architectures=["NovelForCausalLM"], model_type="novel")
        self.all_bad("novel", self.copy_model(replace={"config.json": config}), shows=True)

    def test_refused_key(self):
        config = self.edit_json("config.json", hidden_act="relu6")
        self.all_bad("relu6", self.copy_model(replace={"config.json": config}), shows=True)

    def test_token_ids_outside_the_vocabulary(self):
        for i, (key, value) in enumerate((("eos_token_id", [0, 8192]), ("bos_token_id", 8192), ("pad_token_id", 9000))):
            config = self.edit_json("config.json", **{key: value})
            model = self.copy_model(f"c{i}", replace={"config.json": config})
            self.all_bad(f"c{i}/config.json.*{key}", model, shows=True)
        model = self.copy_model("g", replace={"generation_config.json": json.dumps({"eos_token_id": 8192})})
        self.bad(3, "generation_config.json.*eos_token_id 8192", "run", model, "-p", "x")

    def test_warnings_stay_one_line_and_harmless(self):
        config = self.edit_json("config.json", **{"x\n\x1b[31m": 3})
        done = self.ok("logits", self.copy_model(replace={"config.json": config}), "--tokens", "1", "--out", self.path("x.npy"))
        self.assertEqual(done.error.count("\n"), 1)
        self.assertNotIn("\x1b", done.error)

    def test_wrong_size(self):
        config = self.edit_json("config.json", intermediate_size=500)
        for command in self.commands(self.copy_model(replace={"config.json": config}))[:4]:
            self.bad(3, "model.*(384.*500|500.*384)", *command)

    def test_truncated_weights(self):
        with open(os.path.join(MODEL, "model.safetensors"), "rb") as file:
            data = file.read()
        for name, size in (("half", len(data) // 2), ("header", 100), ("nothing", 0)):
            self.all_bad("model.safetensors", self.copy_model(name, replace={"model.safetensors": data[:size]}))

    def test_hostile_header_length(self):
        weights = struct.pack("<Q", 1 << 60) + b"{}"
        self.all_bad("model.safetensors", self.copy_model(replace={"model.safetensors": weights}))

    def test_bad_gguf(self):
        for name, data in (
            ("magic.gguf", b"GGUF"),
            ("version.gguf", b"GGUF" + struct.pack("<IQQ", 1, 0, 0)),
            ("counts.gguf", b"GGUF" + struct.pack("<IQQ", 3, 1 << 62, 1 << 62)),
            ("noise.gguf", bytes(range(256)) * 16),
        ):
            self.all_bad(name, self.path(name, data))

    def test_pickle(self):
        self.all_bad("safetensors", self.path("pytorch_model.bin", b"PK\x03\x04" + b"\0" * 64))

    def test_broken_tokenizer_keeps_logits(self):
        model = self.copy_model(replace={"tokenizer.json": '{"model": {"type": "Novel"}}'})
        self.bad(3, "tokenizer.json", "tokenize", model, "x")
        self.bad(3, "tokenizer.json", "run", model, "-p", "x")
        self.ok("logits", model, "--tokens", "1", "--out", self.path("x.npy"))

    def test_chat_template_of_another_kind(self):
        # Not "no template": that would send the prompt raw.
        for i, value in enumerate((5, {"a": 1}, ["x"], [{"name": "default"}])):
            config = self.edit_json("tokenizer_config.json", chat_template=value)
            model = self.copy_model(f"t{i}", replace={"tokenizer_config.json": config})
            self.bad(3, "tokenizer_config.json: chat_template.*wanted", "run", model, "-p", "x", "-n", "1")
            self.ok("run", model, "--raw", "-p", "x", "-n", "1")

    def test_broken_tokenizer_config_and_generation_config(self):
        self.bad(3, "tokenizer_config.json", "tokenize", self.copy_model("a", replace={"tokenizer_config.json": "{"}), "x")
        self.bad(3, "generation_config.json", "run", self.copy_model("b", replace={"generation_config.json": "[]"}), "-p", "x")
        bad = json.dumps({"eos_token_id": "0"})
        self.bad(3, "eos_token_id", "run", self.copy_model("c", replace={"generation_config.json": bad}), "-p", "x")


if __name__ == "__main__":
    main()
