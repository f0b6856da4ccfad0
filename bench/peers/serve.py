#!/usr/bin/env python3
"""Trine's server and llama.cpp's side by side: the same file, the same load generator, alternating runs.

    make bench-peers-serve                                      smollm2-135m and 1.1b-q4_0, all tests
    make bench-peers-serve ARGS='--models smollm2-135m --tests streams,itl --rounds 3'

Needs build/release/trine, build/release/bench/peers/synthetic_gguf and bench/peers/setup.sh to have run; the make target sees
to that. docs/benchmarks.md says what each test is. Standard library only.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import run as peers

TESTS = ("streams", "prefix", "step", "itl")
DEFAULT_MODELS = ("smollm2-135m", "1.1b-q4_0")
STREAMS = 16  # of the throughput test
RUNNING = 8  # answers at work in the tests of a step and of gaps
PREFIX, REMAINDER = 1536, 32  # whole pages of Trine's cache, so that the remainder is what it computes
HITS = 12
# The contexts of the step test lie around that of `bench offline --tests batch8` (64 to 80), with the same mean.
STEP_INPUT, STEP_OUTPUT, STEP_WAVES = 8, 128, 3
LONG_PROMPT = 2000
SLOT = {"streams": 512, "prefix": 2048, "step": 512, "itl": 2304}  # tokens of context that an answer needs, rounded up
TARGETS = {"streams": 1.5, "prefix": 1.3, "step": 1.03, "itl": 4.0}
START_LIMIT = 120
RUN_LIMIT = 900


def cpu_seconds(pid):
    """User and system time of a process and of the children it has waited for."""
    fields = peers.read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server on a port of its own, confined to the CPUs; a context manager that ends it."""

    def __init__(self, name, command, port, health, cpus):
        self.name, self.url = name, f"http://127.0.0.1:{port}"
        self.command, self.health, self.cpus = [str(part) for part in command], health, cpus

    def __enter__(self):
        env = {key: value for key, value in os.environ.items() if not key.startswith(("TRINE_", "LLAMA_"))
               or key == "TRINE_HOME"}
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=env,
                                        preexec_fn=lambda: os.sched_setaffinity(0, self.cpus))
        deadline = time.monotonic() + START_LIMIT
        while True:
            with contextlib.suppress(urllib.error.URLError, OSError):
                with urllib.request.urlopen(self.url + self.health, timeout=5) as answer:
                    if answer.status == 200:
                        return self
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.log.seek(0)
                tail = "\n".join(self.log.read().splitlines()[-8:])
                self.__exit__()
                peers.fail(f"{shlex.join(self.command)} does not serve\n{tail}")
            time.sleep(0.05)

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


def serve_trine(model, test, options):
    port = free_port()
    command = [peers.TRINE, "serve", model.path, "--port", port, "--threads", options.threads, "--kv", "f16", "--no-web-page"]
    return Server("trine", command, port, "/health/ready", options.cpus)


def serve_peer(variant, model, test, options):
    port = free_port()
    slots = STREAMS if test == "streams" else RUNNING + 1
    command = [peers.PEERS / variant / "llama-server", "-m", model.path, "-t", options.threads, "-tb", options.threads,
               "-np", slots, "-c", slots * SLOT[test], "--host", "127.0.0.1", "--port", port]
    return Server(variant, command, port, "/health", options.cpus)


