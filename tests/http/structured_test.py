#!/usr/bin/env python3
"""Structured output and forced tool calls through `trine serve`, with every way to ask for them.

Usage: structured_test.py TRINE_BINARY [unittest arguments]. Standard library only.
"""

import json
import os
import pathlib
import re
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from serving import LARGE, EventStream, Server  # noqa: E402

TRINE = ""
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "count": {"type": "integer", "minimum": 3, "maximum": 40}},
    "required": ["ok", "count"],
    "additionalProperties": False,
}
DIGITS = "[0-9]{4}-[a-f]{2}"
CHOICES = ["red", "green", "blue"]
GBNF = 'root ::= "<" [a-c]+ ">"'
ASK = [{"role": "user", "content": "Hello"}]
SAMPLERS = (
    {"temperature": 0},
    {"temperature": 1.5, "seed": 1},
    {"temperature": 1, "top_k": 5, "seed": 2},
    {"temperature": 1, "top_p": 0.3, "seed": 3},
    {"temperature": 1, "min_p": 0.5, "seed": 4},
    {"temperature": 1, "typical_p": 0.2, "seed": 5},
    {"temperature": 0, "repetition_penalty": 1.8, "presence_penalty": 2, "frequency_penalty": 2},
    {"temperature": 0, "logit_bias": {"13": 100, "50": 100}},
)


def tool(name, **properties):
    parameters = {"type": "object", "properties": properties, "required": sorted(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("look", kind={"enum": ["cat", "dog"]}, far={"type": "boolean"}),
    tool("count", upto={"type": "integer", "minimum": 10, "maximum": 99}),
]


def check_schema(case, text):
    value = json.loads(text)
    case.assertEqual(list(value), ["ok", "count"])
    case.assertIsInstance(value["ok"], bool)
    case.assertTrue(3 <= value["count"] <= 40, text)


def check_object(case, text):
    case.assertIsInstance(json.loads(text), dict)


def matches(pattern):
    return lambda case, text: case.assertRegex(text, f"^(?:{pattern})$")


def check_call(case, name, arguments):
    value = json.loads(arguments)
    if name == "look":
        case.assertEqual(sorted(value), ["far", "kind"])
        case.assertIn(value["kind"], ("cat", "dog"))
        case.assertIsInstance(value["far"], bool)
    else:
        case.assertEqual((name, sorted(value)), ("count", ["upto"]))
        case.assertTrue(10 <= value["upto"] <= 99)


# Every field that asks for a grammar, with what its answers look like.
WAYS = (
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}}, check_schema),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, check_schema),
    ({"guided_json": SCHEMA}, check_schema),
    ({"guided_json": json.dumps(SCHEMA)}, check_schema),
    ({"json_schema": SCHEMA}, check_schema),
    ({"structured_outputs": {"json": SCHEMA}}, check_schema),
    ({"guided_regex": DIGITS}, matches(DIGITS)),
    ({"structured_outputs": {"regex": DIGITS}}, matches(DIGITS)),
    ({"guided_choice": CHOICES}, matches("red|green|blue")),
    ({"structured_outputs": {"choice": CHOICES}}, matches("red|green|blue")),
)
# These go on as long as the model likes: greedily they end, or are cut.
OPEN_WAYS = (
    ({"guided_grammar": GBNF}, "<[a-c]*>?"),
    ({"grammar": GBNF}, "<[a-c]*>?"),
    ({"structured_outputs": {"grammar": GBNF}}, "<[a-c]*>?"),
    ({"response_format": {"type": "json_object"}}, r"\{[\s\S]*"),
    ({"structured_outputs": {"json_object": True}}, r"\{[\s\S]*"),
)


class Shared(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(TRINE, model=LARGE)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def post(self, path, body, status=200):
        got, _, text = self.server.call("POST", path, body)
        self.assertEqual(got, status, text)
        return json.loads(text)

    def chat(self, **fields):
        return self.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 200, **fields})

    def streamed(self, path, **fields):
        stream = EventStream(self.server, {"stream": True, **fields}, path=path)
        self.assertEqual(stream.status, 200)
        events = list(stream.events())
        stream.close()
        return [json.loads(event) for event in events if event != "[DONE]"]


