#!/usr/bin/env python3
"""lm-evaluation-harness against `trine serve`: its log-likelihoods are those that the program has of itself.

Usage: lm_eval_test.py TRINE_BINARY [unittest arguments]. Needs requirements.txt. The task is made here, the tokenizer is
the server's: nothing is fetched.
"""

import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", NO_PROXY="*", TOKENIZERS_PARALLELISM="false")
SCRATCH = tempfile.TemporaryDirectory(prefix="trine-lm-eval-")
os.environ["HF_HOME"] = SCRATCH.name

import lm_eval  # noqa: E402
import numpy as np  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "http"))
from serving import LARGE, Server, clean_environment  # noqa: E402

TRINE = ""
QUESTIONS = (
    ("To install a new package, run the command as", (" root", " dinner", " blue sky"), 0),
    ("The file is opened for reading and then it is", (" closed", " eaten", " a mountain of gold"), 0),
    ("def read(self, path):\n    return", (" open(path).read()", " the moon", " 17 elephants in a row"), 0),
    ("Click the button to open the", (" soup of the day", " dialog", " sea"), 1),
    ("The following options are", (" sleeping", " available", " x"), 1),
)
TASK = """task: trine_tiny
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list:
  - metric: acc
metadata:
  version: 1
"""


def run(*args):
    done = subprocess.run([TRINE, *args], capture_output=True, check=True, env=clean_environment(HOME=SCRATCH.name))
    return done.stdout


def ids_of(text):
    return [int(token) for token in run("tokenize", str(LARGE), "--no-bos", text).split()]


def own_score(context, continuation):
    """Log-likelihood of the continuation, and whether every one of its tokens is the likeliest: from `trine logits`."""
    whole = ids_of(context + continuation)
    begin = len(ids_of(context))
    rows = np.load(io.BytesIO(run("logits", str(LARGE), "--tokens", ",".join(map(str, whole)), "--out", "-"))).astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    logprobs = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    score = sum(logprobs[at - 1, whole[at]] for at in range(begin, len(whole)))
    return score, all(logprobs[at - 1].argmax() == whole[at] for at in range(begin, len(whole)))


class LmEval(unittest.TestCase):
    def evaluate(self, server, **more):
        folder = pathlib.Path(SCRATCH.name) / "task"
        folder.mkdir(exist_ok=True)
        data = folder / "questions.jsonl"
        data.write_text("".join(json.dumps({"question": q, "choices": c, "answer": a}) + "\n" for q, c, a in QUESTIONS))
        (folder / "trine_tiny.yaml").write_text(TASK.format(data=data))
        url = f"http://127.0.0.1:{server.port}/v1/completions"
        args = {"model": "docs-8m", "base_url": url, "tokenizer_backend": "remote", "max_retries": 1, **more}
        return lm_eval.simple_evaluate(
            model="local-completions", model_args=args, tasks=["trine_tiny"], log_samples=True, bootstrap_iters=0,
            task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        )

    def test_log_likelihoods_are_the_programs_own(self):
        with Server(TRINE, model=LARGE) as server:
            seen = []
            for more in ({}, {"num_concurrent": 4}, {"batch_size": 3}):
                with self.subTest(**more):
                    got = self.evaluate(server, **more)
                    samples = sorted(got["samples"]["trine_tiny"], key=lambda sample: sample["doc_id"])
                    self.assertEqual(len(samples), len(QUESTIONS))
                    seen.append([resp[0][0] for sample in samples for resp in sample["resps"]])
                    for sample, (question, choices, _) in zip(samples, QUESTIONS):
                        for choice, ((score, greedy),) in zip(choices, sample["resps"]):
                            own, own_greedy = own_score(question, choice)
                            self.assertLess(abs(score - own), 1e-4, (question, choice))
                            self.assertEqual(greedy, own_greedy)
                    self.assertGreaterEqual(got["results"]["trine_tiny"]["acc,none"], 0.6)
            # Batches, company and the prefix cache change nothing.
            self.assertEqual(seen[1:], seen[:1] * 2)


if __name__ == "__main__":
    TRINE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
