"""quantize: smaller models that load again, reports, refusals, and going on after an interrupt."""

import os
import re
import signal
import subprocess
import time

from harness import BIN, MODEL, SOURCE, Case, main


class Quantize(Case):
    def setUp(self):
        super().setUp()
        with open(os.path.join(SOURCE, "docs", "serving.md"), encoding="utf-8") as file:
            self.calib = self.path("calib.txt", file.read())

    def calibrated(self):
        return ("--calib", self.calib, "--calib-tokens", "1600")

    def divergence(self, path):
        text = os.path.join(SOURCE, "docs", "numerics.md")
        return self.ok("eval", path, "--ref", MODEL, "--text", text, "--json").json["kl_mean"]

    def test_every_format_is_read_back(self):
        limits = {  # KL in nats: several times what was measured, far below that of a wrong layout
            ("gptq", "--method", "gptq"): 0.2,
            ("awq", "--method", "awq"): 0.3,
            ("compressed-tensors", "--method", "awq+gptq"): 0.2,
            ("compressed-tensors", "--method", "smoothquant"): 0.02,
            ("compressed-tensors", "--method", "fp8"): 0.05,
            ("compressed-tensors", "--bits", "3", "--group", "32"): 0.5,
            ("gguf", "--method", "gptq"): 0.2,
            ("gguf", "--method", "rtn", "--sym", "--bits", "8"): 0.01,
            ("gguf", "--method", "gptq", "--bits", "3", "--group", "64"): 0.5,
        }
        for i, ((form, *args), limit) in enumerate(limits.items()):
            out = self.path("out%d" % i)
            report = self.ok("quantize", MODEL, "--out", out, "--format", form, *args, *self.calibrated(), "--json").json
            self.assertEqual(report["written_bytes"]["codes"], report["predicted_bytes"]["codes"])
            self.assertEqual(len(report["modules"]), 14)
            self.assertLess(self.divergence(out), limit, (form, args))
            self.assertFalse(os.path.exists(out + ".work"))

    def test_calibration_lowers_the_error_that_it_is_for(self):
        report = self.ok("quantize", MODEL, "--out", self.path("out"), *self.calibrated(), "--json").json
        for module in report["modules"]:
            self.assertLess(module["error"], module["rtn_error"], module["module"])

    def test_overrides(self):
        out = self.path("out")
        report = self.ok("quantize", MODEL, "-o", out, "--method", "rtn", "--override", "*.down_proj=8:g32:sym",
                         "--override", "*.layers.0.*=keep", "--json").json
        schemes = {module["module"]: module["scheme"] for module in report["modules"]}
        self.assertEqual(schemes["model.layers.0.mlp.down_proj"], "8-bit g32 sym")
        self.assertEqual(schemes["model.layers.0.mlp.up_proj"], "kept")
        self.assertEqual(schemes["model.layers.1.mlp.up_proj"], "4-bit g128 asym")
        self.divergence(out)

    def test_the_report(self):
        page = self.path("report.html")
        done = self.ok("quantize", MODEL, "-o", self.path("out"), *self.calibrated(), "--html", page)
        self.assertIn("predicted", done.text)
        self.assertIn("model.layers.1.mlp.down_proj", done.text)
        self.assertIn("block 2/2", done.error)
        with open(page, encoding="utf-8") as file:
            html = file.read()
        self.assertIn("<svg", html)
        self.assertNotIn("<script", html)
        self.assertIn("model.layers.1.mlp.down_proj", html)

    def test_refusals(self):
        out = self.path("out")
        for args, text in (
            (("--method", "gptq"), "--calib FILE"),
            (("--method", "smoothquant", "--bits", "4"), "--bits does not go with --method smoothquant"),
            (("--method", "rtn", "--format", "awq", "--bits", "8"), "--format awq has 4 bits only"),
            (("--method", "rtn", "--override", "*=9"), '"9" is none of'),
            (("--method", "rtn", "--override", "up"), "PATTERN=WHAT"),
            (("--method", "rtn", "--format", "gptq", "--head-bits", "8"), "--head-bits 8"),
            (("--method", "gptq", "--calib", self.path("none.txt")), "none.txt"),
            (("--method", "gptq", "--calib", self.path("bad.jsonl", '{"text": "a"}\n{"txt": 1}\n')), "line 2"),
            ((*self.calibrated(), "--calib-mix", "1,2"), "--calib-mix has 2 weights for 1 files"),
        ):
            self.bad(1 if "none.txt" in text else 2, re.escape(text), "quantize", MODEL, "--out", out, *args)
            self.assertFalse(os.path.exists(out))

    def test_a_quantized_source_is_refused_unless_asked_for(self):
        once = self.path("once.gguf")
        self.ok("quantize", MODEL, "-o", once, "--method", "rtn", "--bits", "8", "--sym")
        self.bad(2, "is Q8_0: the model is quantized already", "quantize", once, "-o", self.path("twice.gguf"),
                 "--method", "rtn")
        self.ok("quantize", once, "-o", self.path("twice.gguf"), "--method", "rtn", "--requantize")
        self.assertLess(self.divergence(self.path("twice.gguf")), 0.3)

    def test_a_quantized_checkpoint_is_refused_even_when_asked_for(self):
        once = self.path("once")
        self.ok("quantize", MODEL, "-o", once, "--method", "rtn", "--format", "gptq", "--bits", "4")
        for more in ((), ("--requantize",)):
            self.bad(2, "layer 0: the model is a quantized checkpoint already", "quantize", once, "-o", self.path("twice"),
                     "--method", "rtn", *more)
            self.assertFalse(os.path.exists(self.path("twice")))

    def test_an_interrupt_and_the_same_command_again(self):
        out = self.path("out")
        command = ["quantize", MODEL, "-o", out, "--method", "awq+gptq", *self.calibrated()]
        process = subprocess.Popen([BIN, *command], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        first = os.path.join(out + ".work", "block-0000.safetensors")
        while process.poll() is None and not os.path.exists(first):
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        error = process.communicate()[1].decode()
        if process.returncode == 0:  # it was done before the signal came
            return
        self.assertEqual(process.returncode, 130, error)
        self.assertFalse(os.path.exists(out))
        self.assertGreaterEqual(self.ok(*command, "--json").json["resumed_blocks"], 1)
        self.divergence(out)


if __name__ == "__main__":
    main()
