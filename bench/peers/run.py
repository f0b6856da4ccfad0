#!/usr/bin/env python3
"""Trine and llama.cpp side by side on the same files: alternating runs, medians, and the ratio of adjacent runs.

    make bench-peers                                       everything (hours); fetches and builds what is missing
    make bench-peers ARGS=--quick                          a few minutes
    make bench-peers ARGS='--models 1.1b-q4_0 --tests prefill,decode'

Needs build/release/trine, build/release/bench/peers/synthetic_gguf and bench/peers/setup.sh to have run; the make target sees
to that. docs/benchmarks.md says how to read the report. Standard library only.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRINE = ROOT / "build/release/trine"
GENERATOR = ROOT / "build/release/bench/peers/synthetic_gguf"
PEERS = ROOT / "build/peers"

SYNTHETIC = re.compile(r"(1\.1b|7b)-(f16|q4_0|q8_0|q4_k|q4_k_m)")
PULLED = ("smollm2-135m", "gemma3-270m")
DEFAULT_MODELS = (*PULLED, "1.1b-q4_0", "1.1b-q8_0", "7b-q4_0")
TESTS = ("load", "prefill", "decode", "decode@2048", "decode@8192", "rows", "batch")
PREFILL = 512
ROWS = tuple(range(1, 18))
BATCHES = (1, 2, 4, 8, 16, 32)
BATCH_CONTEXT, BATCH_STEPS = 64, 16  # as bench offline has them
ROW_REPEATS = 5
DISTURBED = 0.05  # share of the machine's CPU time that others took, from which a row is marked
TIMEOUT = 3600


def fail(text):
    sys.exit(f"error: {text}")


def note(text):
    print(text, file=sys.stderr, flush=True)


def read_text(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


# -- running


def busy_seconds():
    """CPU time of the whole machine since boot, idle and waiting left out, time stolen by other guests counted."""
    user, nice, system, _, _, irq, softirq, steal = map(int, read_text("/proc/stat").splitlines()[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class Run:
    """What one process did: its output, seconds from start to end, peak memory, and the share of CPU time that others took."""

    def __init__(self, command, cpus):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            busy, start = busy_seconds(), time.monotonic()
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, cpus))
            try:
                signal.signal(signal.SIGALRM, lambda *_: os.killpg(process.pid, signal.SIGKILL))
                signal.alarm(TIMEOUT)
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
            finally:
                signal.alarm(0)
            self.seconds = time.monotonic() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            own = usage.ru_utime + usage.ru_stime
            self.others = max(0.0, busy_seconds() - busy - own) / (self.seconds * os.cpu_count())
            self.peak_bytes = usage.ru_maxrss * 1024
            out.seek(0)
            err.seek(0)
            self.out = out.read().decode("utf-8", "replace")
            if process.returncode != 0:
                tail = "\n".join(err.read().decode("utf-8", "replace").splitlines()[-8:])
                fail(f"{shlex.join(map(str, command))} ended with {process.returncode}\n{tail}")


class Trine:
    name = "trine"

    def __init__(self, threads, cpus):
        self.threads, self.cpus = threads, cpus

    def offline(self, model, tests, repeats):
        command = [TRINE, "bench", "offline", model.path, "--json", "--quiet", "--kv", "f16", "--threads", str(self.threads),
                   "--repeat", str(repeats), "--tests", ",".join(tests)]
        run = Run(command, self.cpus)
        return run, {row["test"]: row["samples"] for row in json.loads(run.out)["rows"]}

    def load(self, model):
        return self.offline(model, ["load"], 1)[0], {}

    def passes(self, model, counts, repeats):
        """{tokens: tokens/s} of prefills of few or many tokens, one row of logits each."""
        run, rows = self.offline(model, [f"pp{m}" for m in counts], repeats)
        return run, {m: statistics.median(rows[f"pp{m}"]) for m in counts}

    def decode(self, model, depth):
        test = f"tg{model.decode}" + (f"@{depth}" if depth else "")
        run, rows = self.offline(model, [test], 1)
        return run, {0: rows[test][0]}

    def batch(self, model, counts):
        run, rows = self.offline(model, [f"batch{b}" for b in counts], 1)
        return run, {b: rows[f"batch {b}"][0] for b in counts}


class LlamaCpp:
    def __init__(self, variant, threads, cpus):
        self.name = variant
        self.folder = PEERS / variant
        self.threads, self.cpus = threads, cpus
        self.build = ""

    def bench(self, model, *args):
        command = [self.folder / "llama-bench", "-m", model.path, "-t", str(self.threads), "-o", "json", *map(str, args)]
        run = Run(command, self.cpus)
        return run, json.loads(run.out)

    def load(self, model):
        run, rows = self.bench(model, "-p", 1, "-n", 0, "-r", 1, "--no-warmup")
        self.build = rows[0].get("build_commit", "")
        return run, {}

    def passes(self, model, counts, repeats):
        run, rows = self.bench(model, "-p", ",".join(map(str, counts)), "-n", 0, "-r", repeats)
        return run, {row["n_prompt"]: statistics.median(row["samples_ts"]) for row in rows}

    def decode(self, model, depth):
        run, rows = self.bench(model, "-p", 0, "-n", model.decode, "-d", depth, "-r", 1)
        return run, {0: rows[0]["avg_ts"]}

    def batch(self, model, counts):
        # Every sequence's part of the cache is a multiple of 256 tokens. The first entry warms up.
        command = [self.folder / "llama-batched-bench", "-m", model.path, "-t", self.threads, "-tb", self.threads,
                   "-c", 256 * max(counts), "-npp", BATCH_CONTEXT, "-ntg", BATCH_STEPS,
                   "-npl", ",".join(map(str, (counts[0], *counts))), "--output-format", "jsonl"]
        run = Run(list(map(str, command)), self.cpus)
        lines = [json.loads(line) for line in run.out.splitlines() if line.startswith("{")]
        return run, {line["pl"]: line["speed_tg"] for line in lines}


# -- models


class Model:
    def __init__(self, name, path):
        self.name, self.path = name, path
        info = json.loads(subprocess.run([TRINE, "show", path, "--json"], check=True, capture_output=True).stdout)
        self.context = info["config"]["context_length"]
        self.info = {key: info[key] for key in ("architecture", "parameters", "weight_bytes", "bits_per_weight", "types")}
        self.info["file_bytes"] = path.stat().st_size
        self.large = self.info["parameters"] > 3e9
        self.decode = 32 if self.large else 128

    def tests(self):
        """Without a choice by the user: a deep context of a large model is left out, it fills for many minutes a run."""
        return [test for test in TESTS if not (self.large and test == "decode@8192")]

    def depth(self, wanted):
        """As deep as the model's context allows."""
        return min(wanted, self.context - self.decode)


