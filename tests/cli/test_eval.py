"""eval. Figures are checked against what this file computes itself from `trine logits`."""

import json
import math
import os

from harness import MODEL, SOURCE, Case, flags_of, main
from test_logits import read_npy

OTHER = os.path.join(SOURCE, "assets", "models", "docs-8m")
TEXT = """A page of the cache holds the keys and values of some tokens. Pages are counted, and shared where prompts
begin alike. The engine decides which tokens run in the next step, computes them and commits what was drawn.

    def pages(tokens):
        return (tokens + 31) // 32

Options come from the command line, from the environment, from a file and from the model, in this order.
""" * 2


def log_softmax(row):
    top = max(row)
    total = math.fsum(math.exp(x - top) for x in row)
    return [x - top - math.log(total) for x in row]


class Text(Case):
    def setUp(self):
        super().setUp()
        self.text = self.path("text.txt", TEXT)

    def eval(self, *args, model=MODEL):
        return self.ok("eval", model, "--text", self.text, "--json", "-q", *args).json

    def ids(self, text=TEXT):
        return self.ok("tokenize", MODEL, "--no-bos", text, "--json").json["ids"]

    def rows(self, tokens, *args, model=MODEL):
        """Log-probabilities of every row."""
        out = self.path("rows.npy")
        self.ok("logits", model, "--tokens", ",".join(map(str, tokens)), "--out", out, *args)
        (count, width), rows = read_npy(out)
        return [log_softmax(memoryview(row).cast("f").tolist()) for row in rows]

    def windows(self, context, stride=0):
        """(tokens, rows that are scored with their targets): by hand, as docs/eval.md says it."""
        ids = self.ids()
        if stride == 0:
            for first in range(0, len(ids) - context + 1, context - 1):
                read = [0] + ids[first : first + context - 1]
                yield read, [(r, ids[first + r]) for r in range(context // 2, context)]
            return
        scored = 0
        for first in range(0, len(ids), stride):
            read = [0] + ids[first : first + context - 1][: len(ids) - 1 - first]
            yield read, [(r, ids[first + r]) for r in range(len(read)) if first + r >= scored]
            scored = first + len(read)
            if scored >= len(ids):
                return

    def figures(self, context, stride, candidate, reference):
        loss, reference_loss, kl, top1, top5 = [], [], [], [], []
        for tokens, scored in self.windows(context, stride):
            rows, reference_rows = candidate(tokens), reference(tokens)
            for row, target in scored:
                q, p = rows[row], reference_rows[row]
                loss.append(-q[target])
                reference_loss.append(-p[target])
                kl.append(math.fsum(math.exp(a) * (a - b) for a, b in zip(p, q)))
                best = [sorted(range(len(x)), key=lambda i: (-x[i], i))[:5] for x in (p, q)]
                top1.append(best[0][0] == best[1][0])
                top5.append(len(set(best[0]) & set(best[1])) / 5)
        count = len(loss)
        kl.sort()
        return {
            "tokens": count,
            "ppl": math.exp(math.fsum(loss) / count),
            "ppl_ref": math.exp(math.fsum(reference_loss) / count),
            "kl_mean": math.fsum(kl) / count,
            "kl_max": kl[-1],
            "kl_median": (kl[(count - 1) // 2] + kl[count // 2]) / 2,
            "top1": sum(top1) / count,
            "top5": math.fsum(top5) / count,
        }

    def test_figures_are_those_of_the_logits(self):
        for stride, candidate, reference, args in (
            (0, ("--kv", "int8"), ("--kv", "f16"), ("--kv", "int8")),
            (20, ("--kv", "f16"), ("--kv", "f32"), ("--ref-kv", "f32", "--stride", "20")),
        ):
            expected = self.figures(
                48, stride, lambda t: self.rows(t, *candidate), lambda t: self.rows(t, *reference)
            )
            got = self.eval("--ctx", "48", *args)
            self.assertEqual(got["tokens"], expected["tokens"])
            self.assertGreater(got["kl_mean"], 0)
            for key, value in expected.items():
                self.assertAlmostEqual(got[key], value, delta=1e-9 + 1e-6 * abs(value), msg=key)

    def test_another_model_as_reference(self):
        got = self.eval("--ctx", "64", "--windows", "1", "--ref", OTHER)
        expected = self.rows([0] + self.ids()[:63], model=OTHER)
        scored = [-expected[r][self.ids()[r]] for r in range(32, 64)]
        self.assertAlmostEqual(got["ppl_ref"], math.exp(sum(scored) / 32), delta=1e-6 * got["ppl_ref"])
        self.assertEqual((got["mode"], got["tokens"]), ("weights", 32))
        self.assertGreater(got["kl_mean"], 0.1)
        self.assertEqual(self.eval("--ctx", "64", "--kv", "int8", "--ref", OTHER)["mode"], "weights+kv")

    def test_a_model_is_its_own_reference(self):
        got = self.eval("--ctx", "64", "--ref", MODEL)
        self.assertEqual((got["kl_max"], got["top1"], got["top5"], got["ppl_change"]), (0, 1, 1, 0))
        self.assertEqual((got["mode"], got["greedy_len"]), ("none", 32))
        alone = self.eval("--ctx", "64")
        self.assertEqual(alone["ppl"], got["ppl"])
        self.assertNotIn("kl_mean", alone)

    def test_greedy_agreement_is_that_of_generation(self):
        got = self.eval("--ctx", "64", "--ref", OTHER, "--greedy-prompts", "2", "--greedy-tokens", "8")
        self.assertEqual(got["greedy"]["tokens"], 8)
        windows = [tokens for tokens, _ in self.windows(64)]
        for same, window in zip(got["greedy"]["same_tokens"], (windows[0], windows[len(windows) // 2])):
            tokens, count = window[:32], 0
            while count < 8:
                mine, theirs = (self.rows(tokens, "--positions", "last", model=m)[0] for m in (MODEL, OTHER))
                best = theirs.index(max(theirs))
                if mine.index(max(mine)) != best:
                    break
                tokens, count = tokens + [best], count + 1
            self.assertEqual(same, count)
        self.assertNotIn("greedy_len", self.eval("--ctx", "64", "--ref", OTHER, "--greedy-prompts", "0"))

    def test_results_do_not_depend_on_threads_or_instruction_set(self):
        args = ("--ctx", "64", "--kv", "int8")
        expected = self.eval(*args)
        for more in (("--threads", "1"), ("--threads", "3"), ("--isa", "scalar")):
            self.assertEqual(self.eval(*args, *more), expected)

    def test_seed_moves_intervals_only(self):
        one, two = (self.eval("--ctx", "32", "--kv", "int8", "--seed", seed) for seed in ("1", "2"))
        self.assertNotEqual(one["kl_mean_interval"], two["kl_mean_interval"])
        self.assertEqual(one["kl_mean"], two["kl_mean"])
        low, high = one["kl_mean_interval"]
        self.assertTrue(low < one["kl_mean"] < high)

    def test_documents_of_jsonl_are_joined(self):
        lines = "".join(json.dumps({"text": part}) + "\n\n" for part in (TEXT[:300], TEXT[300:]))
        got = self.ok("eval", MODEL, "--text", self.path("t.jsonl", lines), "--ctx", "32", "--json", "-q").json
        self.assertIn("documents=2", got["protocol"])
        chat = json.dumps({"messages": [{"role": "user", "content": TEXT}]})
        got = self.ok("eval", MODEL, "--text", self.path("c.jsonl", chat), "--ctx", "32", "--json", "-q").json
        self.assertIn("documents=1", got["protocol"])

    def test_protocol_says_what_was_scored(self):
        protocol = self.eval("--ctx", "64", "--windows", "2", "--kv", "bf16", "--ref-activations", "f32")["protocol"]
        for part in (
            "context=64 stride=none scored=second-half bos=yes tokens=64 windows=2 documents=1 text=sha256:",
            "model: kv=bf16 activations=int8",
            "reference: kv=f16 activations=f32",
        ):
            self.assertIn(part, protocol)
        self.assertIn("stride=16 scored=new-tokens", self.eval("--ctx", "64", "--stride", "16")["protocol"])

    def test_report_for_people(self):
        done = self.ok("eval", MODEL, "--text", self.text, "--ctx", "64", "--kv", "int8")
        for line in ("PPL ", "KL mean ", "KL p99.9 ", "same top-1 ", "top-5 overlap ", "greedy agreement ", "protocol "):
            self.assertRegex(done.text, f"(?m)^{line}")
        self.assertIn("windows of 64 tokens", done.error)

    def test_mixed_pair(self):
        """One model reads the first half, the other goes on with its keys and values."""
        same = self.eval("--ctx", "64", "--prefill", MODEL)
        self.assertEqual((same["kl_max"], same["mode"]), (0, "prefill"))
        # A copy with another value projection writes other values.
        with open(os.path.join(MODEL, "model.safetensors"), "rb") as file:
            data = bytearray(file.read())
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        begin, end = header["model.layers.1.self_attn.v_proj.weight"]["data_offsets"]
        for at in range(8 + length + begin + 1, 8 + length + end, 2):
            data[at] ^= 0x80  # signs of the halves
        other = self.copy_model("other", replace={"model.safetensors": bytes(data)})
        mixed = self.eval("--ctx", "64", "--prefill", other)
        self.assertGreater(mixed["kl_mean"], 0.001)
        alone = self.eval("--ctx", "64", "--ref", other)
        self.assertLess(mixed["kl_mean"], alone["kl_mean"])
        self.assertEqual(mixed["ppl_ref"], self.eval("--ctx", "64")["ppl"])
        self.bad(2, "--prefill: its number of layers is 8", "eval", MODEL, "--text", self.text, "--prefill", OTHER)
        self.bad(2, "leave --stride out", "eval", MODEL, "--text", self.text, "--prefill", other, "--stride", "8")

    def test_cached_reference(self):
        cache, args = self.path("ref"), ("--ctx", "64", "--windows", "2", "--ref", OTHER)
        expected = self.eval(*args)
        self.assertEqual(self.eval(*args, "--ref-cache", cache), expected)
        stamp = os.stat(cache)
        self.assertEqual(stamp.st_size % 64, 0)
        self.assertEqual(self.eval(*args, "--ref-cache", cache), expected)
        self.assertEqual(os.stat(cache), stamp)
        half = self.path("half")
        got = self.eval(*args, "--ref-cache", half, "--ref-cache-type", "f16")
        self.assertLess(os.stat(half).st_size, stamp.st_size * 0.51 + 4096)
        self.assertNotEqual(got["kl_mean"], expected["kl_mean"])
        self.assertAlmostEqual(got["kl_mean"], expected["kl_mean"], delta=1e-3)
        # It serves the model, the text and the protocol it was made for.
        base = ("eval", MODEL, "--text", self.text, "--ref-cache", cache)
        for what, more in (
            (r"reference model \(SHA-256\)", ("--ctx", "64", "--windows", "2", "--ref", MODEL)),
            ("protocol", ("--ctx", "32", "--windows", "4", "--ref", OTHER)),
            ("setting of the reference: kv=f16", (*args, "--ref-kv", "f32")),
            ("choice of continued prompts", (*args, "--greedy-tokens", "3")),
            ("type: f32, not f16", (*args, "--ref-cache-type", "f16")),
        ):
            self.bad(2, f"--ref-cache .*another {what}", *base, *more)
        other = self.path("other.txt", TEXT[1:])
        self.bad(2, r"another text \(SHA-256", "eval", MODEL, "--text", other, "--ref-cache", cache, *args)
        with open(cache, "rb") as file:
            data = file.read()
        for broken, why in ((data[:-4], "truncated"), (b"x" + data[1:], "not a file of reference"), (b"", "magic")):
            self.bad(3, why, "eval", MODEL, "--text", self.text, "--ref-cache", self.path("broken", broken), *args)

    def test_errors(self):
        text = ("eval", MODEL, "--text", self.text)
        self.bad(2, "missing --text", "eval", MODEL)
        self.bad(2, "the text has 2 tokens", "eval", MODEL, "--text", self.path("a.txt", "Hi"))
        self.bad(2, "the text has no tokens", "eval", MODEL, "--text", self.path("b.txt", ""))
        self.bad(2, "a window of 2000 tokens needs", *text, "--ctx", "2000")
        self.bad(2, "--stride 64 is longer than the 63 tokens", *text, "--ctx", "64", "--stride", "64")
        self.bad(2, r"a\.jsonl:2: \"text\" is number", "eval", MODEL, "--text", self.path("a.jsonl", '{"text":"a"}\n{"text":1}'))
        self.bad(2, r"c\.jsonl:1: .*\"text\" or \"messages\"", "eval", MODEL, "--text", self.path("c.jsonl", "{}"))
        for option in ("--greedy-prompts", "--greedy-tokens"):
            self.bad(2, f"{option} needs something to compare with", *text, option, "4")
        self.bad(2, "--ref-cache needs something", *text, "--ref-cache", "x")
        self.bad(2, "--ref-cache-type has no effect without --ref-cache", *text, "--ref-cache-type", "f16")
        tokenizer = self.edit_json("tokenizer.json")
        self.assertIn("<|im_start|>", tokenizer)
        other = self.copy_model("other", replace={"tokenizer.json": tokenizer.replace("im_start", "in_start")})
        error = r"other: token 1 is '<\|in_start\|>', the model's is '<\|im_start\|>'; .*vocabularies"
        self.bad(2, "--ref .*" + error, *text, "--ref", other)
        self.bad(2, "--prefill .*" + error, *text, "--prefill", other)


class Flags(Case):
    COMMON = {"json", "quiet", "log-level", "config", "home", "catalogue"}
    MODEL_FLAGS = {"threads", "ctx", "kv", "activations", "isa"}

    def test_no_flag_without_a_test_here(self):
        self.assertEqual(
            flags_of(self, "eval") - self.COMMON,
            {"text", "ref", "ref-kv", "ref-activations", "prefill", "stride", "windows", "greedy-prompts"}
            | {"greedy-tokens", "ref-cache", "ref-cache-type", "seed"}
            | self.MODEL_FLAGS,
        )


if __name__ == "__main__":
    main()
