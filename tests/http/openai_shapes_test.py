#!/usr/bin/env python3
"""Bodies and stream events held against the pydantic models of OpenAI's own client.

Usage: openai_shapes_test.py OPENAI_SHAPES_BINARY [unittest arguments]. Needs openai (requirements.txt).
Every body must validate, and may have no field that the models do not know but those listed here.
"""

import base64
import json
import struct
import subprocess
import sys
import unittest

import pydantic
from openai.types import Completion, CreateEmbeddingResponse, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.shared import ErrorObject

SHAPES = ""

# Ours, beside OpenAI's: documented in docs/serving.md or vLLM's names.
EXTRA = {
    "warnings",
    "stop_reason",
    "token_ids",
    "prompt_token_ids",
    "max_model_len",
    "store",  # of a response; OpenAI sends it too
}


class ModelList(pydantic.BaseModel):
    object: str
    data: list[Model]


class Failure(pydantic.BaseModel):
    error: ErrorObject


MODELS = {
    "chat": ChatCompletion,
    "chat_chunk": ChatCompletionChunk,
    "completion": Completion,
    "completion_chunk": Completion,
    "response": Response,
    "response_event": ResponseStreamEvent,
    "embeddings": CreateEmbeddingResponse,
    "models": ModelList,
    "model": Model,
    "error": Failure,
}


def adjusted(kind, body):
    """Where OpenAI's own answers differ from its models."""
    body = json.loads(json.dumps(body))
    if kind.startswith("completion"):
        for choice in body["choices"]:
            if kind == "completion_chunk" and choice["finish_reason"] is None:
                choice["finish_reason"] = "stop"
            # The first token of an echoed prompt has no log-probability.
            logprobs = choice["logprobs"]
            if logprobs and logprobs["token_logprobs"][:1] == [None]:
                logprobs["token_logprobs"][0] = 0.0
                logprobs["top_logprobs"][0] = {}
    return body


def extras(value, path=""):
    """(path, name) of every field that its model does not know."""
    if isinstance(value, pydantic.BaseModel):
        for name in value.model_extra or {}:
            yield path, name
        for name in type(value).model_fields:
            yield from extras(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from extras(each, f"{path}[]")


class Shapes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        run = subprocess.run([SHAPES], capture_output=True, text=True, check=True)
        cls.lines = [json.loads(line) for line in run.stdout.splitlines()]

    def test_every_body_is_one_of_openais(self):
        seen = {}
        for line in self.lines:
            kind, body = line["model"], line["body"]
            seen[kind] = seen.get(kind, 0) + 1
            if kind == "embeddings_base64":
                continue
            with self.subTest(kind=kind, body=body):
                value = pydantic.TypeAdapter(MODELS[kind]).validate_python(adjusted(kind, body))
                self.assertEqual([e for e in extras(value) if e[1] not in EXTRA], [])
        self.assertEqual(set(seen), set(MODELS) | {"embeddings_base64"})
        self.assertGreater(seen["chat_chunk"], 20)
        self.assertGreater(seen["response_event"], 60)

    def test_responses_events_are_numbered_and_complete(self):
        events = [line["body"] for line in self.lines if line["model"] == "response_event"]
        starts = [i for i, e in enumerate(events) if e["type"] == "response.created"]
        for begin, end in zip(starts, starts[1:] + [len(events)]):
            run = events[begin:end]
            self.assertEqual([e["sequence_number"] for e in run], list(range(len(run))))
            self.assertIn(
                run[-1]["type"], ("response.completed", "response.incomplete", "response.failed")
            )

    def test_base64_is_the_same_vector(self):
        by_kind = {line["model"]: line["body"] for line in self.lines}
        for plain, packed in zip(
            by_kind["embeddings"]["data"], by_kind["embeddings_base64"]["data"]
        ):
            raw = base64.b64decode(packed["embedding"])
            floats = list(struct.unpack(f"<{len(raw) // 4}f", raw))
            want = [struct.unpack("<f", struct.pack("<f", x))[0] for x in plain["embedding"]]
            self.assertEqual(floats, want)


if __name__ == "__main__":
    SHAPES = sys.argv.pop(1)
    unittest.main()