def find_model(name, folder):
    """Makes or fetches it when it is not there."""
    if SYNTHETIC.fullmatch(name):
        path = folder / f"{name}.gguf"
        if not path.exists():
            note(f"==> generating {path}")
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run([GENERATOR, *name.split("-", 1), path], check=True)
        return Model(name, path)
    if name in PULLED:
        def stored():
            listing = json.loads(subprocess.run([TRINE, "ls", "--json"], check=True, capture_output=True).stdout)
            return [pathlib.Path(entry["path"]) for entry in listing["models"] if entry["name"] == name]

        if not stored():
            subprocess.run([TRINE, "pull", name], check=True)
        return Model(name, stored()[0])
    path = pathlib.Path(name)
    if path.suffix == ".gguf" and path.is_file():
        return Model(path.stem, path.resolve())
    fail(f"--models {name}: give {', '.join(PULLED)}, 1.1b-TYPE or 7b-TYPE (f16, q4_0, q8_0, q4_k, q4_k_m), or a .gguf file")
    return None


# -- measuring


class Row:
    """One figure: for each engine its values in order of the rounds."""

    def __init__(self, test, name, unit, lower_is_better):
        self.test, self.name, self.unit, self.lower_is_better = test, name, unit, lower_is_better
        self.values = {}
        self.others = []

    def add(self, engine, value, others):
        self.values.setdefault(engine, []).append(value)
        self.others.append(others)

    def median(self, engine):
        return statistics.median(self.values[engine])

    def ratios(self, peer):
        """How many times better Trine was, round by round: the runs of a round are neighbours."""
        pairs = zip(self.values["trine"], self.values[peer])
        return [b / a if self.lower_is_better else a / b for a, b in pairs]

    def best_peer(self):
        peers = [engine for engine in self.values if engine != "trine"]
        return (min if self.lower_is_better else max)(peers, key=self.median)

    def disturbed(self):
        return statistics.median(self.others) > DISTURBED

    def as_json(self):
        peer = self.best_peer()
        ratios = self.ratios(peer)
        return {"test": self.test, "row": self.name, "unit": self.unit, "lower_is_better": self.lower_is_better,
                "values": self.values, "medians": {engine: self.median(engine) for engine in self.values},
                "best_peer": peer, "ratio": statistics.median(ratios), "ratios": ratios,
                "others_share": statistics.median(self.others), "disturbed": self.disturbed()}


class Table:
    def __init__(self):
        self.rows = {}

    def add(self, test, name, unit, engine, value, others, lower_is_better=False):
        row = self.rows.setdefault((test, name), Row(test, name, unit, lower_is_better))
        row.add(engine, value, others)


