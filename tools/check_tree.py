#!/usr/bin/env python3
"""Holds the source tree to its own rules and prints every breach.

- layers: a file includes headers of its own folder and of folders with a lower layer number only;
- third-party headers stay in the folders that own them;
- our code does not throw;
- sizes: a .cpp over 800 lines or a header over 400 says why in its first comment (the word "Length:").

Exit status 1 when anything is wrong.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = {
    "base": 0,
    "platform": 1, "options": 1, "tensor": 1, "report": 1,
    "kernels": 2, "format": 2, "text": 2,
    "ops": 3, "kv": 3, "hub": 3, "grammar": 3,
    "loadgen": 4,
    "quant": 4, "sampling": 4, "transfer": 4,
    "model": 5, "sched": 5,
    "spec": 6,
    "engine": 7, "plan": 7,
    "cluster": 8, "convert": 8, "eval": 8,
    "compress": 9,
    "server": 9,
}
# Header prefix -> folders (or one folder inside them) that may include it. Everything else third-party is free.
THIRD_PARTY = {
    "CLI/": {"options"},
    "toml++/": {"options"},
    "spdlog/": {"base"},
    "curl/": {"hub", "loadgen"},
    "openssl/": {"hub", "server/http"},
    "boost/": {"server/http"},
    "prometheus/": {"server"},
    "pcre2.h": {"text"},
    "utf8proc.h": {"text"},
    "lapacke": {"quant"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.S)


def breaches():
    """Yields one line of text per broken rule."""
    files = sorted(p for d in ("src", "apps") for s in ("*.h", "*.cpp") for p in (ROOT / d).rglob(s))
    for path in files:
        name = path.relative_to(ROOT)
        text = path.read_text(encoding="utf-8")
        folder = name.parts[1] if name.parts[0] == "src" else "apps"
        layer = LAYERS.get(folder, 10 if folder == "apps" else None)
        if layer is None:
            yield f"{name}: folder src/{folder} has no layer (add it to tools/check_tree.py and docs/architecture.md)"
            continue
        for kind, header in INCLUDE.findall(text):
            for prefix, allowed in THIRD_PARTY.items():
                places = {folder, "/".join(name.parts[1:-1])}
                if header.startswith(prefix) and not places & allowed:
                    yield f"{name}: <{header}> belongs to {', '.join(sorted(allowed))} only"
            if kind != '"':
                continue
            target = header.split("/")[0]
            if target == folder or (folder == "apps" and "/" not in header):
                continue
            if target not in LAYERS:
                yield f'{name}: include "{header}" does not start with a folder of src/'
            elif LAYERS[target] >= layer:
                yield f'{name}: layer {layer} may not include "{header}" of layer {LAYERS[target]}'
        if re.search(r"\bthrow\b", COMMENT_OR_STRING.sub("", text)):
            yield f"{name}: throw (return a Result instead)"
        limit = 400 if path.suffix == ".h" else 800
        lines = text.count("\n")
        if lines > limit and "Length:" not in text[:1500]:
            yield f"{name}: {lines} lines, at most {limit} (split it, or give the reason after 'Length:' in its first comment)"


def main():
    found = list(breaches())
    for line in found:
        print(line)
    print(f"check_tree: {len(found)} breaches")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
