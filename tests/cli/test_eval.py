"""eval. Figures are checked against what this file computes itself from `trine logits`."""

import hashlib
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
        self.bad(2, "missing --text or --tasks", "eval", MODEL)
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


class Tasks(Case):
    def tasks(self, *tasks, name="tasks.jsonl"):
        return self.path(name, "".join(json.dumps(task) + "\n" for task in tasks))

    def eval(self, *tasks, args=(), model=MODEL):
        return self.ok("eval", model, "--tasks", self.tasks(*tasks), "--json", "-q", *args).json

    def greedy(self, prompt, count, model=MODEL, **messages):
        args = ("run", model, "--temperature", "0", "-n", str(count), "-q")
        return self.ok(*args, *messages.get("args", ("--raw",)), "-p", prompt).text.removesuffix("\n")

    def test_answers_are_those_of_run(self):
        prompts = ["The page is", "Options come from", "def pages(tokens):\n"]
        said = [self.greedy(prompt, 12).strip() for prompt in prompts]
        tasks = [{"prompt": p, "kind": "exact", "answer": a, "max_tokens": 12} for p, a in zip(prompts, said)]
        chat = self.greedy("Hello", 5, args=()).strip()
        tasks.append(
            {"messages": [{"role": "user", "content": "Hello"}], "kind": "exact", "answer": chat, "max_tokens": 5}
        )
        got = self.eval(*tasks)
        self.assertEqual([task["answer"].strip() for task in got["tasks"]], [*said, chat])
        self.assertEqual([task["score"] for task in got["tasks"]], [1, 1, 1, 1])
        self.assertEqual(got["tasks_summary"]["accuracy"], 1)

    def likelihood(self, prompt, choice):
        """Sum over the choice's tokens, and how many; encoded as one text."""

        def ids(text):
            return self.ok("tokenize", MODEL, text, "--json").json["ids"]

        whole, start = ids(prompt + choice), len(ids(prompt))
        self.assertEqual(whole[:start], ids(prompt))
        out = self.path("choice.npy")
        self.ok("logits", MODEL, "--tokens", ",".join(map(str, whole)), "--out", out)
        _, rows = read_npy(out)
        rows = [log_softmax(memoryview(row).cast("f").tolist()) for row in rows[start - 1 : -1]]
        return math.fsum(row[token] for row, token in zip(rows, whole[start:])), len(whole) - start

    def test_choices_go_by_log_likelihood(self):
        prompt, choices = "Options come from the command", [" line.", " banana", " line and the file"]
        sums = [self.likelihood(prompt, choice) for choice in choices]
        alone = [self.likelihood("", choice)[0] for choice in choices]
        expected = {
            "none": [total for total, _ in sums],
            "tokens": [total / count for total, count in sums],
            "chars": [total / len(choice) for (total, _), choice in zip(sums, choices)],
            "unconditional": [total - other for (total, _), other in zip(sums, alone)],
        }
        tasks = [
            {"prompt": prompt, "kind": "choice", "choices": choices, "answer": 0, "normalize": how} for how in expected
        ]
        for task, values in zip(self.eval(*tasks)["tasks"], expected.values()):
            best = values.index(max(values))
            self.assertEqual((task["answer"], task["score"]), (choices[best], float(best == 0)))
            for got, value in zip(task["choices"], values):
                self.assertAlmostEqual(got, value, delta=1e-6 * abs(value))

    def test_pairs_with_a_reference(self):
        prompts = ["The page is", "Options come from", "The file", "import os", "A function that", "In this case"]
        tasks, outcomes, weights = [], [], [1, 2, 1, 1, 3, 1]
        for i, (prompt, weight) in enumerate(zip(prompts, weights)):
            mine, theirs = (self.greedy(prompt, 8, model=m).strip() for m in (MODEL, OTHER))
            self.assertNotEqual(mine, theirs)
            answer = mine if i < 2 else theirs if i < 5 else "neither"
            tasks.append(
                {"id": f"t{i}", "prompt": prompt, "kind": "exact", "answer": answer, "weight": weight, "max_tokens": 8}
            )
            tasks[-1]["tags"] = ["even"] if i % 2 == 0 else ["odd", "all"]
            outcomes.append("win" if i < 2 else "loss" if i < 5 else "tie")
        page = self.path("report.html")
        got = self.eval(*tasks, args=("--ref", OTHER, "--html", page))
        self.assertEqual([task["outcome"] for task in got["tasks"]], outcomes)
        summary = got["tasks_summary"]
        self.assertEqual((summary["wins"], summary["losses"], summary["ties"]), (2, 3, 1))
        self.assertAlmostEqual(summary["accuracy"], 3 / 9)
        self.assertAlmostEqual(summary["accuracy_ref"], 5 / 9)
        self.assertAlmostEqual(summary["difference"], -2 / 9)
        self.assertEqual(summary["mcnemar_p"], 1)
        low, high = summary["difference_interval"]
        self.assertTrue(-1 <= low < -2 / 9 < high <= 1)
        self.assertEqual({tag["name"]: tag["tasks"] for tag in got["tasks_by_tag"]}, {"even": 3, "odd": 3, "all": 3})
        done = self.ok("eval", MODEL, "--tasks", self.tasks(*tasks), "--ref", OTHER)
        self.assertIn("won, lost, tied   2, 3, 1", done.text)
        self.assertEqual(done.text.count("    reference  "), 5)
        self.assertIn("nothing: 6 tasks are too few", done.text)
        with open(page, encoding="utf-8") as file:
            html = file.read()
        self.assertTrue(html.startswith("<!DOCTYPE html>"))
        self.assertNotIn("http", html)
        self.assertNotIn("<script", html)
        for task in got["tasks"][:5]:
            self.assertIn(task["id"], html)
        moved = self.eval(*tasks, args=("--ref", OTHER, "--seed", "9"))["tasks_summary"]["difference_interval"]
        self.assertNotEqual(moved, [low, high])

    def test_cache_alone(self):
        got = self.eval({"prompt": "The", "kind": "json"}, args=("--kv", "int8"))
        self.assertEqual((got["mode"], got["tasks_summary"]["ties"]), ("kv", 1))
        self.assertEqual(got["tasks_summary"]["failures"]["invalid_json"], 1)

    def test_does_not_depend_on_threads_or_company(self):
        tasks = [{"prompt": f"The page {i}", "kind": "contains", "answer": "the", "max_tokens": 9} for i in range(30)]
        expected = self.eval(*tasks, args=("--threads", "1"))
        self.assertEqual(self.eval(*tasks, args=("--threads", "3")), expected)
        alone = self.eval(tasks[7])["tasks"][0]
        self.assertEqual(alone["answer"], expected["tasks"][7]["answer"])

    def test_labels(self):
        said = self.greedy("The page is", 6).split()[0]
        task = {"prompt": "The page is", "kind": "label", "labels": [said, "qqq"], "answer": "qqq", "max_tokens": 6}
        got = self.eval(task, {**task, "answer": said})
        self.assertEqual(got["confusions"][0]["counts"], [[1, 0, 0], [1, 0, 0]])
        self.assertAlmostEqual(got["confusions"][0]["macro_f1"], (2 / 3 + 0) / 2)

    def test_floors_end_with_status_5(self):
        text, tasks = self.path("text.txt", TEXT), self.tasks({"prompt": "The", "kind": "exact", "answer": "no such"})
        base = ("eval", MODEL, "--text", text, "--ctx", "64", "--tasks", tasks, "--kv", "int8", "-q")
        for floor, code in (
            (("--max-kl", "1"), 0),
            (("--max-kl", "1e-9"), 5),
            (("--max-ppl-delta", "0.5"), 0),
            (("--min-accuracy", "0"), 0),
            (("--min-accuracy", "0.5"), 5),
            (("--max-kl", "1", "--min-accuracy", "0.01"), 5),
        ):
            done = self.trine(*base, *floor)
            self.assertEqual(done.code, code, floor)
            self.assertIn("NOT met" if code else "met", done.text)
        done = self.trine("eval", MODEL, "--text", text, "--ctx", "64", "--ref", OTHER, "--max-ppl-delta", "0.1", "--json")
        self.assertEqual(done.code, 5)
        (floor,) = done.json["floors"]
        self.assertEqual((floor["option"], floor["limit"], floor["met"]), ("max-ppl-delta", 0.1, False))
        self.assertEqual(floor["value"], done.json["ppl_change"])
        self.bad(2, "--max-kl has no effect without --text", "eval", MODEL, "--tasks", tasks, "--max-kl", "1")
        self.bad(2, "--min-accuracy has no effect without --tasks", "eval", MODEL, "--text", text, "--min-accuracy", "1")
        self.bad(2, "--max-kl needs something to compare", "eval", MODEL, "--text", text, "--max-kl", "1")

    def test_warns_where_only_tasks_move(self):
        """Both answers are told by one number that differs, while the laws are nearly the same."""
        text = self.path("text.txt", TEXT)
        tasks = [{"prompt": p, "kind": "exact", "answer": self.greedy(p, 40), "max_tokens": 40} for p in ("The", "A", "In")]
        args = ("eval", MODEL, "--text", text, "--ctx", "64", "--kv", "int8", "--tasks", self.tasks(*tasks), "--json")
        got = self.ok(*args).json
        self.assertLess(abs(got["ppl_change"]), 0.01)
        moved = got["tasks_summary"]["losses"] > 0
        self.assertEqual(len(got["warnings"]), int(moved))

    def test_leaks_are_refused(self):
        asked = " ".join(f"word{i}" for i in range(20))
        tasks = [{"prompt": asked, "kind": "json", "max_tokens": 2}, {"prompt": "Fine", "kind": "json", "max_tokens": 2}]
        calib = self.path("calib.jsonl", json.dumps({"messages": [{"role": "user", "content": "So: " + asked}]}))
        base = ("eval", MODEL, "--tasks", self.tasks(*tasks), "--calib", calib)
        self.bad(2, r"1 of 2 prompts are in the texts of --calib \(lines 1\)", *base)
        got = self.ok(*base, "--allow-leaks", "--json").json
        self.assertEqual([task["leaked"] for task in got["tasks"]], [True, False])
        text = self.path("text.txt", TEXT)
        self.bad(2, "100 % of it is in the texts", "eval", MODEL, "--text", text, "--calib", text)
        got = self.ok("eval", MODEL, "--text", text, "--ctx", "64", "--calib", text, "--allow-leaks", "--json").json
        self.assertEqual(got["leaked_share"], 1)
        got = self.ok("eval", MODEL, "--text", text, "--ctx", "64", "--calib", calib, "--json").json
        self.assertEqual(got["leaked_share"], 0)

    def test_a_model_says_what_it_was_calibrated_on(self):
        text = self.path("text.txt", TEXT)
        record = {"calibration": {"hash": "x", "files": [{"file": "t", "sha256": hashlib.sha256(TEXT.encode()).hexdigest()}]}}
        model = self.copy_model("q", replace={"trine_quantization.json": json.dumps(record)})
        self.bad(2, "the model was calibrated on this file", "eval", model, "--text", text, "--ctx", "64")
        self.ok("eval", model, "--text", text, "--ctx", "64", "--allow-leaks")
        other = self.path("other.txt", "Something else, longer than a few words but not like it at all")
        done = self.ok("eval", model, "--text", self.path("held-out.txt", TEXT[9:]), "--ctx", "64", "--calib", other)
        self.assertIn("none of the files that the model says", done.error)
        broken = self.copy_model("b", replace={"trine_quantization.json": '{"calibration": {"hash": 1}}'})
        self.bad(3, '"hash" is missing', "eval", broken, "--text", text, "--ctx", "64")

    def test_errors_name_line_and_field(self):
        good = {"prompt": "p", "kind": "json", "max_tokens": 1}
        for task, error in (
            ({"prompt": "p", "kind": "exact"}, r'tasks\.jsonl:2: neither "answer"'),
            ({**good, "answr": 1}, r'tasks\.jsonl:2: "answr" is no field'),
            ({**good, "max_tokens": 5000}, r"tasks\.jsonl:2: .*max_tokens"),
            ({**good, "prompt": "word " * 3000}, r"tasks\.jsonl:2: .*2048"),
            ({"prompt": "p", "kind": "regex", "answer": "(a"}, r'tasks\.jsonl:2: "answer": regular expression'),
        ):
            done = self.trine("eval", MODEL, "--tasks", self.tasks(good, task))
            self.assertIn(done.code, (2, 4), done.error)
            self.assertRegex(done.error, error)
            self.assertEqual(done.out, b"")
        path = self.tasks(good)
        self.bad(2, "--prefill and --tasks", "eval", MODEL, "--tasks", path, "--text", path, "--prefill", MODEL)
        self.bad(1, r"no\.jsonl: No such file", "eval", MODEL, "--tasks", self.path("no.jsonl"))
        template = self.copy_model("t", replace={"tokenizer_config.json": self.edit_json("tokenizer_config.json", chat_template=None)})
        chat = self.tasks({"messages": [{"role": "user", "content": "x"}], "kind": "json"})
        self.bad(3, r"tasks\.jsonl:1: .*chat template", "eval", template, "--tasks", chat)


class Flags(Case):
    COMMON = {"json", "quiet", "log-level", "config", "home", "catalogue"}
    MODEL_FLAGS = {"threads", "ctx", "kv", "activations", "isa"}

    def test_no_flag_without_a_test_here(self):
        self.assertEqual(
            flags_of(self, "eval") - self.COMMON,
            {"text", "ref", "ref-kv", "ref-activations", "prefill", "stride", "windows", "greedy-prompts"}
            | {"greedy-tokens", "ref-cache", "ref-cache-type", "seed", "tasks", "calib", "allow-leaks"}
            | {"max-kl", "max-ppl-delta", "min-accuracy", "html"}
            | self.MODEL_FLAGS,
        )


if __name__ == "__main__":
    main()