def measure_one(table, test, engine, model, options):
    if test == "load":
        run, _ = engine.load(model)
        table.add(test, "load, first token", "s", engine.name, run.seconds, run.others, True)
        table.add(test, "peak memory, first token", "MB", engine.name, run.peak_bytes / 1e6, run.others, True)
    elif test == "prefill":
        run, rates = engine.passes(model, [PREFILL], 1)
        table.add(test, f"pp{PREFILL}", "tokens/s", engine.name, rates[PREFILL], run.others)
        table.add(test, f"peak memory, pp{PREFILL}", "MB", engine.name, run.peak_bytes / 1e6, run.others, True)
    elif test.startswith("decode"):
        wanted = int(test.partition("@")[2] or 0)
        depth = model.depth(wanted)
        run, rates = engine.decode(model, depth)
        name = f"tg{model.decode}" + (f"@{depth}" if depth else "")
        table.add(test, name, "tokens/s", engine.name, rates[0], run.others)
    elif test == "rows":
        run, rates = engine.passes(model, options.row_counts, ROW_REPEATS)
        for m in options.row_counts:
            table.add(test, f"pass {m}", "ms", engine.name, 1e3 * m / rates[m], run.others, True)
    else:
        run, rates = engine.batch(model, options.batches)
        for count in options.batches:
            table.add(test, f"batch {count}", "tokens/s", engine.name, rates[count], run.others)


def limits(options):
    """The machine's own limits, measured by Trine's kernels bench."""
    command = [TRINE, "bench", "kernels", "--json", "--threads", str(options.threads), "--schemes", "w4g64", "--rows", "1",
               "--repeat", "3"]
    report = json.loads(Run(command, options.cpus).out)
    return {key: report[key] for key in ("read_gbps", "int8_gops")}


def measure(model, engines, options):
    table = Table()
    before = limits(options)
    for test in options.tests or model.tests():
        if test.startswith("decode@") and model.depth(int(test[7:])) < 1:
            continue
        for round_idx in range(options.rounds):
            # Trine in the middle, so that it is next to each variant of the peer; every other round backwards.
            order = engines if round_idx % 2 == 0 else engines[::-1]
            for engine in order:
                note(f"    {model.name} {test}, round {round_idx + 1} of {options.rounds}: {engine.name}")
                measure_one(table, test, engine, model, options)
    return {"model": model.name, "file": model.info, "limits_before": before, "limits_after": limits(options),
            "rows": list(table.rows.values())}


# -- reporting


def fingerprint(options, engines):
    cpuinfo = read_text("/proc/cpuinfo")

    def field(name):
        match = re.search(rf"^{name}\s*: (.*)$", cpuinfo, re.M)
        return match.group(1) if match else "unknown"

    def git(*args):
        done = subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    caches = {}
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if read_text(index / "type") != "Instruction":
            caches["L" + read_text(index / "level")] = read_text(index / "size")
    trine = json.loads(subprocess.run([TRINE, "bench", "kernels", "--json", "--shape", "32x256", "--schemes", "w4g64", "--rows",
                                       "1", "--weight-bytes", "1", "--repeat", "1"], check=True, capture_output=True).stdout)
    wanted = r"(avx|amx|fma|f16c|gfni)"
    return {
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {**trine["machine"], "family": field("cpu family"), "model": field("model"), "stepping": field("stepping"),
                    "features": [flag for flag in field("flags").split() if re.match(wanted, flag)], "caches": caches,
                    "cpus": os.cpu_count(), "huge_pages": read_text("/sys/kernel/mm/transparent_hugepage/enabled")},
        "threads": options.threads,
        "pinned_to": sorted(options.cpus),
        "trine": {"version": trine["machine"]["version"], "commit": git("rev-parse", "HEAD"),
                  "changed": bool(git("status", "--porcelain", "--untracked-files=no"))},
        "peer": {"name": "llama.cpp", "package": f"llama-cpp-python {read_text(PEERS / 'version')}",
                 "variants": [engine.name for engine in engines if engine.name != "trine"]},
        "python": platform.python_version(),
        "rounds": options.rounds,
    }


def print_head(report):
    machine = report["machine"]
    print(f"{machine['cpu']} (family {machine['family']} model {machine['model']}), {report['threads']} threads on CPUs "
          f"{report['pinned_to']}, {machine['isa']} kernels")
    print(f"trine {report['trine']['version']} {report['trine']['commit'][:12]}{' (changed)' if report['trine']['changed'] else ''}"
          f"; llama.cpp of {report['peer']['package']} ({', '.join(report['peer']['variants'])}); {report['time']}")
    print(f"medians of {report['rounds']} alternating rounds (measured); ratio: how many times better trine is, median (range) of "
          "neighbouring runs;\nv: time relative to one row; *: others used over 5 % of the machine meanwhile")


