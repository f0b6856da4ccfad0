#!/usr/bin/env python3
"""`trine serve` under load, and that nothing of it stays: leaks, storms, overload, slow clients, drain, invariance.

    load_test.py TRINE_BINARY [unittest arguments]        short forms, some seconds each (make test)
    TRINE_SOAK_SECONDS=1800 load_test.py TRINE_BINARY Soak Overload AbortStorm    long forms (make soak)

Standard library, loopback only. Nothing asserts how fast something is; what is compared is of one run.
"""
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from serving import LARGE, SMALL, EventStream, Server  # noqa: E402

TRINE = ""
SOAK_SECONDS = float(os.environ.get("TRINE_SOAK_SECONDS", "0"))
WORDS = "the time of a ship is long and it has no end when they go down to see what was there".split()


def words(draw, count):
    return " ".join(draw.choice(WORDS) for _ in range(count))


def resources(server):
    """What a leak would show in: anonymous memory in bytes, descriptors, threads."""
    proc = pathlib.Path("/proc") / str(server.process.pid)
    status = (proc / "status").read_text()
    anon = int(re.search(r"RssAnon:\s+(\d+) kB", status).group(1)) * 1024
    threads = int(re.search(r"Threads:\s+(\d+)", status).group(1))
    return {"anon": anon, "fds": len(os.listdir(proc / "fd")), "threads": threads}