class Grammars(Shared):
    def test_every_way_on_every_endpoint(self):
        for fields, check in WAYS:
            with self.subTest(fields=fields):
                choice = self.chat(temperature=0, **fields)["choices"][0]
                check(self, choice["message"]["content"])
                self.assertEqual(choice["finish_reason"], "stop")
                choice = self.server.complete(max_tokens=200, **fields)[2]["choices"][0]
                check(self, choice["text"])
                self.assertEqual(choice["finish_reason"], "stop")
        for fields, pattern in OPEN_WAYS:
            with self.subTest(fields=fields):
                choice = self.server.complete(max_tokens=24, **fields)[2]["choices"][0]
                self.assertRegex(choice["text"], f"^{pattern}$")
                self.assertIn(choice["finish_reason"], ("stop", "length"))

    def test_responses(self):
        for stream in (False, True):
            body = {"input": "Hello", "temperature": 0, "max_output_tokens": 200,
                    "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}}
            if stream:
                got = self.streamed("/v1/responses", **body)[-1]["response"]
            else:
                got = self.post("/v1/responses", body)
            self.assertEqual(got["status"], "completed")
            check_schema(self, got["output"][0]["content"][0]["text"])

    def test_every_sampler_and_several_answers(self):
        for sampler in SAMPLERS:
            with self.subTest(sampler=sampler):
                got = self.chat(n=3, response_format=WAYS[0][0]["response_format"], **sampler)
                self.assertEqual(len(got["choices"]), 3)
                for choice in got["choices"]:
                    check_schema(self, choice["message"]["content"])
                    self.assertEqual(choice["finish_reason"], "stop")

    def test_a_stream_is_the_same_text(self):
        ask = {"messages": ASK, "max_tokens": 200, "temperature": 1, "seed": 7, "n": 2, **WAYS[0][0]}
        whole = [c["message"]["content"] for c in self.post("/v1/chat/completions", ask)["choices"]]
        texts, reasons = ["", ""], [None, None]
        for event in self.streamed("/v1/chat/completions", **ask):
            for choice in event["choices"]:
                texts[choice["index"]] += choice["delta"].get("content") or ""
                reasons[choice["index"]] = choice["finish_reason"] or reasons[choice["index"]]
        self.assertEqual(texts, whole)
        self.assertEqual(reasons, ["stop", "stop"])

    def test_cut_by_max_tokens_is_length(self):
        choice = self.chat(response_format={"type": "json_object"}, max_tokens=1, temperature=0)
        self.assertEqual(choice["choices"][0]["finish_reason"], "length")

    def test_logprobs_are_those_of_the_model(self):
        got = self.server.complete(prompt="The engine", max_tokens=1, logprobs=2, guided_choice=["zebra"])[2]
        free = self.server.complete(prompt="The engine", max_tokens=1, logprobs=2)[2]
        held, best = got["choices"][0]["logprobs"], free["choices"][0]["logprobs"]
        # The same alternatives, and the token that the grammar wanted is unlikely by itself.
        for token, value in best["top_logprobs"][0].items():
            self.assertEqual(held["top_logprobs"][0][token], value)
        self.assertLess(held["token_logprobs"][0], best["token_logprobs"][0])

    def test_the_same_answer_alone_and_beside_others(self):
        ask = {"messages": ASK, "max_tokens": 200, "temperature": 1, "seed": 11, **WAYS[0][0]}
        alone = self.post("/v1/chat/completions", ask)["choices"][0]["message"]["content"]
        got = [None] * 6
        def run(i):
            other = {**ask, "seed": 11 if i % 2 == 0 else i}
            got[i] = self.post("/v1/chat/completions", other)["choices"][0]["message"]["content"]
        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(got))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i, text in enumerate(got):
            check_schema(self, text)
            if i % 2 == 0:
                self.assertEqual(text, alone)

    def test_what_is_no_grammar_is_named(self):
        deep = {"type": "integer"}
        for _ in range(40):
            deep = {"type": "array", "items": deep}
        cases = (
            ({"guided_regex": "a(b"}, "guided_regex", None),
            ({"guided_regex": "(?=a)b"}, "guided_regex", "unsupported"),
            ({"guided_regex": "a{1,20000}"}, "guided_regex", "limit_exceeded"),
            ({"guided_grammar": "root ::= other"}, "guided_grammar", None),
            ({"guided_grammar": "root ::= root \"a\""}, "guided_grammar", None),
            ({"grammar": "x"}, "grammar", None),
            # It compiles, and its first place has more readings than a mask may follow.
            ({"guided_grammar": "root ::= " + " | ".join(f'"{i}"' for i in range(5000))}, "guided_grammar", "limit_exceeded"),
            ({"guided_json": {"type": "nothing"}}, "guided_json", None),
            ({"guided_json": {"not": {}}}, "guided_json", "unsupported"),
            ({"guided_json": json.dumps(deep)}, "guided_json", "limit_exceeded"),
            ({"guided_choice": []}, "guided_choice", None),
            ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"uniqueItems": True}}}}, "response_format.json_schema.schema", "unsupported"),
            ({"structured_outputs": {"regex": "\\b"}}, "structured_outputs.regex", "unsupported"),
            ({"guided_regex": "a", "guided_json": {}}, "guided_regex", None),
        )
        for fields, param, code in cases:
            for stream in (False, True):
                with self.subTest(fields=str(fields)[:80], stream=stream):
                    error = self.post("/v1/completions", {"prompt": "a", "stream": stream, **fields}, status=400)["error"]
                    self.assertEqual((error["param"], error["code"]), (param, code), error)
                    self.assertTrue(error["message"].startswith(param), error)

    def test_a_grammar_that_no_token_fits_ends_with_an_error(self):
        status, _, got = self.server.complete(max_tokens=8, guided_regex="b", bad_words=["b"])
        self.assertEqual((status, got["error"]["code"]), (400, "unsupported"), got)


