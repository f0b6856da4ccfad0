#!/usr/bin/env python3
"""Drives `trine serve`: /v1/embeddings.

Usage: serve_embeddings_test.py TRINE_BINARY [unittest arguments]. Loopback only. Nothing here asserts how fast something is; waits have
long ends.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from serve_cases import Shared, main  # noqa: E402
from serving import SMALL, raw  # noqa: E402


class Embeddings(Shared):
    def embed(self, **body):
        status, _, text = self.server.call("POST", "/v1/embeddings", body)
        return status, json.loads(text)

    def vectors(self, **body):
        status, got = self.embed(**body)
        self.assertEqual(status, 200, got)
        return [one["embedding"] for one in got["data"]]

    def test_every_form_of_input(self):
        texts = ["The engine of a car", "A page"]
        ids = [json.loads(self.server.call("POST", "/tokenize", {"prompt": text})[2])["tokens"] for text in texts]
        both = self.vectors(input=texts)
        self.assertEqual(self.vectors(input=texts[0]), both[:1])
        self.assertEqual(self.vectors(input=ids[1]), both[1:])
        self.assertEqual(self.vectors(input=ids), both)
        self.assertEqual(self.vectors(input=texts), both)  # and again, from the cache
        self.assertNotEqual(both[0], both[1])
        status, got = self.embed(input=texts)
        self.assertEqual(got["usage"], {"prompt_tokens": sum(map(len, ids)), "total_tokens": sum(map(len, ids))})

    def test_pooling_and_length(self):
        text = "The engine of a car"
        last, mean = self.vectors(input=text, pooling="last")[0], self.vectors(input=text, pooling="mean")[0]
        self.assertEqual(self.vectors(input=text)[0], last)
        self.assertNotEqual(last, mean)
        raw = self.vectors(input=text, pooling="mean", normalize=False)[0]
        norm = sum(x * x for x in raw) ** 0.5
        self.assertGreater(abs(norm - 1), 0.01)
        for x, y in zip(raw, mean):
            self.assertAlmostEqual(x / norm, y, places=6)
        self.assertEqual(self.vectors(input=text, dimensions=len(last)), [last])

    def test_the_same_alone_and_in_a_crowd(self):
        texts = [f"Number {i} is a number and has a page of its own" for i in range(12)]
        streams = [self.server.stream(prompt=f"Text {i}", max_tokens=60) for i in range(4)]
        for pooling in ("mean", "last"):
            crowd = self.vectors(input=texts, pooling=pooling)
            for i in (0, 7, 11):
                self.assertEqual(self.vectors(input=texts[i], pooling=pooling), [crowd[i]])
        for stream in streams:
            self.assertEqual(list(stream.events())[-1], "[DONE]")
            stream.close()

    def test_as_many_inputs_as_openai_takes(self):
        got = self.vectors(input=["a"] * 2047 + ["The engine"])
        self.assertEqual(len(got), 2048)
        self.assertEqual(got[2047], self.vectors(input="The engine")[0])
        status, _, text = self.server.call("POST", "/v1/completions", {"prompt": ["a"] * 1500, "max_tokens": 1})
        self.assertEqual((status, len(json.loads(text)["choices"])), (200, 1500))
        for path, field in (("embeddings", "input"), ("completions", "prompt")):
            status, _, text = self.server.call("POST", f"/v1/{path}", {field: ["a"] * 2049})
            self.assertEqual((status, json.loads(text)["error"]["param"]), (400, field))
            self.assertIn("has 2049 prompts, at most 2048", text)

    def test_an_input_may_fill_the_context(self):
        full = [5] * 2048
        for pooling in ("mean", "last"):
            self.assertEqual(len(self.vectors(input=[full, full[:9]], pooling=pooling)), 2)
        status, got = self.embed(input=full + [5])
        self.assertEqual((status, got["error"]["param"]), (400, "input"))
        self.assertIn("input has 2049 tokens, the context holds 2048", got["error"]["message"])

    def test_refusals(self):
        for body, param in (
            ({}, "input"),
            ({"input": []}, "input"),
            ({"input": ""}, "input"),
            ({"input": ["a", ""]}, "input[1]"),
            ({"input": [[1], []]}, "input[1]"),
            ({"input": "a", "dimensions": 7}, "dimensions"),
            ({"input": "a", "pooling": "cls"}, "pooling"),
            ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
            ({"input": "a", "stream": True}, "stream"),
            ({"input": [[99999999]]}, "input"),
            ({"input": ["a", [99999999]]}, "input[1]"),
            ({"input": "word " * 9000}, "input"),
        ):
            with self.subTest(body=str(body)[:60]):
                status, got = self.embed(**body)
                self.assertEqual((status, got["error"]["param"]), (400, param), got)

    def test_metrics_count(self):
        before = self.server.metric("trine_prompt_tokens_total")
        usage = self.embed(input=["One two three", "Four"])[1]["usage"]
        self.assertEqual(self.server.metric("trine_prompt_tokens_total") - before, usage["prompt_tokens"])
        self.assertEqual(self.server.metric("trine_requests_running"), 0)


class MeanPooling(Shared):
    args = ("--pooling", "mean")
    model = SMALL

    def test_the_servers_pooling(self):
        vectors = {}
        for pooling in (None, "mean", "last"):
            body = {"input": "The engine of a car", "pooling": pooling}
            vectors[pooling] = json.loads(self.server.call("POST", "/v1/embeddings", body)[2])["data"][0]["embedding"]
        self.assertEqual(vectors[None], vectors["mean"])
        self.assertNotEqual(vectors[None], vectors["last"])


if __name__ == "__main__":
    main()
