#!/usr/bin/env python3
"""Drives `trine serve`: answers as streams: events, disconnects, counters, pings, targets.

Usage: serve_streams_test.py TRINE_BINARY [unittest arguments]. Loopback only. Nothing here asserts how fast something is; waits have
long ends.
"""

import json
import pathlib
import re
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from serve_cases import Shared, start, main  # noqa: E402


class Streams(Shared):
    def test_stream_and_whole_answer_agree(self):
        _, _, whole = self.server.complete(max_tokens=20, seed=1)
        stream = self.server.stream(max_tokens=20, seed=1)
        self.assertEqual(stream.answer.getheader("Content-Type"), "text/event-stream; charset=utf-8")
        events = list(stream.events())
        self.assertEqual(events[-1], "[DONE]")
        pieces = [json.loads(event) for event in events[:-1]]
        text = "".join(choice["text"] for piece in pieces for choice in piece["choices"])
        self.assertEqual(text, whole["choices"][0]["text"])
        self.assertEqual(pieces[-1]["choices"][0]["finish_reason"], "length")

    def test_error_before_the_stream_has_a_status(self):
        status, _, body = self.server.call("POST", "/v1/completions", {"prompt": "a" * 9000, "max_tokens": 10, "stream": True})
        self.assertEqual(status, 400)
        self.assertIn("context", json.loads(body)["error"]["message"])

    def test_bad_words_do_not_appear(self):
        _, _, free = self.server.complete(max_tokens=20, temperature=0)
        word = max(re.findall(r"[A-Za-z]+", free["choices"][0]["text"]), key=len)
        status, _, held = self.server.complete(max_tokens=20, temperature=0, bad_words=[word])
        self.assertEqual(status, 200)
        self.assertNotEqual(held["choices"][0]["text"], free["choices"][0]["text"])
        self.assertNotRegex(held["choices"][0]["text"], rf"\b{word}\b")

    def test_echo_with_logprobs_scores_the_prompt(self):
        prompt = "The engine of a car is in the front, and the engine of a boat is not."
        ids = json.loads(self.server.call("POST", "/tokenize", {"prompt": prompt})[2])["tokens"]
        # As evaluations send it: the last token is drawn and dropped.
        ask = {"max_tokens": 1, "logprobs": 1, "echo": True, "seed": 1234}
        _, _, whole = self.server.complete(prompt=ids, **ask)
        logprobs = whole["choices"][0]["logprobs"]
        values, tops = logprobs["token_logprobs"], logprobs["top_logprobs"]
        self.assertEqual(len(values), len(ids) + 1)
        self.assertEqual((values[0], tops[0]), (None, None))
        for token, value, top in list(zip(logprobs["tokens"], values, tops))[1:]:
            self.assertEqual(top[token], value)
            self.assertLessEqual(value, max(top.values()))
        # Every value is what the model says of that token as its answer to the tokens before.
        for at in (1, len(ids) // 2, len(ids) - 1):
            _, _, one = self.server.complete(prompt=ids[:at], max_tokens=1, logprobs=1)
            best = one["choices"][0]["logprobs"]["token_logprobs"][0]
            self.assertEqual(max(tops[at].values()), best)
        # Again, now that the prefix cache has it; as a text; without a drawn token; streamed.
        self.assertEqual(self.server.complete(prompt=ids, **ask)[2]["choices"], whole["choices"])
        self.assertEqual(self.server.complete(prompt=prompt, **ask)[2]["choices"][0]["logprobs"], logprobs)
        _, _, none = self.server.complete(prompt=ids, **{**ask, "max_tokens": 0})
        self.assertEqual(none["choices"][0]["logprobs"]["token_logprobs"], values[:-1])
        self.assertEqual(none["usage"]["completion_tokens"], 0)
        stream = self.server.stream(prompt=ids, **ask)
        pieces = [json.loads(event)["choices"][0] for event in stream.events() if event != "[DONE]"]
        self.assertEqual(sum((p["logprobs"]["token_logprobs"] for p in pieces), []), values)
        self.assertEqual("".join(p["text"] for p in pieces), whole["choices"][0]["text"])
        # Several prompts, several answers: each has its own.
        _, _, many = self.server.complete(prompt=[ids, ids[:9]], n=2, **ask)
        for choice, size in zip(many["choices"], (len(ids), len(ids), 9, 9)):
            self.assertEqual(choice["logprobs"]["token_logprobs"][:size], values[:size])

    def test_a_scored_prompt_may_fill_the_context(self):
        """Nothing is drawn behind it, so it needs no room for an answer."""
        ask = {"echo": True, "logprobs": 1}
        full = [(i * 37) % 5000 + 3 for i in range(2048)]
        before = self.server.metrics(["trine_generation_tokens_total", "trine_prompt_tokens_total"])
        status, _, body = self.server.complete(prompt=full, max_tokens=0, n=2, **ask)
        self.assertEqual(status, 200, body)
        after = self.server.metrics(["trine_generation_tokens_total", "trine_prompt_tokens_total"])
        self.assertEqual([b - a for a, b in zip(before, after)], [0, 2048])
        values = [choice["logprobs"]["token_logprobs"] for choice in body["choices"]]
        self.assertEqual([len(v) for v in values], [2048, 2048])
        self.assertEqual(values[0], values[1])
        self.assertEqual([c["finish_reason"] for c in body["choices"]], ["length", "length"])
        self.assertEqual(body["usage"]["completion_tokens"], 0)
        _, _, less = self.server.complete(prompt=full[:2047], max_tokens=1, **ask)
        self.assertEqual(less["choices"][0]["logprobs"]["token_logprobs"][:2047], values[0][:2047])
        # Without log-probabilities, streamed, one of several.
        _, _, plain = self.server.complete(prompt=[full, full[:3]], max_tokens=0, echo=True)
        self.assertEqual([c["text"] for c in plain["choices"]][0], body["choices"][0]["text"])
        stream = self.server.stream(prompt=full, max_tokens=0, **ask)
        pieces = [json.loads(event)["choices"][0] for event in stream.events() if event != "[DONE]"]
        self.assertEqual(sum((p["logprobs"]["token_logprobs"] for p in pieces), []), values[0])
        self.assertEqual(pieces[-1]["finish_reason"], "length")
        for more, words in (({"max_tokens": 0}, "prompt has 2049 tokens, the context holds 2048"),
                            ({"max_tokens": 1}, "prompt has 2049 tokens and an answer needs one, the context holds 2048")):
            status, _, body = self.server.complete(prompt=full + [5], **ask, **more)
            self.assertEqual((status, body["error"]["param"]), (400, "prompt"))
            self.assertIn(words, body["error"]["message"])

    def test_unknown_model(self):
        status, _, body = self.server.complete(model="nobody")
        self.assertEqual((status, body["error"]["code"]), (404, "model_not_found"))
        self.assertEqual(self.server.get("/v1/models/nobody")[0], 404)

    def test_disconnect_frees_pages(self):
        before = self.server.metric("trine_requests_running")
        self.assertEqual(before, 0)
        aborted = self.server.metric("trine_request_success_total", finished_reason="abort") or 0
        streams = [self.server.stream(prompt=f"Number {i} is", max_tokens=1900, ignore_eos=True) for i in range(3)]
        for stream in streams:
            next(stream.events())
        self.server.wait_metric("trine_requests_running", lambda value: value == 3)
        self.assertGreater(self.server.metric("trine_kv_cache_usage_ratio"), 0)
        for stream in streams:
            stream.close()
        self.server.wait_metric("trine_requests_running", lambda value: value == 0)
        self.assertEqual(self.server.metric("trine_kv_cache_usage_ratio"), 0)
        pages = [self.server.metric(f"trine_kv_pages{kind}") for kind in ("", "_free", "_evictable")]
        self.assertEqual(pages[0], pages[1] + pages[2])
        self.assertEqual(self.server.metric("trine_request_success_total", finished_reason="abort"), aborted + 3)
        # Far fewer tokens were computed than asked for: the work stopped.
        self.assertLess(self.server.metric("trine_generation_tokens_total"), 3 * 1900)

    def test_disconnect_of_a_whole_answer(self):
        body = json.dumps({"prompt": "The", "max_tokens": 1900, "ignore_eos": True}).encode()
        client = socket.create_connection(("127.0.0.1", self.server.port))
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.server.wait_metric("trine_requests_running", lambda value: value >= 1)
        client.close()
        self.server.wait_metric("trine_requests_running", lambda value: value == 0)

    def test_refusals_of_the_engine_name_the_field_as_the_request_does(self):
        long = "word " * 9000
        talk = lambda text: [{"role": "user", "content": text}]  # noqa: E731
        for path, body, param, words in (
            ("completions", {"prompt": "a", "max_tokens": 5000}, "max_tokens", "5000 max_tokens need"),
            ("completions", {"prompt": "a", "max_completion_tokens": 5000}, "max_completion_tokens", "5000 max_completion_tokens need"),
            ("completions", {"prompt": "a", "n_predict": 5000}, "n_predict", "5000 n_predict need"),
            ("completions", {"prompt": long}, "prompt", "prompt has"),
            ("completions", {"prompt": ["a", long]}, "prompt[1]", "prompt[1] has"),
            ("completions", {"prompt": [99999]}, "prompt", "prompt: token 99999"),
            ("completions", {"prompt": "a", "stop_token_ids": [99999]}, "stop_token_ids", "stop_token_ids: token 99999"),
            ("completions", {"prompt": "a", "logit_bias": {"99999": 1}}, "logit_bias", "logit_bias: token 99999"),
            ("completions", {"prompt": "a", "n": 100}, "n", "n is 100, must be in [1, 64]"),
            ("completions", {"prompt": "a", "grammar": "root ="}, "grammar", "grammar"),
            ("chat/completions", {"messages": talk("a"), "max_tokens": 5000}, "max_tokens", "5000 max_tokens need"),
            ("chat/completions", {"messages": talk("a"), "max_completion_tokens": 5000}, "max_completion_tokens", "5000 max_completion_tokens need"),
            ("chat/completions", {"messages": talk(long)}, "messages", "messages has"),
            ("responses", {"input": "a", "max_output_tokens": 5000}, "max_output_tokens", "5000 max_output_tokens need"),
            ("responses", {"input": long}, "input", "input has"),
        ):
            with self.subTest(path=path, body=str(body)[:80]):
                status, _, text = self.server.call("POST", f"/v1/{path}", body)
                error = json.loads(text)["error"]
                self.assertEqual((status, error["param"]), (400, param), error)
                self.assertIn(words, error["message"])

    def test_counters_move_with_every_step(self):
        """While an answer is on its way, not when it ends; the same under vLLM's names."""
        names = [f"{prefix}{name}_tokens_total" for prefix in ("trine_", "vllm:") for name in ("prompt", "generation")]
        before = self.server.metrics(names)
        stream = self.server.stream(prompt="Four five six", max_tokens=1900, ignore_eos=True, stream_options={"include_usage": True})
        for _ in range(20):
            next(events := stream.events())
        during = [value - b for value, b in zip(self.server.metrics(names), before)]
        usage = json.loads([event for event in events if event != "[DONE]"][-1])["usage"]
        self.assertEqual(during[0], usage["prompt_tokens"])
        self.assertGreaterEqual(during[1], 20)
        self.assertLess(during[1], 1900)  # it goes on
        self.assertEqual(during[2], during[0])
        self.assertGreaterEqual(during[3], during[1])
        after = [value - b for value, b in zip(self.server.metrics(names), before)]
        self.assertEqual(after, [usage["prompt_tokens"], 1900] * 2)

    def test_metrics_count(self):
        names = ("trine_prompt_tokens_total", "trine_generation_tokens_total", "trine_time_to_first_token_seconds_count", "trine_inter_token_latency_seconds_count")
        before = [self.server.metric(name) or 0 for name in names]
        _, _, body = self.server.complete(prompt="One two three", max_tokens=7)
        after = [self.server.metric(name) for name in names]
        usage = body["usage"]
        self.assertEqual([b - a for a, b in zip(before, after)], [usage["prompt_tokens"], 7, 1, 6])


class Pings(Shared):
    args = ("--ping-interval", "0.05", "--max-sequences", "1")

    def test_a_silent_stream_gets_comments(self):
        first = self.server.stream(max_tokens=1900)
        next(first.events())
        second = self.server.stream(max_tokens=1)  # waits for the first
        self.assertIn(": ping", [next(second.lines()) for _ in range(1)] + [line for line, _ in zip(second.lines(), range(3))])
        first.close()
        self.assertEqual(list(second.events())[-1], "[DONE]")
        second.close()


class TargetItl(unittest.TestCase):
    def test_the_banner_tells_and_answers_do_not_depend_on_it(self):
        long = "The engine reads long prompts in chunks beside the answers that run. " * 40
        answers = []
        for args, env, told, text in (
            ([], {}, "auto", "2.5 times a step that reads no prompt"),
            (["--target-itl", "0"], {}, 0, "their tokens: none"),
            ([], {"TRINE_TARGET_ITL": "0.01"}, 0.01, "their tokens: 0.01 ms"),
        ):
            with self.subTest(args=args, env=env), start(*args, **env) as server:
                self.assertEqual(server.started["target_itl_ms"], told)
                self.assertIn(text, server.stderr())
                running = server.stream(max_tokens=200, ignore_eos=True)
                events = running.events()
                next(events)
                beside = server.complete(long, max_tokens=12)[2]["choices"][0]["text"]
                texts = [json.loads(event)["choices"][0]["text"] for event in events if event != "[DONE]"]
                running.close()
                answers.append((beside, "".join(texts)))
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(answers[0], answers[2])


if __name__ == "__main__":
    main()
