"""bench: what it measures, the shape of its reports, refusals."""

import os
import struct

from harness import MODEL, Case, flags_of, main


def write_big_head(path, vocab, width):
    """A GGUF file of one small layer and Q8_0 zeros, nearly all of it the table that is also the head; returns its bytes."""

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    counts = {"block_count": 1, "context_length": 64, "embedding_length": width, "feed_forward_length": width, "attention.head_count": 4}
    fields = [text("general.architecture") + struct.pack("<I", 8) + text("llama")]
    fields += [text(f"llama.{name}") + struct.pack("<II", 4, value) for name, value in counts.items()]
    fields.append(text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5))
    shapes = {"token_embd": (width, vocab), "output_norm": (width,), "blk.0.attn_norm": (width,), "blk.0.ffn_norm": (width,)}
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        shapes[f"blk.0.{name}"] = (width, width)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(fields)) + b"".join(fields)
    size = 0
    for name, shape in shapes.items():
        f32 = len(shape) == 1
        head += text(f"{name}.weight") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0 if f32 else 8, size)
        size += (shape[0] * 4 if f32 else shape[0] * shape[1] // 32 * 34) + 31 & ~31
    with open(path, "wb") as file:
        file.write(head)
        file.truncate((len(head) + 31 & ~31) + size)
    return size


class Kernels(Case):
    QUICK = ("--shape", "70x256", "--weight-bytes", "1", "--repeat", "1")

    def test_json_report(self):
        out = self.ok("bench", "kernels", "--json", *self.QUICK, "--schemes", "w4g64,q6_k", "--schemes", "w8grow", "--rows", "1,5").json
        self.assertEqual(set(out), {"machine", "threads", "read_gbps", "int8_gops", "rows"})
        self.assertEqual(set(out["machine"]), {"cpu", "isa", "usable_cpus", "memory_bytes", "system", "version"})
        self.assertGreater(out["read_gbps"], 0)
        self.assertGreater(out["int8_gops"], 0)
        self.assertEqual(
            [(row["scheme"], row["group"], row["m"]) for row in out["rows"]],
            [(s, g, m) for s, g in (("w4g64", 64), ("q6_k", 16), ("w8grow", "row")) for m in (1, 5)],
        )
        for row in out["rows"]:
            self.assertEqual(row["shape"], [70, 256])
            for key in ("ms", "gbps", "pct_read", "gops", "pct_int8"):
                self.assertGreater(row[key], 0, key)

    def test_text_report(self):
        text = self.ok("bench", "kernels", *self.QUICK, "--schemes", "w4g128a", "--rows", "3", "--threads", "1").text
        self.assertRegex(text, r"1 threads; read [\d.]+ GB/s, int8 \d+ GOPS \(measured\)")
        self.assertRegex(text, r"w4g128a +128  70x256 +3 ")

    def test_floats_are_multiplied_as_they_are_stored(self):
        names = ["f32", "f16", "bf16", "f8_e4m3"]
        out = self.ok("bench", "kernels", "--json", *self.QUICK, "--schemes", ",".join(names), "--rows", "1,3").json
        self.assertEqual([(row["scheme"], row["group"], row["m"]) for row in out["rows"]], [(name, None, m) for name in names for m in (1, 3)])
        run = self.ok("bench", "kernels", *self.QUICK, "--schemes", "f16", "--rows", "3")
        self.assertRegex(run.text, r"f16 +-  70x256 +3 ")
        if os.path.exists("/sys/devices/system/cpu/cpu0/cache/index2/size"):
            self.assertRegex(run.error, r"--weight-bytes: 0 MB may lie in caches of \d+ MB.* says nothing below")

    def test_every_default_scheme_and_level(self):
        for isa in ("scalar", "avx2"):
            out = self.ok("bench", "kernels", "--json", *self.QUICK, "--rows", "2", "--isa", isa).json
            self.assertEqual(out["machine"]["isa"], isa)
            self.assertEqual(len(out["rows"]), 6)

    def test_errors(self):
        self.bad(2, "no scheme 'w9g64'.*w4.*Q4_K", "bench", "kernels", "--schemes", "w9g64")
        self.bad(2, "no scheme 'w4g48'", "bench", "kernels", "--schemes", "w4g48")
        self.bad(2, "no scheme ''", "bench", "kernels", "--schemes", "w4g64,")
        self.bad(2, "--rows 0: .*1 to 4096", "bench", "kernels", "--rows", "0")
        self.bad(2, "--rows 5000", "bench", "kernels", "--rows", "1,5000")
        self.bad(2, "--rows x", "bench", "kernels", "--rows", "x")
        for shape in ("70", "70x", "x70", "0x5", "5x70000", "5x-1", "axb", "70x32x2"):
            self.bad(2, f"--shape {shape}: .*65536", "bench", "kernels", "--shape", shape)
        self.bad(2, "q4_k needs columns in multiples of 256, not 96", "bench", "kernels", "--schemes", "q4_k", "--shape", "32x96")
        self.bad(4, "cannot allocate", "bench", "kernels", "--weight-bytes", "1048576m", "--repeat", "1", "--schemes", "w8g32")
        self.bad(2, "cannot bench 'speed'", "bench", "speed")
        self.bad(2, "cannot bench 'kernels' with a model", "bench", "kernels", MODEL)
        self.bad(2, "cannot bench 'offline' without a model", "bench", "offline")


class Attention(Case):
    QUICK = ("--depth", "70", "--weight-bytes", "1", "--repeat", "1")

    def test_json_report(self):
        out = self.ok("bench", "attention", "--json", *self.QUICK, "--heads", "4/2x16,1/1x8", "--rows", "1,3").json
        self.assertEqual(set(out), {"machine", "threads", "read_gbps", "rows"})
        self.assertEqual(
            [(row["heads"], row["kv_heads"], row["head_dim"], row["m"], row["kv"]) for row in out["rows"]],
            [(*shape, m, kv) for shape in ((4, 2, 16), (1, 1, 8)) for m in (1, 3) for kv in ("F16", "I8")],
        )
        for row in out["rows"]:
            self.assertEqual(row["depth"], 70)
            for key in ("us", "gbps", "pct_read", "gflops"):
                self.assertGreater(row[key], 0, key)

    def test_text_report_and_one_type(self):
        text = self.ok("bench", "attention", *self.QUICK, "--heads", "6/3x20", "--kv", "bf16", "--threads", "1").text
        self.assertRegex(text, r"1 threads; read [\d.]+ GB/s \(measured\); 70 tokens of context")
        self.assertEqual([line.split()[:3] for line in text.splitlines()[3:]], [["6/3x20", "BF16", m] for m in "159"])

    def test_errors(self):
        for heads in ("32", "32/8", "32/8x", "x", "", "32/5x64", "4/8x64", "0/0x64", "512/8x64", "8/8x1024", "8/8x64x2", "8/-1x64"):
            self.bad(2, f"--heads {heads}: give H/GxD", "bench", "attention", "--heads", heads)
        self.bad(2, "depth", "bench", "attention", "--depth", "0")
        self.bad(2, "cannot bench 'attention' with a model", "bench", "attention", MODEL)


class Offline(Case):
    def test_report(self):
        out = self.ok("bench", "offline", MODEL, "--json", "--repeat", "2").json
        keys = {"machine", "threads", "model", "load_seconds", "first_token_seconds", "peak_resident_bytes", "rows"}
        self.assertEqual(set(out), keys)
        self.assertGreater(out["peak_resident_bytes"], 1000000)
        load, token = out["load_seconds"], out["first_token_seconds"]
        self.assertEqual((len(load["samples"]), len(token["samples"])), (2, 2))
        self.assertTrue(all(t > l for t, l in zip(token["samples"], load["samples"])))
        tests = [row["test"] for row in out["rows"]]
        # The model's context is 512: the deeper tests have no room.
        self.assertEqual(tests, ["pp512", "tg128"] + [f"pass {m}" for m in range(1, 18)] + [f"batch {b}" for b in (1, 2, 4, 8, 16, 32)])
        for row in out["rows"]:
            of_passes = row["test"].startswith("pass")
            self.assertEqual(row["unit"], "ms" if of_passes else "tokens/s")
            self.assertEqual(len(row["samples"]), 8 if of_passes else 2)
            self.assertGreater(min(row["samples"]), 0)
            self.assertAlmostEqual(row["mean"], sum(row["samples"]) / len(row["samples"]))
            self.assertGreaterEqual(row["deviation"], 0)
            self.assertEqual("v" in row, of_passes)
        self.assertEqual(out["rows"][2]["v"], 1)

    def test_chosen_tests(self):
        args = ("bench", "offline", MODEL, "--json", "--repeat", "1")
        rows = self.ok(*args, "--tests", "batch3,pp4@16", "--tests", "tg2,tg2@5", "--tests", "pass4").json["rows"]
        self.assertEqual([row["test"] for row in rows], ["batch 3", "pp4@16", "tg2", "tg2@5", "pass 4"])
        self.assertEqual(self.ok(*args, "--tests", "load").json["rows"], [])
        # 500 and 12 fit, 13 do not.
        rows = self.ok(*args, "--ctx", "512", "--tests", "tg12@500,tg13@500,pp12@500,pp513").json["rows"]
        self.assertEqual([row["test"] for row in rows], ["tg12@500", "pp12@500"])

    def test_wrong_tests(self):
        for name in ("pp", "tg0", "tg-1", "pp9x", "pp5@", "pp5@0", "pass0", "pass513", "pass5@3", "batch513", "speed", ""):
            pattern = f"--tests {name}: there are ppN.*passN.*load"
            self.bad(2, pattern, "bench", "offline", MODEL, "--tests", f"load,{name}")

    def test_a_head_that_is_most_of_the_file_is_not_held_twice(self):
        path = self.path("model.gguf")
        weights = write_big_head(path, 500000, 256)
        out = self.ok("bench", "offline", path, "--json", "--tests", "load").json
        self.assertGreater(out["peak_resident_bytes"], weights)
        if not os.environ.get("TRINE_SANITIZE"):  # a sanitizer has memory of its own
            self.assertLess(out["peak_resident_bytes"], 1.05 * weights + 100e6)

    def test_small_context_leaves_out_what_does_not_fit(self):
        self.bad(4, "--tests: none fits the context of 9 tokens", "bench", "offline", MODEL, "--ctx", "9", "--tests", "load,tg9999")
        run = self.ok("bench", "offline", MODEL, "--repeat", "1", "--ctx", "9")
        self.assertIn("--tests tg128@2048: needs 2176 tokens, the context is 9; left out", run.error)
        text = run.text
        self.assertNotIn("pp512", text)
        self.assertNotIn("tg128", text)
        self.assertRegex(text, r"pass 8 +[\d.]+ ± [\d.]+ ms  v = [\d.]+")
        self.assertNotIn("pass 9", text)
        self.assertRegex(text, r"load +[\d.]+ ± [\d.]+ ms\nfirst token +[\d.]+ ± [\d.]+ ms\n")


class Foreign(Case):
    def test_options_of_other_measurements_are_refused(self):
        own = {
            "kernels": {"schemes": "w4g64", "shape": "70x256"},
            "attention": {"heads": "1/1x8", "depth": "7"},
            "offline": {"tests": "load", "activations": "f32", "ctx": "9", "home": self.tmp},
            "serve": {"num-prompts": "1", "save": self.path("report.json"), "seed": "1", "temperature": "0.5"},
        }
        for what in own:
            for name, value in ((n, v) for other in own if other != what for n, v in own[other].items()):
                model = [MODEL] if what == "offline" else []
                self.bad(2, f"--{name}: bench {what} does not take it", "bench", what, *model, f"--{name}", value)
        self.bad(2, "--kv: bench kernels does not take it", "bench", "kernels", "--kv", "int8")
        self.bad(2, "--rows: bench offline does not take it", "bench", "offline", MODEL, "--rows", "3")


class Flags(Case):
    def test_no_flag_without_a_test_here(self):
        common = {"json", "quiet", "log-level", "config", "home", "catalogue"}
        served = {  # tests/http/bench_serve_test.py
            "base-url", "api-key-file", "endpoint", "num-prompts", "duration", "request-rate", "ramp-shape", "burstiness", "clients",
            "dataset", "dataset-format", "time-scale", "input-len", "output-len", "prefix-len", "prefix-groups", "prompt-ids", "warmup",
            "request-timeout", "goodput", "extra-body", "max-lag", "max-cpu-wait", "save", "seed", "temperature", "ignore-eos",
        }
        tested = {"schemes", "rows", "shape", "weight-bytes", "tests", "repeat", "threads", "ctx", "isa", "heads", "depth"}
        # Their effect is tested with run.
        self.assertEqual(flags_of(self, "bench") - common, tested | served | {"kv", "activations"})


if __name__ == "__main__":
    main()
