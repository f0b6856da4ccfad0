"""show: what a model is made of, what it needs, and why one cannot run."""

import json
import os
import struct

from harness import MODEL, SOURCE, Case, Gguf, flags_of, main, tiny_gguf

DOCS_8M = os.path.join(SOURCE, "assets", "models", "docs-8m")


def tensors_of(path):
    """Name -> (shape, bytes) of a safetensors file of F16 tensors, read here on its own."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return {k: (v["shape"], v["data_offsets"][1] - v["data_offsets"][0]) for k, v in header.items() if k != "__metadata__"}


class Directory(Case):
    def test_json_agrees_with_the_files(self):
        value = self.ok("show", DOCS_8M, "--json").json
        with open(os.path.join(DOCS_8M, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        tensors = tensors_of(os.path.join(DOCS_8M, "model.safetensors"))
        size = sum(bytes_ for _, bytes_ in tensors.values())
        self.assertEqual((value["format"], value["architecture"]), ("safetensors", "llama"))
        self.assertEqual((value["weight_bytes"], value["parameters"]), (size, size // 2))
        self.assertEqual(value["bits_per_weight"], 16.0)
        self.assertEqual(
            value["types"], [{"type": "F16", "tensors": len(tensors), "parameters": size // 2, "bytes": size}]
        )
        self.assertEqual(value["config"]["context_length"], config["max_position_embeddings"])
        self.assertEqual(value["config"]["vocab_size"], config["vocab_size"])
        self.assertEqual(value["config"]["num_layers"], config["num_hidden_layers"])
        self.assertEqual(value["tokenizer"], "tokenizer.json, BPE")
        self.assertEqual(value["chat_templates"], ["default"])
        self.assertNotIn("cannot_run", value)

    def test_quantized_matrices_by_the_way_they_are_stored(self):
        folder = os.path.join(SOURCE, "tests", "golden", "quantized_checkpoints")
        for name, what, bits in (
            ("gptq-w4-g32", "gptq 4-bit, groups of 32", (4.5, 5.5)),
            ("awq-gemm-g32", "awq 4-bit, groups of 32, zero points", (4.5, 5.0)),
            ("gptq-w4-act-order", "gptq 4-bit, groups of 32, zero points, act-order", (4.5, 5.5)),
            ("ct-w8a8", "compressed-tensors 8-bit, a scale per row", (8.0, 9.0)),
            ("ct-fp8-block", "compressed-tensors E4M3, blocks of 32 x 32", (8.0, 8.2)),
        ):
            path = os.path.join(folder, name)
            value = self.ok("show", path, "--json").json
            types = {t["type"]: t for t in value["types"]}
            self.assertIn(what, types, name)
            with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            layers, width, mlp = (config[k] for k in ("num_hidden_layers", "hidden_size", "intermediate_size"))
            kv = config["num_key_value_heads"] * config["head_dim"]
            linears = layers * (2 * width * width + 2 * kv * width + 3 * width * mlp)
            self.assertEqual((types[what]["tensors"], types[what]["parameters"]), (7 * layers, linears))
            self.assertTrue(bits[0] <= types[what]["bytes"] * 8 / linears <= bits[1], types[what])
            size = sum(b for _, b in tensors_of(os.path.join(path, "model.safetensors")).values())
            self.assertEqual(value["weight_bytes"], size)
            self.assertIn(what, self.ok("show", path).text)

    def test_memory_by_term(self):
        with open(os.path.join(DOCS_8M, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        elems = config["num_hidden_layers"] * config["num_key_value_heads"] * 2 * config["head_dim"]
        for args, context in ([], 2048), (["--ctx", "100"], 100):
            value = self.ok("show", DOCS_8M, "--json", *args).json
            memory = value["memory"]
            slots = -(-context // 32) * 32  # whole pages
            self.assertEqual(memory["kind"], "modelled")
            self.assertEqual(memory["context"], context)
            self.assertEqual((memory["packed_bytes"], memory["mapped_bytes"]), (0, value["weight_bytes"]))
            self.assertEqual((memory["kv_dtype"], memory["kv_token_bytes"]), ("F16", 2 * elems))
            self.assertEqual(memory["kv_context_bytes"], 2 * elems * slots)
            self.assertEqual(memory["logit_row_bytes"], 4 * config["vocab_size"])
            self.assertGreater(memory["activation_bytes"], 0)
            parts = ("packed_bytes", "mapped_bytes", "kv_context_bytes", "activation_bytes", "logit_row_bytes")
            self.assertEqual(memory["total_bytes"], sum(memory[part] for part in parts))
        self.bad(2, "--ctx is 4096, the model's context is 2048", "show", DOCS_8M, "--ctx", "4096")

    def test_text(self):
        text = self.ok("show", DOCS_8M).text
        for pattern in (
            r"(?m)^architecture +llama$",
            r"(?m)^ +8 layers, width 256, 4 heads over 2 kv heads of 64, mlp 768$",
            r"(?m)^weights +16\.8 MB, 16\.00 bits per weight$",
            r"(?m)^ +F16 +74 +8392960 +16\.8 MB +16\.00$",
            r"(?m)^context +2048 tokens$",
            r"(?m)^vocabulary +8192$",
            r"(?m)^tokenizer +tokenizer\.json, BPE$",
            r"(?m)^chat template +yes: default$",
            r"(?m)^memory \(modelled",
            r"(?m)^ +weights, mapped file +16\.8 MB$",
            r"(?m)^ +KV cache per token, F16 +4\.1 kB$",
        ):
            self.assertRegex(text, pattern)
        self.assertNotIn("embed_tokens", text)
        self.assertIn("KV cache at 1024 tokens, F16", self.ok("show", DOCS_8M, "--ctx", "1K").text)

    def test_tensors(self):
        tensors = tensors_of(os.path.join(DOCS_8M, "model.safetensors"))
        listed = self.ok("show", DOCS_8M, "--tensors", "--json").json["tensors"]
        self.assertEqual({t["name"]: (t["shape"], t["bytes"]) for t in listed}, tensors)
        self.assertRegex(self.ok("show", DOCS_8M, "--tensors").text, r"(?m)^  model\.embed_tokens\.weight +F16 +\[8192, 256\] +4\.2 MB$")

    def test_template(self):
        with open(os.path.join(MODEL, "tokenizer_config.json"), encoding="utf-8") as file:
            source = json.load(file)["chat_template"]
        self.assertEqual(self.ok("show", MODEL, "--template").text.rstrip("\n"), source.rstrip("\n"))
        self.assertEqual(self.ok("show", MODEL, "--template", "--json").json, {"default": source})
        plain = self.copy_model(replace={"tokenizer_config.json": self.edit_json("tokenizer_config.json", chat_template=None)})
        self.assertRegex(self.ok("show", plain).text, r"(?m)^chat template +no$")
        self.bad(1, "has no chat template", "show", plain, "--template")

    def test_without_a_tokenizer(self):
        model = self.copy_model(without=["tokenizer.json"])
        self.assertRegex(self.ok("show", model).text, r"(?m)^tokenizer +none$")
        self.assertIsNone(self.ok("show", model, "--json").json["tokenizer"])

    def test_why_it_cannot_run_names_the_file(self):
        config = self.edit_json("config.json", model_type="novel", architectures=["NovelForCausalLM"])
        model = self.copy_model("novel", replace={"config.json": config})
        value = self.ok("show", model, "--json").json
        self.assertEqual(value["cannot_run"]["code"], "unsupported")
        self.assertRegex(value["cannot_run"]["message"], r"novel/config\.json: .*[Nn]ovel")
        self.assertIsNone(value["config"])
        self.assertIsNone(value["memory"])
        self.assertGreater(value["weight_bytes"], 0)
        self.assertRegex(self.ok("show", model).text, r"(?m)^cannot run +.*novel/config\.json: ")
        missing = self.copy_model("missing", without=["config.json"])
        self.assertIn("missing/config.json", self.ok("show", missing, "--json").json["cannot_run"]["message"])


class GgufFile(Case):
    def show(self, gguf, *args):
        return self.ok("show", self.path("m.gguf", gguf.build()), "--json", *args).json

    def test_types_and_bits(self):
        gguf = tiny_gguf()
        value = self.show(gguf)
        self.assertEqual((value["format"], value["architecture"]), ("GGUF v3", "llama"))
        self.assertEqual((value["tokenizer"], value["chat_templates"]), ("gpt2, splitter gpt-2", ["default"]))
        self.assertEqual(value["config"]["context_length"], 64)
        expected = {}
        for name, (shape, kind) in gguf.tensors.items():
            row = expected.setdefault({0: "F32", 1: "F16", 2: "Q4_0", 8: "Q8_0"}[kind], [0, 0, 0])
            row[0] += 1
            row[1] += shape[0] * (shape[1] if len(shape) > 1 else 1)
            row[2] += gguf.tensor_bytes(name)
        found = {t["type"]: [t["tensors"], t["parameters"], t["bytes"]] for t in value["types"]}
        self.assertEqual(found, expected)
        params = sum(row[1] for row in expected.values())
        size = sum(row[2] for row in expected.values())
        self.assertEqual((value["parameters"], value["weight_bytes"]), (params, size))
        self.assertAlmostEqual(value["bits_per_weight"], 8 * size / params)
        text = self.ok("show", self.path("m.gguf")).text
        self.assertRegex(text, r"(?m)^ +Q4_0 +3 +6144 +3\.5 kB +4\.50$")
        self.assertRegex(text, r"(?m)^ +Q8_0 +4 +3072 +3\.3 kB +8\.50$")
        self.assertIn(f"{8 * size / params:.2f} bits per weight", text)
        self.ok("logits", self.path("m.gguf"), "--tokens", "0,1", "--out", self.path("x.npy"))

    def test_memory_of_packed_weights_and_of_a_cache_in_bytes(self):
        gguf = tiny_gguf()
        # Blocks of 32 rows (docs/formats/packed-weights.md): a group of 32 columns is 64 bytes of scales and the codes.
        packed = 4 * (64 + 32 * 32) + 6 * (64 + 32 * 16)
        unpacked = sum(gguf.tensor_bytes(n) for n, (_, kind) in gguf.tensors.items() if kind in (Gguf.F32, Gguf.F16))
        memory = self.show(gguf, "--kv", "int8")["memory"]
        self.assertEqual((memory["packed_bytes"], memory["mapped_bytes"]), (packed, unpacked))
        # One head of 16, keys and values, each with a binary16 scale.
        self.assertEqual((memory["kv_dtype"], memory["kv_token_bytes"]), ("I8", 2 * (16 + 2)))
        exact = self.show(gguf, "--activations", "f32")
        size = exact["weight_bytes"]
        self.assertEqual((exact["memory"]["packed_bytes"], exact["memory"]["mapped_bytes"]), (0, size))

    def test_a_missing_tensor_is_why_it_cannot_run(self):
        gguf = tiny_gguf()
        del gguf.tensors["blk.0.ffn_up.weight"]
        value = self.show(gguf)
        self.assertRegex(value["cannot_run"]["message"], r"m\.gguf: .*blk\.0\.ffn_up\.weight")
        self.assertIsNone(value["memory"])

    def test_why_it_cannot_run_names_the_file(self):
        gguf = tiny_gguf()
        gguf.pairs["general.architecture"] = "mamba"
        value = self.show(gguf)
        self.assertEqual((value["architecture"], value["cannot_run"]["code"]), ("mamba", "unsupported"))
        self.assertRegex(value["cannot_run"]["message"], r'm\.gguf: .*general\.architecture = "mamba"')

    def test_ids_outside_the_vocabulary(self):
        for key in ("bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id"):
            gguf = tiny_gguf()
            gguf.pairs["tokenizer.ggml." + key] = 8
            path = self.path(key + ".gguf", gguf.build())
            pattern = rf"{key}\.gguf: .*tokenizer\.ggml\.{key}.*\b8\b.*vocabulary of 8 tokens"
            for command in (
                ("run", path, "-p", "ab"),
                ("tokenize", path, "ab"),
                ("logits", path, "--tokens", "1", "--out", self.path("x.npy")),
            ):
                self.bad(3, pattern, *command)
            self.assertRegex(self.ok("show", path, "--json").json["cannot_run"]["message"], key)
            # What converters write for "none".
            gguf.pairs["tokenizer.ggml." + key] = 0xFFFFFFFF
            self.ok("tokenize", self.path("none.gguf", gguf.build()), "ab")

    def test_a_dimension_beyond_63_bits_is_printed_as_it_is(self):
        gguf = tiny_gguf()
        data = gguf.build()
        at = data.index(b"output_norm.weight") + len(b"output_norm.weight") + 4
        for dim in (1 << 63, (1 << 64) - 1, 0):
            path = self.path("dim.gguf", data[:at] + struct.pack("<Q", dim) + data[at + 8 :])
            self.bad(3, rf"dim\.gguf: .*output_norm\.weight: dimension 0 is {dim}, wanted 1 to 9223372036854775807", "show", path)

    def test_tensors_and_odd_names(self):
        gguf = tiny_gguf()
        gguf.tensors["x\x1b[31m"] = ((32,), Gguf.F32)
        text = self.ok("show", self.path("m.gguf", gguf.build()), "--tensors").text
        self.assertNotIn("\x1b", text)
        self.assertRegex(text, r"(?m)^  blk\.0\.ffn_down\.weight +Q4_0 +\[32, 64\] +1\.2 kB$")


class Flags(Case):
    def test_no_flag_without_a_test_here(self):
        common = {"json", "quiet", "log-level", "config", "home", "catalogue"}
        self.assertEqual(flags_of(self, "show") - common, {"tensors", "template", "ctx", "kv", "activations"})

    def test_missing(self):
        self.bad(1, "nosuch", "show", self.path("nosuch"))
        self.bad(1, "nosuch", "show", self.path("nosuch.gguf"))


if __name__ == "__main__":
    main()