class Load:
    """trine bench serve against a server; `others` is the share of the machine's CPU time that neither of the two took."""

    def __init__(self, server, options, *args):
        self.server = server
        self.folder = tempfile.TemporaryDirectory()
        self.file = pathlib.Path(self.folder.name) / "report.json"
        command = [peers.TRINE, "bench", "serve", "--base-url", server.url, "--quiet", "--ignore-eos", "--prompt-ids",
                   options.prompt_ids, "--save", self.file, *args]
        self.command = [str(part) for part in command]
        self.busy, self.own, self.start = peers.busy_seconds(), cpu_seconds(server.process.pid), time.monotonic()
        self.generator = cpu_seconds(os.getpid())
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, options.cpus))

    def finish(self):
        """The saved report. A void run is one whose generator had to wait; here it shares the server's CPUs on purpose."""
        try:
            _, errors = self.process.communicate(timeout=RUN_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            peers.fail(f"{shlex.join(self.command)} did not end within {RUN_LIMIT} s")
        seconds = time.monotonic() - self.start
        own = cpu_seconds(self.server.process.pid) - self.own + cpu_seconds(os.getpid()) - self.generator
        self.others = max(0.0, peers.busy_seconds() - self.busy - own) / (seconds * os.cpu_count())
        if self.process.returncode not in (0, 6):
            peers.fail(f"{shlex.join(self.command)} ended with {self.process.returncode}\n{errors[-2000:]}")
        report = json.loads(self.file.read_text(encoding="utf-8"))
        if report["failed"]:
            peers.fail(f"{shlex.join(self.command)}: {report['failed']} requests failed: {report['failures']}")
        self.folder.cleanup()
        return report

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()
        self.folder.cleanup()


def gaps_of(report):
    return sorted(1e3 * gap for gaps in report["itls"] for gap in gaps)


def quantile(values, q):
    return values[min(int(q * len(values)), len(values) - 1)]


# -- tests: each adds its rows for one engine


def measure_streams(table, server, model, options):
    load = Load(server, options, "--clients", STREAMS, "--num-prompts", options.requests, "--input-len", 128,
                "--output-len", 128)
    report = load.finish()
    for row, value, unit, lower in (
            (f"{STREAMS} streams, output", report["output_throughput"], "tokens/s", False),
            (f"{STREAMS} streams, median TTFT", report["median_ttft_ms"], "ms", True),
            (f"{STREAMS} streams, median ITL", report["median_itl_ms"], "ms", True)):
        table.add("streams", row, unit, server.name, value, load.others, lower)


def measure_prefix(table, server, model, options):
    load = Load(server, options, "--clients", 1, "--num-prompts", HITS + 1, "--prefix-len", PREFIX, "--input-len", REMAINDER,
                "--output-len", 4)
    hits = sorted(1e3 * ttft for ttft in load.finish()["ttfts"][1:])  # the first one fills the cache
    table.add("prefix", f"TTFT, {REMAINDER} tokens after {PREFIX} cached", "ms", server.name, statistics.median(hits),
              load.others, True)


def measure_step(table, server, model, options):
    times, others = [], []
    for wave in range(STEP_WAVES):
        load = Load(server, options, "--clients", RUNNING, "--num-prompts", RUNNING, "--input-len", STEP_INPUT,
                    "--output-len", STEP_OUTPUT, "--seed", wave)
        times.append(load.finish()["median_tpot_ms"])
        others.append(load.others)
    table.add("step", f"step of {RUNNING} streams (median TPOT)", "ms", server.name, statistics.median(times),
              statistics.median(others), True)


def measure_itl(table, server, model, options):
    """Gaps of running answers without and with long prompts that arrive one after the other."""
    tokens = options.gap_tokens if server.name == "trine" else options.peer_gap_tokens
    args = ["--clients", RUNNING, "--num-prompts", RUNNING, "--input-len", 32, "--output-len", tokens, "--warmup", 0]
    load = Load(server, options, *args)
    idle = gaps_of(load.finish())
    table.add("itl", f"ITL of {RUNNING} streams, median", "ms", server.name, statistics.median(idle), load.others, True)
    prefills = Load(server, options, "--clients", 1, "--duration", RUN_LIMIT, "--input-len", LONG_PROMPT, "--output-len", 1,
                    "--warmup", 0, "--seed", 7)
    time.sleep(1.0)
    load = Load(server, options, *args)
    beside = gaps_of(load.finish())
    prefills.stop()
    table.add("itl", f"ITL beside {LONG_PROMPT}-token prefills, median", "ms", server.name, statistics.median(beside), 0.0, True)
    table.add("itl", f"ITL beside {LONG_PROMPT}-token prefills, p99", "ms", server.name, quantile(beside, 0.99), 0.0, True)


MEASURES = {"streams": measure_streams, "prefix": measure_prefix, "step": measure_step, "itl": measure_itl}


def measure_ideal(table, test, model, options):
    """What Trine's own forward pass takes without a server, next to the runs it is compared with."""
    engine = peers.Trine(options.threads, options.cpus)
    if test == "prefix":
        name = f"pp{REMAINDER}@{PREFIX}"
        run, rows = engine.offline(model, [name], 9)
        value, row = 1e3 * REMAINDER / statistics.median(rows[name]), f"pass of {REMAINDER} tokens after {PREFIX}"
    else:
        run, rows = engine.offline(model, [f"batch{RUNNING}"], 25)
        value, row = 1e3 * RUNNING / statistics.median(rows[f"batch {RUNNING}"]), f"pass of {RUNNING} sequences"
    table.add(test, row, "ms", "ideal", value, run.others, True)


def targets(table):
    """(text, values by round, limit, whether more is better) of what the rows are held to."""
    out = []

    def values(test, start, engine="trine"):
        rows = [row for (of, name), row in table.rows.items() if of == test and name.startswith(start)]
        return rows[0].values.get(engine, []) if rows else []

    def add(text, above, below, limit, more):
        ratios = [a / b for a, b in zip(above, below)]
        if ratios:
            out.append({"what": text, "ratios": ratios, "ratio": statistics.median(ratios), "limit": limit, "more_is_better": more,
                        "met": statistics.median(ratios) >= limit if more else statistics.median(ratios) <= limit})

    streams = [row for (_, name), row in table.rows.items() if name == f"{STREAMS} streams, output"]
    if streams and len(streams[0].values) > 1:
        add(f"throughput of {STREAMS} streams / the peer's", streams[0].values["trine"],
            streams[0].values[streams[0].best_peer()], TARGETS["streams"], True)
    add("TTFT of a prefix hit / a pass over the rest", values("prefix", "TTFT"), values("prefix", "pass", "ideal"),
        TARGETS["prefix"], False)
    add(f"step of {RUNNING} streams / the pass alone", values("step", "step"), values("step", "pass", "ideal"),
        TARGETS["step"], False)
    beside = [row for (_, name), row in table.rows.items() if name.endswith("prefills, p99")]
    if beside:
        add("p99 ITL beside prefills / median ITL", beside[0].values["trine"], values("itl", f"ITL of {RUNNING}"),
            TARGETS["itl"], False)
    return out


def measure(model, variants, options):
    table = peers.Table()
    before = peers.limits(options)
    engines = [*variants[:1], "trine", *variants[1:]]
    for test in options.tests:
        for round_idx in range(options.rounds):
            for name in engines if round_idx % 2 == 0 else engines[::-1]:
                peers.note(f"    {model.name} {test}, round {round_idx + 1} of {options.rounds}: {name}")
                started = serve_trine(model, test, options) if name == "trine" else serve_peer(name, model, test, options)
                with started as server:
                    MEASURES[test](table, server, model, options)
                if name == "trine" and test in ("prefix", "step"):
                    measure_ideal(table, test, model, options)
    return {"model": model.name, "file": model.info, "limits_before": before, "limits_after": peers.limits(options),
            "rows": list(table.rows.values()), "targets": targets(table)}


# -- reporting


def row_json(row):
    if len(row.values) > 1:
        return row.as_json()
    return {"test": row.test, "row": row.name, "unit": row.unit, "lower_is_better": row.lower_is_better, "values": row.values,
            "medians": {engine: row.median(engine) for engine in row.values},
            "others_share": statistics.median(row.others), "disturbed": row.disturbed()}


def print_result(result):
    info, before, after = result["file"], result["limits_before"], result["limits_after"]
    print(f"\n{result['model']}: {info['parameters'] / 1e9:.2f} billion weights, {info['weight_bytes'] / 1e6:.0f} MB; "
          f"read {before['read_gbps']:.1f} and {after['read_gbps']:.1f} GB/s, int8 {before['int8_gops']:.0f} and "
          f"{after['int8_gops']:.0f} GOPS before and after")
    print(f"{'test':<44}{'trine':>10}{'llama.cpp':>11}  {'unit':<9}{'ratio':>7}  {'range':<13}best of peer")
    for row in result["rows"]:
        mark = "*" if row["disturbed"] else " "
        if "ratio" not in row:
            engine, value = next(iter(row["medians"].items()))
            print(f"{row['row']:<44}{value:>10.2f}{'':>11}  {row['unit']:<9}{'':>6}{mark}  {engine}", flush=True)
            continue
        spread = f"{min(row['ratios']):.2f}-{max(row['ratios']):.2f}"
        print(f"{row['row']:<44}{row['medians']['trine']:>10.2f}{row['medians'][row['best_peer']]:>11.2f}  {row['unit']:<9}"
              f"{row['ratio']:>6.2f}{mark}  {spread:<13}{row['best_peer']}", flush=True)
    for target in result["targets"]:
        sign = ">=" if target["more_is_better"] else "<="
        spread = f"{min(target['ratios']):.2f}-{max(target['ratios']):.2f}"
        print(f"{target['what']:<44}{target['ratio']:>10.3f}  ({spread}), target {sign} {target['limit']:g}: "
              f"{'met' if target['met'] else 'missed'}", flush=True)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(DEFAULT_MODELS), help="names or .gguf files, commas between (default: %(default)s)")
    parser.add_argument("--tests", default=",".join(TESTS), help="some of %(default)s (default: all)")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each engine per test (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of both servers, on the same CPUs (default: %(default)s)")
    parser.add_argument("--peer", default="all", help="variant of llama.cpp: all, plain, amx, or none (default: all that are built)")
    parser.add_argument("--requests", type=int, default=48, help=f"of the test with {STREAMS} streams (default: %(default)s)")
    parser.add_argument("--gap-tokens", type=int, default=512, help="of the answers in the itl test (default: %(default)s)")
    parser.add_argument("--peer-gap-tokens", type=int, default=32,
                        help="the same for the peer, whose gaps there are long (default: %(default)s)")
    parser.add_argument("--dir", type=pathlib.Path, default=peers.ROOT / "build/synthetic", help="where synthetic models are kept")
    parser.add_argument("--out", type=pathlib.Path, help="JSON report (default: build/bench-peers-serve-TIME.json)")
    options = parser.parse_args()
    options.tests = options.tests.split(",")
    for test in options.tests:
        if test not in TESTS:
            peers.fail(f"--tests {test}: there are {', '.join(TESTS)}")
    usable = sorted(os.sched_getaffinity(0))
    if not 1 <= options.threads <= len(usable):
        peers.fail(f"--threads {options.threads}: 1 to {len(usable)} CPUs are usable here")
    for name in ("rounds", "requests", "gap_tokens", "peer_gap_tokens"):
        if getattr(options, name) < 1:
            peers.fail(f"--{name.replace('_', '-')} {getattr(options, name)}: at least 1")
    options.cpus = set(usable[: options.threads])
    options.prompt_ids = 20000  # below every vocabulary here
    return options


def main():
    options = parse_options()
    for path in (peers.TRINE, peers.GENERATOR):
        if not path.exists():
            peers.fail(f"{path.relative_to(peers.ROOT)} is missing: run this as make bench-peers-serve")
    built = [name for name in ("plain", "amx") if (peers.PEERS / name / "llama-server").exists()]
    variants = [name for name in built if options.peer in ("all", name)]
    if not variants and options.peer != "none":
        peers.fail(f"--peer {options.peer}: there are all, none, {', '.join(built)}; make bench-peers-serve builds what is missing")
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    out = options.out or peers.ROOT / f"build/bench-peers-serve-{stamp}.json"
    models = [peers.find_model(name, options.dir.resolve()) for name in options.models.split(",")]
    engines = [peers.Trine(options.threads, options.cpus), *(peers.LlamaCpp(v, options.threads, options.cpus) for v in variants)]
    report = {**peers.fingerprint(options, engines), "results": []}
    peers.print_head(report)
    for model in models:
        peers.note(f"==> {model.name}")
        result = measure(model, variants, options)
        result["rows"] = [row_json(row) for row in result["rows"]]
        report["results"].append(result)
        # After every model, so that an interrupted run keeps what it has.
        out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print_result(result)
    peers.note(f"==> {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
