#!/usr/bin/env python3
"""langchain-openai against `trine serve`: answers, streams, tools, structured output, embeddings.

Usage: langchain_test.py TRINE_BINARY [unittest arguments]. Needs requirements.txt; loopback only.
"""

import os
import pathlib
import sys
import typing
import unittest

os.environ.update(NO_PROXY="*", LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")

import pydantic  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "http"))
from serving import LARGE, Server  # noqa: E402

TRINE = ""


class Pet(pydantic.BaseModel):
    """A pet."""

    kind: typing.Literal["cat", "dog"]
    legs: typing.Annotated[int, pydantic.Field(ge=1, le=9)]


@tool
def count(upto: typing.Literal["ten", "twenty"], loud: bool) -> str:
    """Counts."""
    return f"{upto} {loud}"


class LangChain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(TRINE, model=LARGE)
        cls.to = {"base_url": f"http://127.0.0.1:{cls.server.port}/v1", "api_key": "none", "model": "docs-8m", "max_retries": 0}
        cls.chat = ChatOpenAI(temperature=0, max_tokens=200, **cls.to)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def test_invoke_and_stream(self):
        short = ChatOpenAI(temperature=0, max_tokens=12, stream_usage=True, **self.to)
        talk = [SystemMessage("Be short."), HumanMessage("Hello"), AIMessage("Hi."), HumanMessage("How are you?")]
        whole = short.invoke(talk)
        self.assertTrue(whole.content)
        self.assertEqual(whole.usage_metadata["output_tokens"], 12)
        self.assertEqual(whole.response_metadata["finish_reason"], "length")
        chunks = list(short.stream(talk))
        self.assertGreater(len(chunks), 3)
        self.assertEqual("".join(chunk.content for chunk in chunks), whole.content)
        self.assertEqual(sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata), 12)
        self.assertEqual([one.content for one in short.batch([talk] * 3)], [whole.content] * 3)

    def test_logprobs(self):
        got = ChatOpenAI(temperature=0, max_tokens=3, **self.to).bind(logprobs=True, top_logprobs=2).invoke("Hello")
        self.assertEqual(len(got.response_metadata["logprobs"]["content"]), 3)

    def test_completion(self):
        llm = OpenAI(temperature=0, max_tokens=8, **self.to)
        text = llm.invoke("The engine")
        self.assertTrue(text)
        self.assertEqual("".join(llm.stream("The engine")), text)

    def test_tools(self):
        bound = self.chat.bind_tools([count], tool_choice="required")
        got = bound.invoke("Count.")
        self.assertEqual([call["name"] for call in got.tool_calls], ["count"])
        call = got.tool_calls[0]
        result = count.invoke(call["args"])  # pydantic checks them
        streamed = None
        for chunk in bound.stream("Count."):
            streamed = chunk if streamed is None else streamed + chunk
        self.assertEqual([c["args"] for c in streamed.tool_calls], [call["args"]])
        # The loop goes on with the result.
        again = self.chat.bind_tools([count]).invoke([HumanMessage("Count."), got, ToolMessage(result, tool_call_id=call["id"])])
        self.assertIsInstance(again, AIMessage)
        self.assertEqual(self.chat.bind_tools([count], tool_choice="count").invoke("Count.").tool_calls[0]["name"], "count")

    def test_structured_output(self):
        for method in ("json_schema", "function_calling"):
            with self.subTest(method=method):
                self.assertIsInstance(self.chat.with_structured_output(Pet, method=method).invoke("A pet."), Pet)
        loose = self.chat.with_structured_output(None, method="json_mode", include_raw=True).invoke("A pet.")
        self.assertTrue(loose["raw"].content.startswith("{"))

    def test_embeddings(self):
        vectors = OpenAIEmbeddings(check_embedding_ctx_length=False, **self.to)
        both = vectors.embed_documents(["A cat", "A dog"])
        self.assertEqual(len(both), 2)
        self.assertEqual(vectors.embed_query("A dog"), both[1])


if __name__ == "__main__":
    TRINE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