def print_result(result):
    info, before, after = result["file"], result["limits_before"], result["limits_after"]
    print(f"\n{result['model']}: {info['parameters'] / 1e9:.2f} billion weights, {info['weight_bytes'] / 1e6:.0f} MB; "
          f"read {before['read_gbps']:.1f} and {after['read_gbps']:.1f} GB/s, int8 {before['int8_gops']:.0f} and "
          f"{after['int8_gops']:.0f} GOPS before and after")
    print(f"{'test':<26}{'trine':>12}{'llama.cpp':>12}  {'unit':<9}{'ratio':>7}  {'range':<13}best of peer")
    one_row = {}
    for row in result["rows"]:
        medians, peer = row["medians"], row["best_peer"]
        extra = ""
        if row["row"] == "pass 1":
            one_row = medians
        elif row["test"] == "rows" and one_row:
            extra = f"  v = {medians['trine'] / one_row['trine']:.2f} and {medians[peer] / one_row[peer]:.2f}"
        spread = f"{min(row['ratios']):.2f}-{max(row['ratios']):.2f}"
        mark = "*" if row["disturbed"] else " "
        print(f"{row['row']:<26}{medians['trine']:>12.2f}{medians[peer]:>12.2f}  {row['unit']:<9}{row['ratio']:>6.2f}{mark}  "
              f"{spread:<13}{peer}{extra}", flush=True)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help=f"names or .gguf files, commas between (default: {','.join(DEFAULT_MODELS)})")
    parser.add_argument("--tests", help=f"some of {','.join(TESTS)} (default: all; a 7B model without decode@8192)")
    parser.add_argument("--rounds", type=int, help="runs of each engine per test (default: 3)")
    parser.add_argument("--threads", type=int, default=2, help="of both engines, on the same CPUs (default: 2)")
    parser.add_argument("--peer", default="all", help="variant of llama.cpp: all, plain or amx (default: all that are built)")
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT / "build/synthetic", help="where synthetic models are kept")
    parser.add_argument("--out", type=pathlib.Path, help="JSON report (default: build/bench-peers-TIME.json)")
    parser.add_argument("--quick", action="store_true", help="two small models, one round, few tests")
    options = parser.parse_args()
    quick = options.quick
    options.models = (options.models or ("smollm2-135m,1.1b-q4_0" if quick else ",".join(DEFAULT_MODELS))).split(",")
    options.tests = options.tests or ("load,prefill,decode,rows,batch" if quick else "")
    options.tests = options.tests.split(",") if options.tests else None
    for test in options.tests or []:
        if not re.fullmatch(r"load|prefill|decode(@[1-9][0-9]{0,5})?|rows|batch", test):
            fail(f"--tests {test}: there are {', '.join(TESTS)}, and decode at any other depth")
    options.rounds = options.rounds or (1 if quick else 3)
    options.row_counts = [1, 5, 9, 17] if quick else list(ROWS)
    options.batches = [1, 8] if quick else list(BATCHES)
    usable = sorted(os.sched_getaffinity(0))
    if not 1 <= options.threads <= len(usable):
        fail(f"--threads {options.threads}: 1 to {len(usable)} CPUs are usable here")
    if options.rounds < 1:
        fail(f"--rounds {options.rounds}: at least 1")
    options.cpus = set(usable[: options.threads])
    return options


def main():
    options = parse_options()
    for path in (TRINE, GENERATOR, PEERS / "stamp"):
        if not path.exists():
            fail(f"{path.relative_to(ROOT)} is missing: run this as make bench-peers")
    variants = [name for name in ("plain", "amx") if (PEERS / name).is_dir() and options.peer in ("all", name)]
    if not variants:
        fail(f"--peer {options.peer}: there are all, " + ", ".join(n for n in ("plain", "amx") if (PEERS / n).is_dir()))
    peers = [LlamaCpp(name, options.threads, options.cpus) for name in variants]
    engines = [*peers[:1], Trine(options.threads, options.cpus), *peers[1:]]
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    out = options.out or ROOT / f"build/bench-peers-{stamp}.json"
    models = [find_model(name, options.dir.resolve()) for name in options.models]
    report = {**fingerprint(options, engines), "results": []}
    print_head(report)
    for model in models:
        note(f"==> {model.name}")
        # From here on the file is in the page cache for every run.
        with open(model.path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
        result = measure(model, engines, options)
        result["rows"] = [row.as_json() for row in result["rows"]]
        report["results"].append(result)
        report["peer"]["build"] = next((peer.build for peer in peers if peer.build), "")
        # After every model, so that an interrupted run keeps what it has.
        out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print_result(result)
    note(f"==> {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