class ForcedTools(Shared):
    def check(self, message, choice, names=("look", "count")):
        self.assertIsNone(message["content"])
        for call in message["tool_calls"]:
            self.assertIn(call["function"]["name"], names)
            check_call(self, call["function"]["name"], call["function"]["arguments"])
        self.assertEqual(choice["finish_reason"], "tool_calls")

    def test_required_with_every_sampler(self):
        for sampler in SAMPLERS:
            with self.subTest(sampler=sampler):
                for choice in self.chat(tools=TOOLS, tool_choice="required", n=2, **sampler)["choices"]:
                    self.check(choice["message"], choice)

    def test_named(self):
        for name in ("look", "count"):
            choice = self.chat(tools=TOOLS, tool_choice={"type": "function", "function": {"name": name}}, temperature=1, seed=3)["choices"][0]
            self.check(choice["message"], choice, (name,))

    def test_streamed(self):
        for seed in range(4):
            ask = {"messages": ASK, "tools": TOOLS, "tool_choice": "required", "temperature": 1, "seed": seed}
            whole = self.post("/v1/chat/completions", ask)["choices"][0]["message"]["tool_calls"]
            calls, reason = {}, None
            for event in self.streamed("/v1/chat/completions", **ask):
                for choice in event["choices"]:
                    self.assertFalse(choice["delta"].get("content"))
                    reason = choice["finish_reason"] or reason
                    for part in choice["delta"].get("tool_calls", []):
                        call = calls.setdefault(part["index"], {"name": "", "arguments": ""})
                        for key in call:
                            call[key] += part["function"].get(key, "")
            self.assertEqual([calls[i] for i in sorted(calls)], [c["function"] for c in whole])
            self.assertEqual(reason, "tool_calls")

    def test_responses(self):
        flat = [{"type": "function", **t["function"]} for t in TOOLS]
        got = self.post("/v1/responses", {"input": "Hello", "tools": flat, "tool_choice": "required", "temperature": 1, "seed": 5})
        self.assertEqual(got["status"], "completed")
        calls = [item for item in got["output"] if item["type"] == "function_call"]
        self.assertEqual(len(calls), len(got["output"]))
        for call in calls:
            check_call(self, call["name"], call["arguments"])

    def test_references_in_parameters(self):
        parameters = {"type": "object", "properties": {"a": {"$ref": "#/$defs/word"}}, "required": ["a"], "$defs": {"word": {"enum": ["x", "y"]}}}
        tools = [{"type": "function", "function": {"name": "t", "parameters": parameters}}]
        call = self.chat(tools=tools, tool_choice="required", temperature=0)["choices"][0]["message"]["tool_calls"][0]["function"]
        self.assertIn(json.loads(call["arguments"]), ({"a": "x"}, {"a": "y"}))

    def test_parameters_that_are_no_schema_are_named(self):
        bad = [{"type": "function", "function": {"name": "t", "parameters": {"type": "object", "properties": {"a": {"not": {}}}, "required": ["a"]}}}]
        error = self.post("/v1/chat/completions", {"messages": ASK, "tools": bad, "tool_choice": "required"}, status=400)["error"]
        self.assertEqual((error["param"], error["code"]), ("tools", "unsupported"))
        self.assertRegex(error["message"], r"#.*not")

    def test_cut_by_max_tokens_is_no_call(self):
        choice = self.chat(tools=TOOLS, tool_choice="required", temperature=0, max_tokens=2)["choices"][0]
        self.assertEqual(choice["finish_reason"], "length")
        self.assertNotIn("tool_calls", choice["message"])


if __name__ == "__main__":
    TRINE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
