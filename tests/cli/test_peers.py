"""The runner of bench/peers against the real trine and a stand-in for llama.cpp: what it runs, pairs and reports."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
from unittest import mock

from harness import BIN, SOURCE, Case, main

GENERATOR = os.environ["TRINE_SYNTHETIC_GGUF"]

# Answers in the form of llama-bench and llama-batched-bench: 50 tokens/s a token of a pass, 7 for decode, 3 a sequence.
# AMX is twice as fast in passes and half as fast in decode.
STAND_IN = """#!{python} -B
import json, os, sys
folder, program = os.path.split(os.path.abspath(sys.argv[0]))
args = sys.argv[1:]
with open(os.path.join(folder, "..", "calls"), "a") as calls:
    calls.write(json.dumps([os.path.basename(folder), program, args, sorted(os.sched_getaffinity(0))]) + "\\n")
value = dict(zip(args[::2], args[1::2]))
amx = folder.endswith("amx")
if program == "llama-batched-bench":
    print("warning: a line that is no result")
    for pl in map(int, value["-npl"].split(",")):
        print(json.dumps({{"pl": pl, "speed_tg": 3.0 * pl}}))
else:
    rows = []
    for p in map(int, value["-p"].split(",")):
        rate = 50.0 * p * (2 if amx else 1) if p else (3.5 if amx else 7.0)
        rows.append({{"n_prompt": p, "avg_ts": rate, "samples_ts": [rate], "build_commit": "abc"}})
    print(json.dumps(rows))
"""


def load_runner():
    spec = importlib.util.spec_from_file_location("peers_run", os.path.join(SOURCE, "bench/peers/run.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Peers(Case):
    def setUp(self):
        super().setUp()
        self.runner = load_runner()
        self.peers = pathlib.Path(self.tmp, "peers")
        for variant in ("plain", "amx"):
            (self.peers / variant).mkdir(parents=True)
            for program in ("llama-bench", "llama-batched-bench"):
                path = self.peers / variant / program
                path.write_text(STAND_IN.format(python=sys.executable))
                path.chmod(0o755)
        (self.peers / "stamp").write_text("x")
        (self.peers / "version").write_text("0.0\n")
        self.model = self.path("tiny.gguf")
        subprocess.run([GENERATOR, "tiny", "q4_0", self.model], check=True)

    def run_it(self, *args):
        out = self.path("report.json")
        argv = ["run.py", "--models", self.model, "--threads", "1", "--out", out, *args]
        text = io.StringIO()
        with mock.patch.multiple(self.runner, TRINE=pathlib.Path(BIN), GENERATOR=pathlib.Path(GENERATOR), PEERS=self.peers), \
                mock.patch.object(self.runner, "limits", lambda options: {"read_gbps": 1.0, "int8_gops": 1.0}), \
                mock.patch.object(sys, "argv", argv), mock.patch.dict(os.environ, self.env, clear=True), \
                contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(self.runner.main(), 0)
        with open(out, encoding="utf-8") as file:
            report = json.load(file)
        calls = [json.loads(line) for line in (self.peers / "calls").read_text().splitlines()]
        return report, {row["row"]: row for row in report["results"][0]["rows"]}, text.getvalue(), calls

    def test_every_test(self):
        report, rows, text, calls = self.run_it("--rounds", "2")
        names = ["load, first token", "peak memory, first token", "pp512", "peak memory, pp512", "tg128", "tg128@2048", "tg128@8192"]
        names += [f"pass {m}" for m in range(1, 18)] + [f"batch {b}" for b in (1, 2, 4, 8, 16, 32)]
        self.assertEqual(list(rows), names)
        for name, row in rows.items():
            self.assertEqual({engine: len(values) for engine, values in row["values"].items()}, {"trine": 2, "plain": 2, "amx": 2})
            self.assertTrue(all(value > 0 for values in row["values"].values() for value in values), name)
            self.assertIn(f"\n{name} ", text)
        # The better variant, row by row: more tokens/s, fewer milliseconds.
        self.assertEqual({name: rows[name]["best_peer"] for name in ("pp512", "tg128", "pass 5")},
                         {"pp512": "amx", "tg128": "plain", "pass 5": "amx"})
        self.assertEqual(rows["pass 5"]["medians"]["amx"], 10.0)
        self.assertEqual(rows["batch 8"]["medians"]["plain"], 24.0)
        # The ratio says how many times better Trine was.
        for name, lower in (("tg128", False), ("pass 5", True)):
            row = rows[name]
            pairs = zip(row["values"]["trine"], row["values"][row["best_peer"]])
            self.assertEqual(row["ratios"], [peer / trine if lower else trine / peer for trine, peer in pairs])
            self.assertEqual(row["ratio"], sum(row["ratios"]) / 2)
        self.assertEqual(report["peer"], {"name": "llama.cpp", "package": "llama-cpp-python 0.0", "variants": ["plain", "amx"], "build": "abc"})
        self.assertEqual(report["results"][0]["file"]["file_bytes"], os.path.getsize(self.model))
        # Every other round backwards, one CPU as one thread has, the same cache for all batches.
        self.assertEqual([call[0] for call in calls[:4]], ["plain", "amx", "amx", "plain"])
        self.assertEqual({tuple(call[3]) for call in calls}, {tuple(report["pinned_to"])})
        self.assertEqual(len(report["pinned_to"]), 1)
        decodes = [call[2][call[2].index("-d") + 1] for call in calls if "-d" in call[2]]
        self.assertEqual(decodes, ["0"] * 4 + ["2048"] * 4 + ["8192"] * 4)

    def test_quick_and_choice(self):
        _, rows, _, calls = self.run_it("--quick", "--peer", "plain", "--tests", "rows,decode@16380,batch")
        self.assertEqual(list(rows), ["pass 1", "pass 5", "pass 9", "pass 17", "tg128@16256", "batch 1", "batch 8"])
        self.assertEqual({call[0] for call in calls}, {"plain"})

    def test_a_peer_that_fails_is_told(self):
        (self.peers / "plain" / "llama-bench").write_text("#!/bin/sh\necho broken >&2\nexit 7\n")
        with self.assertRaises(SystemExit) as caught:
            self.run_it("--tests", "load")
        self.assertRegex(str(caught.exception), r"(?s)error: .*llama-bench .*-p 1 .* ended with 7\nbroken")

    def test_refusals(self):
        for args, pattern in (
            (("--models", "13b-q4_0"), "--models 13b-q4_0: give smollm2-135m"),
            (("--tests", "speed"), "--tests speed: there are load, prefill"),
            (("--tests", "decode@0"), "--tests decode@0"),
            (("--threads", "100000"), "--threads 100000: 1 to "),
            (("--rounds", "-1"), "--rounds -1"),
            (("--peer", "gpu"), "--peer gpu: there are all, plain, amx"),
        ):
            with self.assertRaises(SystemExit) as caught:
                self.run_it(*args)
            self.assertRegex(str(caught.exception), "^error: " + pattern)

    def test_disturbed_rows_are_marked(self):
        row = self.runner.Row("decode", "tg128", "tokens/s", False)
        for engine, value in (("trine", 4.0), ("plain", 2.0)):
            row.add(engine, value, 0.04)
        self.assertFalse(row.disturbed())
        row.add("trine", 4.0, 0.5)
        row.add("plain", 1.0, 0.5)
        self.assertTrue(row.disturbed())
        self.assertEqual(row.as_json()["ratio"], 3.0)


if __name__ == "__main__":
    main()