def request_head(path, body):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def cut_after(server, data, num_bytes):
    """Sends it and goes away when so many bytes of the answer came; before sending all of it when that is negative."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(data if num_bytes >= 0 else data[:num_bytes])
        while num_bytes > 0:
            part = client.recv(min(num_bytes, 4096))
            if not part:
                return
            num_bytes -= len(part)


class LoadCase(unittest.TestCase):
    def settle(self, server):
        """Nothing at work, every page free or evictable, the engine at rest."""
        server.wait_metric("trine_requests_running", lambda value: value == 0)
        server.wait_metric("trine_requests_waiting", lambda value: value == 0)
        pages = [server.metric(f"trine_kv_pages{kind}") for kind in ("", "_free", "_evictable")]
        self.assertEqual(pages[0], pages[1] + pages[2])
        self.assertEqual(server.metric("trine_kv_cache_usage_ratio"), 0)

    def settle_connections(self, server, fds):
        deadline = time.monotonic() + 30
        while resources(server)["fds"] > fds:
            self.assertLess(time.monotonic(), deadline, resources(server))
            time.sleep(0.05)


def mixed_request(draw, structured):
    """(path, body): lengths, endpoints, streams, samplers and structures of all kinds."""
    body = {"max_tokens": draw.choice([1, 3, 10, 40]), "seed": draw.randrange(1 << 30), "temperature": draw.choice([0, 0.7, 1.5])}
    if draw.random() < 0.3:
        body["stream"] = True
    if draw.random() < 0.2:
        body["n"] = draw.randrange(2, 4)
    if draw.random() < 0.2:
        body["top_p"] = 0.9
    if draw.random() < 0.1:
        body["priority"] = draw.randrange(-2, 3)
    kind = draw.random()
    text = words(draw, draw.choice([1, 10, 60, 150]))
    if kind < 0.55:
        body["prompt"] = text if draw.random() < 0.8 else [text, "a", "b c"]
        if draw.random() < 0.2:
            body["logprobs"] = 3
        if structured and draw.random() < 0.1:
            body["guided_regex"] = "[a-z]{1,12}"
        if draw.random() < 0.1:
            body["stop"] = ["e", "zz"]
        return "/v1/completions", body
    if kind < 0.85:
        body["messages"] = [{"role": "user", "content": text}]
        if structured and draw.random() < 0.1:
            body["response_format"] = {"type": "json_object"}
        return "/v1/chat/completions", body
    if kind < 0.95:
        return "/tokenize", {"prompt": text}
    return "/v1/completions", {"prompt": text, "max_tokens": -1}  # refused


class Soak(LoadCase):
    """Mixed requests, a third of them cut at a random place; then everything is as it was."""

    ARGS = ("--kv-tokens", "8K", "--max-sequences", "16")

    def batch(self, server, draw, count, structured):
        def one(seed):
            mine = random.Random(seed)
            path, body = mixed_request(mine, structured)
            if mine.random() < 0.33:
                cut_after(server, request_head(path, body), mine.choice([-5, 0, 1, 50, 200, 500, 1500]))
                return None
            status, _, text = server.call("POST", path, body, timeout=120)
            return status, body, text

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            for answer in pool.map(one, [draw.randrange(1 << 40) for _ in range(count)]):
                if answer is None:
                    continue
                status, body, text = answer
                self.assertEqual(status, 400 if body.get("max_tokens") == -1 else 200, (body, text[:300]))
                if body.get("stream"):
                    self.assertTrue(text.rstrip().endswith("data: [DONE]"), text[-300:])
        return count

    def test_everything_returns(self):
        draw = random.Random(1)
        least, seconds, size = (2000, SOAK_SECONDS, 250) if SOAK_SECONDS else (300, 0, 100)
        with Server(TRINE, *self.ARGS, model=SMALL) as server:
            structured = server.complete(guided_regex="[ab]", max_tokens=2)[0] == 200
            for _ in range(2):
                self.batch(server, draw, size, structured)  # buffers, caches and pools reach their size
            self.settle(server)
            base = resources(server)
            begun, done, anon = time.monotonic(), 0, []
            while done < least or time.monotonic() - begun < seconds:
                done += self.batch(server, draw, size, structured)
                self.settle(server)
                anon.append(resources(server)["anon"])
            self.settle_connections(server, base["fds"])
            end = resources(server)
            self.assertEqual(end["threads"], base["threads"])
            print(f"soak: {done} requests in {time.monotonic() - begun:.0f} s, RssAnon {base['anon'] >> 10} -> {end['anon'] >> 10} kB", file=sys.stderr)
            # Memory of the allocator comes and goes; a leak of one page (16 tokens) per ten requests would show.
            self.assertLess(end["anon"] - base["anon"], 16 << 20, anon)
            if len(anon) >= 20:  # over a long run also its trend: the last fifth is not above the second fifth
                fifth = len(anon) // 5
                self.assertLess(statistics.median(anon[-fifth:]) - statistics.median(anon[fifth : 2 * fifth]), 4 << 20, anon)
            self.assertEqual(server.stop(), 0)


class AbortStorm(LoadCase):
    def test_ninety_of_a_hundred_go_away(self):
        draw = random.Random(2)
        rounds = 20 if SOAK_SECONDS else 2
        with Server(TRINE, "--kv-tokens", "8K", "--max-sequences", "8", model=SMALL) as server:
            self.settle(server)
            base = resources(server)
            for _ in range(rounds):
                def one(i):
                    mine = random.Random(i)
                    body = {"prompt": words(mine, mine.choice([5, 100, 300])), "max_tokens": 60, "stream": True, "ignore_eos": True, "n": mine.choice([1, 1, 3])}
                    if mine.random() < 0.9:
                        cut_after(server, request_head("/v1/completions", body), mine.randrange(-20, 3000))
                        return
                    events = list(server.stream(**{k: v for k, v in body.items() if k != "stream"}).events())
                    self.assertEqual(events[-1], "[DONE]")

                with concurrent.futures.ThreadPoolExecutor(24) as pool:
                    list(pool.map(one, [draw.randrange(1 << 40) for _ in range(150)]))
                self.settle(server)
            self.settle_connections(server, base["fds"])
            self.assertEqual(resources(server)["threads"], base["threads"])
            self.assertEqual(server.stop(), 0)


class Overload(LoadCase):
    def test_who_is_accepted_is_served_and_the_rest_is_told_at_once(self):
        """Ten times the places: every answer is complete or a 429 with Retry-After; refusals do not wait for a turn."""
        with Server(TRINE, "--max-waiting", "4", "--max-sequences", "4") as server:
            body = {"prompt": "The engine", "max_tokens": 200 if not SOAK_SECONDS else 400, "ignore_eos": True, "temperature": 0}
            alone = server.call("POST", "/v1/completions", body)
            begun = time.monotonic()
            server.call("POST", "/v1/completions", body)
            alone_s = time.monotonic() - begun

            def one(_):
                start = time.monotonic()
                answer = server.call("POST", "/v1/completions", body, timeout=300)
                return answer, time.monotonic() - start

            for _ in range(10 if SOAK_SECONDS else 1):
                with concurrent.futures.ThreadPoolExecutor(80) as pool:
                    answers = list(pool.map(one, range(80)))
                taken = [(a, s) for a, s in answers if a[0] == 200]
                refused = [(a, s) for a, s in answers if a[0] == 429]
                self.assertEqual(len(taken) + len(refused), 80)
                self.assertGreaterEqual(len(taken), 8)
                self.assertGreater(len(refused), 20)
                text = json.loads(alone[2])["choices"][0]["text"]
                for (_, _, got), _ in taken:
                    self.assertEqual(json.loads(got)["choices"][0]["text"], text)
                for (_, headers, got), _ in refused:
                    self.assertGreaterEqual(int(headers["retry-after"]), 1)
                    self.assertEqual(json.loads(got)["error"]["code"], "queue_full")
                # Ratios within the run: a refusal is told sooner than an answer takes; who was taken waited for at most
                # the two turns before it (of four beside each other), whatever the crowd outside.
                self.assertLess(statistics.median(s for _, s in refused), statistics.median(s for _, s in taken))
                self.assertLess(statistics.median(s for _, s in taken), 40 * alone_s)
                self.settle(server)
            self.assertEqual(server.call("POST", "/v1/completions", body)[0], 200)


class SlowReaders(LoadCase):
    def test_they_hold_nobody_back_and_memory_is_bounded(self):
        buffer = 64 << 10
        with Server(TRINE, "--stream-buffer", "64K", "--kv-tokens", "64K", "--max-sequences", "64", "--write-timeout", "60", model=SMALL) as server:
            for _ in range(3):
                server.complete(max_tokens=50, logprobs=5)
            before = resources(server)["anon"]
            head = request_head("/v1/completions", {"prompt": "The", "max_tokens": 400, "n": 4, "stream": True, "logprobs": 5, "ignore_eos": True})
            clients = []
            for _ in range(8):
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(("127.0.0.1", server.port))
                client.sendall(head)
                clients.append(client)
            # Others are answered meanwhile, in full.
            for _ in range(5):
                self.assertEqual(list(server.stream(max_tokens=20).events())[-1], "[DONE]")
            server.wait_metric("trine_requests_running", lambda value: value == 0, timeout=120)
            # Room of the engine for 32 sequences comes beside the buffers.
            self.assertLess(resources(server)["anon"] - before, 8 * buffer + (48 << 20))
            for client in clients:
                client.close()
            self.settle(server)


class IdleStreams(LoadCase):
    def test_a_thousand_waiting_streams_on_one_io_thread(self):
        count = 1000
        args = ("--max-connections", "1100", "--max-connections-per-address", "1100", "--max-waiting", "1100", "--max-sequences", "1",
                "--ping-interval", "0.5")
        with Server(TRINE, *args) as server:
            threads = resources(server)["threads"]
            first = server.stream(max_tokens=1900, ignore_eos=True)
            next(first.events())
            head = request_head("/v1/completions", {"prompt": "a", "max_tokens": 1, "stream": True})
            clients = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(count)]
            for client in clients:
                client.sendall(head)
            # All are streams before they have a token: the head and a ping come to each, or its answer.
            for client in clients:
                self.assertTrue(client.recv(4096).startswith(b"HTTP/1.1 200 OK"))
            self.assertEqual(server.get("/health/live")[0], 200)
            self.assertEqual(server.call("POST", "/tokenize", {"prompt": "a b"})[0], 200)
            self.assertEqual(resources(server)["threads"], threads)
            first.close()
            for client in clients:
                text = b""
                while part := client.recv(65536):
                    text += part
                self.assertIn(b"[DONE]", text)
                client.close()
            self.settle(server)


class SlowLoris(LoadCase):
    def test_half_requests_do_not_keep_others_out(self):
        with Server(TRINE, "--header-timeout", "0.5", "--body-timeout", "0.5", model=SMALL) as server:
            stop = threading.Event()

            def drip():
                while not stop.is_set():
                    try:
                        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
                            for byte in b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 400:
                                client.sendall(bytes([byte]))
                                if stop.wait(0.02):
                                    return
                    except OSError:
                        pass

            threads = [threading.Thread(target=drip) for _ in range(40)]
            for thread in threads:
                thread.start()
            for _ in range(20):
                self.assertEqual(server.complete(max_tokens=3)[0], 200)
            server.wait_metric("trine_http_timeouts_total", lambda value: value >= 20)
            stop.set()
            for thread in threads:
                thread.join()
            self.settle(server)


class Drain(LoadCase):
    def test_every_accepted_request_has_its_end(self):
        """SIGTERM amid load: whoever got a status 200 gets a whole answer or a final event, refusals say why, exit status 0."""
        for limit in ("60", "0.2"):
            with self.subTest(limit=limit), Server(TRINE, "--drain-timeout", limit, "--max-sequences", "8") as server:
                stop = threading.Event()
                ends, wrong = [], []

                def client(i):
                    mine = random.Random(i)
                    while not stop.is_set():
                        streams = mine.random() < 0.7
                        body = {"prompt": words(mine, 20), "max_tokens": mine.choice([20, 300]), "ignore_eos": True, "stream": streams}
                        connection = server.connection()
                        try:
                            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
                            answer = connection.getresponse()
                        except OSError:
                            return  # it came when the server had gone: nothing was accepted
                        try:
                            status, text = answer.status, answer.read().decode()
                        except (OSError, http.client.HTTPException) as error:
                            wrong.append(repr(error))  # cut short
                            return
                        finally:
                            connection.close()
                        ends.append(status)
                        if status == 200 and streams:
                            last = text.rstrip().splitlines()[-1]
                            if last != "data: [DONE]" and not ('"error"' in text and "shutting_down" in text):
                                wrong.append(text[-300:])
                        elif status == 200:
                            if json.loads(text)["usage"]["completion_tokens"] != body["max_tokens"]:
                                wrong.append(text[-300:])
                        elif status != 503 or "shutting_down" not in text:
                            wrong.append((status, text[:300]))
                        if status == 503:
                            time.sleep(0.02)

                threads = [threading.Thread(target=client, args=(i,)) for i in range(24)]
                for thread in threads:
                    thread.start()
                server.wait_metric("trine_requests_running", lambda value: value >= 4)
                server.process.send_signal(signal.SIGTERM)
                status = server.process.wait(120)
                stop.set()
                for thread in threads:
                    thread.join()
                self.assertEqual(status, 0)
                self.assertEqual(wrong, [])
                self.assertIn(503, ends)


class Invariance(LoadCase):
    """The same request gives the same bytes of text and log-probabilities, whatever goes on around it."""

    @staticmethod
    def choice(text):
        return json.loads(text)["choices"]

    def test_alone_in_a_storm_cached_and_preempted(self):
        draw = random.Random(7)
        prompt = words(draw, 120)
        requests = [{"prompt": prompt, "max_tokens": 40, "temperature": t, "seed": 5, "logprobs": 4, "ignore_eos": True, "n": n}
                    for t, n in ((0, 1), (0.9, 2))]
        with Server(TRINE, "--no-prefix-cache") as server:
            alone = [self.choice(server.call("POST", "/v1/completions", r)[2]) for r in requests]
        seen = {}
        # A pool too small for all that run: sequences give up their pages and are computed anew.
        for name, args in (("wide", ()), ("tight", ("--kv-tokens", "640", "--ctx", "512", "--max-sequences", "8")), ("chunks", ("--step-tokens", "24"))):
            with Server(TRINE, *args) as server:
                for again in range(2):  # the second time the prompt is in the cache
                    stop = threading.Event()

                    def noise(i):
                        mine = random.Random(i)
                        while not stop.is_set():
                            server.call("POST", "/v1/completions", {"prompt": words(mine, mine.choice([5, 90])), "max_tokens": 60, "ignore_eos": True, "priority": mine.choice([-1, 0])})

                    threads = [threading.Thread(target=noise, args=(i,)) for i in range(7)]
                    for thread in threads:
                        thread.start()
                    server.wait_metric("trine_requests_running", lambda value: value >= 2)
                    for request, expected in zip(requests, alone):
                        status, _, text = server.call("POST", "/v1/completions", request)
                        self.assertEqual(status, 200, text)
                        self.assertEqual(self.choice(text), expected, (name, again, request["temperature"]))
                        stream = EventStream(server, {**request, "stream": True})
                        pieces = [json.loads(e) for e in stream.events() if e != "[DONE]"]
                        for index, whole in enumerate(expected):
                            parts = [c for p in pieces for c in p["choices"] if c["index"] == index]
                            self.assertEqual("".join(c["text"] for c in parts), whole["text"], (name, again))
                            logs = [v for c in parts for v in ((c.get("logprobs") or {}).get("token_logprobs") or [])]
                            self.assertEqual(logs, whole["logprobs"]["token_logprobs"], (name, again))
                    stop.set()
                    for thread in threads:
                        thread.join()
                seen[name] = (server.metric("trine_preemptions_total"), server.metric("trine_prefix_cache_hits_total"))
                self.settle(server)
        # The test is about something: pages were given up, and prompts were found.
        self.assertGreater(seen["tight"][0], 0, seen)
        self.assertGreater(seen["wide"][1], 0, seen)


if __name__ == "__main__":
    TRINE = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=1)
