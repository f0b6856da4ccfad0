#!/usr/bin/env python3
"""Drives `trine serve`: models: several, load, unload, keep-alive, budget, their defaults, drain.

Usage: serve_models_test.py TRINE_BINARY [unittest arguments]. Loopback only. Nothing here asserts how fast something is; waits have
long ends.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from serve_cases import ADMIN_KEY, bearer, start, trine, main  # noqa: E402
from serving import LARGE, SMALL, clean_environment  # noqa: E402


class GenerationConfig(unittest.TestCase):
    def model(self, folder, config):
        """docs-1m with another generation_config.json."""
        model = pathlib.Path(folder) / "model"
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(SMALL, model)
        (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2], **config}))
        return model

    def serve(self, folder, config, *args):
        return start(*args, model=self.model(folder, config))

    def answer(self, server, path="/v1/completions", **fields):
        body = {"prompt": "The engine"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "hi"}]}
        status, _, text = server.call("POST", path, {**body, **fields})
        self.assertEqual(status, 200, text)
        choice = json.loads(text)["choices"][0]
        return choice.get("text") or choice["message"]["content"], json.loads(text)["usage"]["completion_tokens"]

    def test_defaults_apply_where_a_request_says_nothing(self):
        long = {"max_tokens": 40, "ignore_eos": True}
        with tempfile.TemporaryDirectory() as folder:
            with self.serve(folder, {"temperature": 0.0, "max_new_tokens": 7}) as server:
                self.assertIn("temperature 0, max_new_tokens 7 (generation_config.json)", server.stderr())
                self.assertEqual(server.started["models"][0]["sampling_defaults"], "temperature 0, max_new_tokens 7 (generation_config.json)")
                greedy = self.answer(server, temperature=0, **long)
                self.assertEqual(self.answer(server, seed=5, **long), greedy)
                self.assertNotEqual(self.answer(server, seed=5, temperature=1, **long), greedy)
                for path in ("/v1/completions", "/v1/chat/completions"):
                    self.assertEqual(self.answer(server, path, ignore_eos=True)[1], 7)
                self.assertEqual(self.answer(server, max_tokens=9, ignore_eos=True)[1], 9)
                body = json.loads(server.call("POST", "/v1/responses", {"input": "hi"})[2])
                self.assertEqual(body["temperature"], 0)
            with self.serve(folder, {"temperature": 0.0, "max_new_tokens": 7}, "--generation-config", "none") as server:
                self.assertIn("no defaults of the model", server.stderr())
                self.assertNotEqual(self.answer(server, seed=5, **long), greedy)
                self.assertEqual(self.answer(server, ignore_eos=True)[1], 16)
            for config in ({"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}):
                with self.subTest(config=config), self.serve(folder, config) as server:
                    self.assertEqual(self.answer(server, seed=5, **long), greedy)
            with self.serve(folder, {"temperature": 0, "repetition_penalty": 50.0, "top_k": -1}) as server:
                self.assertNotEqual(self.answer(server, **long), greedy)
                self.assertEqual(self.answer(server, repetition_penalty=1, **long), greedy)

    def test_the_default_length_yields_to_the_context(self):
        with tempfile.TemporaryDirectory() as folder, self.serve(folder, {"max_new_tokens": 5000}) as server:
            ids = [5] * 2040
            self.assertEqual(self.answer(server, prompt=ids, ignore_eos=True)[1], 8)
            status, _, text = server.call("POST", "/v1/completions", {"prompt": ids, "max_tokens": 5000})
            self.assertEqual(status, 400, text)

    def test_values_that_cannot_be(self):
        with tempfile.TemporaryDirectory() as folder:
            for config in ({"temperature": -1.0}, {"top_p": 2.0}, {"top_k": -7}, {"max_new_tokens": 0}, {"repetition_penalty": 0.0}):
                with self.subTest(config=config):
                    done = subprocess.run([trine(), "serve", str(self.model(folder, config)), "--port", "0"], capture_output=True, text=True,
                                          timeout=60, env=clean_environment(HOME="/nonexistent"), check=False)
                    self.assertEqual(done.returncode, 3, done.stderr)
                    self.assertRegex(done.stderr, "generation_config.json: .*--generation-config none")
                    self.serve(folder, config, "--generation-config", "none").stop()


class Drain(unittest.TestCase):
    def test_running_answers_finish(self):
        with start() as server:
            stream = server.stream(max_tokens=300)
            events = stream.events()
            next(events)
            idle = server.connection()
            idle.request("GET", "/health/live")
            idle.getresponse().read()
            server.process.send_signal(signal.SIGTERM)
            self.wait_draining(server)
            status, headers, body = server.complete(max_tokens=1)
            self.assertEqual((status, body["error"]["code"]), (503, "shutting_down"))
            self.assertEqual(headers["connection"], "close")
            rest = list(events)
            self.assertEqual(rest[-1], "[DONE]")
            self.assertEqual(sum(1 for event in rest if '"choices"' in event and '"text"' in event) + 1, 300)
            self.assertEqual(server.process.wait(60), 0)

    def wait_draining(self, server):
        deadline = time.monotonic() + 30
        while server.get("/health/ready")[0] != 503:
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(server.get("/health/live")[0], 200)

    def test_past_the_limit_a_stream_ends_with_an_error_event(self):
        for by in ("limit", "second signal"):
            with self.subTest(by=by), start("--drain-timeout", "0.3" if by == "limit" else "600") as server:
                stream = server.stream(max_tokens=2000)
                events = stream.events()
                next(events)
                server.process.send_signal(signal.SIGINT)
                if by != "limit":
                    self.wait_draining(server)
                    server.process.send_signal(signal.SIGINT)
                rest = list(events)
                errors = [json.loads(event)["error"] for event in rest if event.startswith('{"error"')]
                self.assertEqual(len(errors), 1, rest[-3:])
                self.assertEqual(errors[0]["code"], "shutting_down")
                self.assertEqual(server.process.wait(60), 0)

    def test_an_idle_server_ends_at_once(self):
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            server = start("--drain-timeout", "600", model=SMALL)
            self.assertEqual(server.stop(sig), 0)


class Models(unittest.TestCase):
    def setUp(self):
        self.auth = bearer(ADMIN_KEY)

    def admin(self, server, action, model, **more):
        status, _, body = server.call("POST", f"/admin/models/{action}", {"model": model, **more}, self.auth)
        return status, json.loads(body)

    def states(self, server):
        return {m["id"]: m["state"] for m in json.loads(server.call("GET", "/admin/models", headers=self.auth)[2])["models"]}

    def test_two_models_load_unload_drain(self):
        with start("--served-name", "small", "--served-name", "large", model=[SMALL, LARGE], TRINE_ADMIN_KEY=ADMIN_KEY) as server:
            self.assertEqual(self.states(server), {"small": "ready", "large": "ready"})
            self.assertEqual(server.complete(max_tokens=1)[2]["model"], "small")
            stream = server.stream(model="large", max_tokens=400)
            events = stream.events()
            next(events)
            self.assertEqual(self.admin(server, "unload", "large", wait=False)[0], 202)
            self.assertEqual(server.complete(model="large", max_tokens=1)[0], 503)
            self.assertEqual(server.complete(model="small", max_tokens=1)[0], 200)
            self.assertEqual(list(events)[-1], "[DONE]")
            deadline = time.monotonic() + 30
            while self.states(server)["large"] != "unloaded":
                self.assertLess(time.monotonic(), deadline)
            self.assertEqual(server.complete(model="large", max_tokens=1)[0], 503)
            self.assertEqual(self.admin(server, "load", "large"), (200, {"status": "done"}))
            self.assertEqual(server.complete(model="large", max_tokens=1)[0], 200)
            self.assertEqual(self.admin(server, "unload", "nobody")[0], 404)
            # What is not there any more is as it should be.
            self.assertEqual(self.admin(server, "unload", "large"), (200, {"status": "done"}))
            self.assertEqual(self.admin(server, "unload", "large"), (200, {"status": "done"}))
            self.assertEqual(self.states(server), {"small": "ready", "large": "unloaded"})
            self.assertEqual(self.admin(server, "load", "large")[0], 200)
            for name in ("../../etc/passwd", "/etc/passwd", str(SMALL), "a/b", ""):
                self.assertIn(self.admin(server, "load", name)[0], (400, 404))
            self.assertEqual(server.call("POST", "/admin/models/load", {"model": "small", "path": "/x"}, self.auth)[0], 400)
            self.assertEqual(server.call("POST", "/admin/cache/clear", "", self.auth)[0], 200)
            self.assertEqual(server.call("POST", "/admin/cache/clear", {}, self.auth)[0], 200)
            self.assertEqual(server.call("POST", "/admin/cache/clear", {"model": "small"}, self.auth)[0], 400)

    def test_keep_alive_unloads_and_loads_again(self):
        with start("--keep-alive", "0.2", model=SMALL, TRINE_ADMIN_KEY=ADMIN_KEY) as server:
            deadline = time.monotonic() + 30
            while self.states(server)["docs-1m"] != "unloaded":
                self.assertLess(time.monotonic(), deadline)
            # A readiness probe that failed now would keep away the request that loads it again.
            self.assertEqual(server.get("/health/ready")[0], 200)
            card = json.loads(server.get("/v1/models")[2])["data"][0]
            self.assertEqual(card["max_model_len"], 2048)
            self.assertGreater(card["created"], 0)
            self.assertEqual(server.complete(max_tokens=1)[0], 200)
            self.admin(server, "unload", "docs-1m")  # the last word: not loaded on demand any more
            self.assertEqual(server.get("/health/ready")[0], 503)
            self.assertEqual(json.loads(server.get("/health")[2]), {"status": "no_model"})

    def test_an_unload_is_the_last_word_also_for_what_is_not_loaded(self):
        with start("--keep-alive", "0.2", model=SMALL, TRINE_ADMIN_KEY=ADMIN_KEY) as server:
            deadline = time.monotonic() + 30
            while self.states(server)["docs-1m"] != "unloaded":
                self.assertLess(time.monotonic(), deadline)
            self.assertEqual(self.admin(server, "unload", "docs-1m"), (200, {"status": "done"}))
            status, _, body = server.complete(max_tokens=1)
            self.assertEqual((status, body["error"]["code"]), (503, "model_unloaded"))

    def test_what_users_are_told_names_no_path(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "copied"
            shutil.copytree(SMALL, model)
            config = json.loads((model / "tokenizer_config.json").read_text())
            config.pop("chat_template")
            (model / "tokenizer_config.json").write_text(json.dumps(config))
            with start("--keep-alive", "0.2", model=model, TRINE_ADMIN_KEY=ADMIN_KEY) as server:
                messages = [{"role": "user", "content": "a"}]
                status, _, body = server.call("POST", "/v1/chat/completions", {"messages": messages})
                self.assertEqual((status, json.loads(body)["error"]["param"]), (400, "messages"))
                self.assertIn("no chat template", body.decode() if isinstance(body, bytes) else body)
                self.assertNotIn(folder, str(body))
                deadline = time.monotonic() + 30
                while self.states(server)["copied"] != "unloaded":
                    self.assertLess(time.monotonic(), deadline)
                for weights in model.glob("*.safetensors"):
                    os.truncate(weights, 100)
                status, _, body = server.complete(max_tokens=1)
                self.assertEqual(status, 503)
                self.assertNotIn(folder, str(body))
                self.assertIn("truncated", str(server.call("GET", "/admin/models", headers=self.auth)[2]))
                self.assertEqual(server.stderr().count("model copied: "), 1, server.stderr())
                # An admin's unload ends its failure too.
                self.assertEqual(self.admin(server, "unload", "copied")[0], 200)
                self.assertEqual(self.states(server)["copied"], "unloaded")

    def test_no_request_falls_between_keep_alive_and_load(self):
        with start("--keep-alive", "0.01", model=SMALL, TRINE_ADMIN_KEY=ADMIN_KEY) as server:
            for _ in range(40):
                self.assertEqual(server.complete(max_tokens=1)[0], 200)
                time.sleep(0.03)

    def test_memory_budget(self):
        names = ("--served-name", "small", "--served-name", "large", "--kv-tokens", "2048")
        with start(*names, "--memory-budget", "27m", model=[SMALL, LARGE], TRINE_ADMIN_KEY=ADMIN_KEY) as server:
            self.assertEqual(self.states(server), {"small": "unloaded", "large": "ready"})
            stream = server.stream(model="large", max_tokens=1500)
            next(stream.events())
            status, body = self.admin(server, "load", "small")
            self.assertEqual(status, 400)
            self.assertIn("--memory-budget", body["error"]["message"])
            self.assertEqual((body["error"]["message"] + server.stderr()).count("model small"), 2)
            self.assertNotIn("model small: model small", server.stderr())
            stream.close()
            server.wait_metric("trine_requests_running", lambda value: value == 0)
            # Its request has left the engine a moment before the model counts as idle.
            deadline = time.monotonic() + 30
            while self.admin(server, "load", "small")[0] != 200:
                self.assertLess(time.monotonic(), deadline)
            self.assertEqual(self.states(server), {"small": "ready", "large": "unloaded"})


if __name__ == "__main__":
    main()
