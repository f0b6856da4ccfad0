#!/usr/bin/env python3
"""OpenAI's own Python client against `trine serve`.

Usage: openai_client_test.py TRINE_BINARY [unittest arguments]. Needs openai (requirements.txt).
"""

import os
import pathlib
import sys
import typing
import unittest

import openai
import pydantic

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from serving import LARGE, Server  # noqa: E402

TRINE = ""
ASK = [{"role": "user", "content": "Hello"}]


class Pet(pydantic.BaseModel):
    kind: typing.Literal["cat", "dog"]
    legs: typing.Annotated[int, pydantic.Field(ge=1, le=9)]
    friends: typing.Annotated[list[typing.Literal["ant", "bee"]], pydantic.Field(max_length=2)]


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["NO_PROXY"] = "*"
        cls.server = Server(TRINE, model=LARGE)
        cls.server.__enter__()
        cls.client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="none", max_retries=0
        )
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.__exit__(None, None, None)

    def test_completions(self):
        got = self.client.completions.create(
            model=self.model,
            prompt=["The model", "A page"],
            max_tokens=8,
            n=2,
            seed=3,
            logprobs=2,
        )
        self.assertEqual([c.index for c in got.choices], [0, 1, 2, 3])
        self.assertEqual(got.usage.completion_tokens, 32)
        for choice in got.choices:
            self.assertEqual(choice.finish_reason, "length")
            self.assertEqual("".join(choice.logprobs.tokens), choice.text)
            for token, logprob, top in zip(
                choice.logprobs.tokens,
                choice.logprobs.token_logprobs,
                choice.logprobs.top_logprobs,
            ):
                self.assertEqual(top[token], logprob)
            for token, offset in zip(choice.logprobs.tokens, choice.logprobs.text_offset):
                self.assertEqual(choice.text[offset : offset + len(token)], token)

    def test_chat_and_responses_whole_and_streamed(self):
        ask = {"model": self.model, "temperature": 0}
        whole = self.client.chat.completions.create(messages=ASK, max_tokens=12, **ask)
        text = whole.choices[0].message.content
        self.assertTrue(text)
        streamed, usage = "", None
        for chunk in self.client.chat.completions.create(
            messages=ASK,
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
            **ask,
        ):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                streamed += choice.delta.content or ""
        self.assertEqual(streamed, text)
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
        response = self.client.responses.create(input="Hello", max_output_tokens=12, **ask)
        self.assertEqual(response.output_text, text)
        self.assertEqual(response.status, "incomplete")
        events = list(
            self.client.responses.create(input="Hello", max_output_tokens=12, stream=True, **ask)
        )
        deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
        self.assertEqual("".join(deltas), text)
        self.assertEqual(events[-1].response.output_text, text)

    def test_chat_logprobs(self):
        got = self.client.chat.completions.create(
            model=self.model, messages=ASK, max_tokens=4, temperature=0, logprobs=True, top_logprobs=2
        )
        tokens = got.choices[0].logprobs.content
        self.assertEqual(len(tokens), got.usage.completion_tokens)
        for token in tokens:
            self.assertEqual(token.top_logprobs[0].token, token.token)  # greedy
            self.assertEqual(bytes(token.bytes).decode(), token.token)

    def test_embeddings(self):
        texts = ["The engine", "A page of the manual"]
        got = self.client.embeddings.create(model=self.model, input=texts)  # base64 underneath
        plain = self.client.embeddings.create(model=self.model, input=texts, encoding_format="float")
        self.assertEqual([d.index for d in got.data], [0, 1])
        for packed, text in zip(got.data, plain.data):
            self.assertEqual(list(packed.embedding), list(text.embedding))
            self.assertAlmostEqual(sum(x * x for x in text.embedding), 1.0, places=5)
        self.assertEqual(got.usage.total_tokens, got.usage.prompt_tokens)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.embeddings.create(model=self.model, input="a", dimensions=3)
        self.assertEqual(caught.exception.param, "dimensions")

    def test_structured_output(self):
        ask = {"model": self.model, "messages": ASK, "max_tokens": 200, "temperature": 0}
        parsed = self.client.chat.completions.parse(response_format=Pet, n=2, **ask)
        for choice in parsed.choices:
            self.assertIsInstance(choice.message.parsed, Pet)
            self.assertEqual(choice.finish_reason, "stop")
        schema = {"name": "pet", "schema": Pet.model_json_schema()}
        plain = self.client.chat.completions.create(
            response_format={"type": "json_schema", "json_schema": schema}, **ask
        )
        self.assertEqual(
            Pet.model_validate_json(plain.choices[0].message.content), parsed.choices[0].message.parsed
        )
        with self.client.chat.completions.stream(response_format=Pet, **ask) as stream:
            self.assertEqual(
                stream.get_final_completion().choices[0].message.parsed, parsed.choices[0].message.parsed
            )
        response = self.client.responses.parse(
            model=self.model, input="Hello", text_format=Pet, max_output_tokens=200, temperature=0
        )
        self.assertIsInstance(response.output_parsed, Pet)

    def test_forced_tool_calls(self):
        tools = [openai.pydantic_function_tool(Pet, name="adopt")]
        ask = {"model": self.model, "messages": ASK, "tools": tools, "max_tokens": 200}
        named = {"type": "function", "function": {"name": "adopt"}}
        for choice in ("required", named):
            for seed in range(3):
                got = self.client.chat.completions.parse(tool_choice=choice, seed=seed, **ask)
                call = got.choices[0].message.tool_calls[0]
                self.assertEqual(call.function.name, "adopt")
                self.assertIsInstance(call.function.parsed_arguments, Pet)
                self.assertEqual(got.choices[0].finish_reason, "tool_calls")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(
                model=self.model, messages=ASK, extra_body={"guided_regex": "(?=x)"}
            )
        self.assertEqual(caught.exception.param, "guided_regex")

    def test_a_deadline_that_passed_is_not_tried_again(self):
        retrying = self.client.with_options(max_retries=3)
        requests = self.server.metric("trine_requests_expired_total")
        for stream in (False, True):
            with self.assertRaises(openai.APIError) as caught:
                got = retrying.completions.create(
                    model=self.model, prompt="a", max_tokens=1900, stream=stream, extra_body={"timeout_ms": 40, "ignore_eos": True}
                )
                list(got)
            self.assertEqual((caught.exception.code, caught.exception.param), ("deadline_exceeded", "timeout_ms"))
            self.assertEqual(getattr(caught.exception, "status_code", None), None if stream else 504)
        self.assertEqual(self.server.metric("trine_requests_expired_total"), (requests or 0) + 2)

    def test_errors_are_the_clients_own(self):
        create = self.client.chat.completions.create
        for more, param in (
            ({"max_tokens": -1}, "max_tokens"),
            ({"n": 0}, "n"),
            ({"extra_body": {"temprature": 1}}, "temprature"),
            ({"store": True}, "store"),
        ):
            with self.assertRaises(openai.BadRequestError) as caught:
                create(model=self.model, messages=ASK, **more)
            self.assertEqual(caught.exception.param, param)
        with self.assertRaises(openai.NotFoundError) as caught:
            create(model="nope", messages=ASK)
        self.assertEqual(caught.exception.code, "model_not_found")


if __name__ == "__main__":
    TRINE = sys.argv.pop(1)
    unittest.main()
