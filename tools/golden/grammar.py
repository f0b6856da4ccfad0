#!/usr/bin/env python3
"""Writes tests/golden/grammar/cases.json: which texts a JSON Schema or a regular expression accepts.

Judges: jsonschema (Draft 2020-12, with its format checker) for schemas, Python's re.fullmatch for regular expressions.
Texts of schemas have our spelling (docs/structured-output.md: declared keys in order, then others; no blanks), so that
both sides judge the same thing. Run from the repository root with the Python of the golden venv.
"""
import importlib.metadata
import json
import pathlib
import random
import re

import jsonschema

OUT = pathlib.Path("tests/golden/grammar")

SCHEMAS = [
    {"type": "integer", "minimum": -37, "maximum": 1205},
    {"type": "integer", "minimum": 99},
    {"type": "integer", "maximum": -8},
    {"type": "number"},
    {"type": "boolean"},
    {"type": ["null", "integer", "string"]},
    {"enum": ["a", "A", 7, None, True, [1, "b"], {"k": "v"}]},
    {"const": {"x": [1, {"y": "z\"\\\n"}]}},
    {"type": "string", "minLength": 2, "maxLength": 4},
    {"type": "string", "pattern": "^[a-c]+[0-9]{2,3}$"},
    {"type": "string", "pattern": "b.d"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "format": "uuid"},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 2, "maxItems": 4},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": {"type": "null"}},
    {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": False},
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]},
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "null"}},
        "required": ["b"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"ab": {"type": "integer"}, "abc": {"type": "boolean"}},
        "additionalProperties": {"type": "string"},
    },
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 3}},
    {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["v", "next"],
                "additionalProperties": False,
            }
        },
    },
    {
        "type": "object",
        "properties": {
            "id": {"type": "string", "format": "uuid"},
            "lines": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {"n": {"type": "integer", "minimum": 1}, "what": {"enum": ["nut", "bolt"]}},
                    "required": ["n", "what"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["id", "lines"],
        "additionalProperties": False,
    },
]

PATTERNS = [
    "a|bc|", "(ab|a)(bc|c)?", "[a-c]{2,3}", "[^a-c]+", "(?:a(?:b(?:c)*)+)?", "a{0}b", "a{2}|b{0,2}c", "(a*)*b", "(a|b)*abb",
    r"\d+\.\d{1,2}", r"\w+@\w+", r"[\w.-]+", r"\s*a\s*", r"\D\W\S", r"[a\-z]", r"[\]\\^]+", ".b.", r"\x61\u0062c?",
    "é+|€", "[à-ü]{1,2}", r"a\.b\*c", "(?P<x>a)(b)", "a+?b??", "^(a|b)$", "(0|[1-9][0-9]*)(,(0|[1-9][0-9]*))*", "[^\n]",
]


def from_schema(rng, schema, root):
    """A random value that fulfils the schema, most of the time."""
    if "$ref" in schema:
        return from_schema(rng, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "anyOf" in schema:
        return from_schema(rng, rng.choice(schema["anyOf"]), root)
    kind = schema.get("type", "integer")
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind == "integer":
        low = schema.get("minimum", schema.get("maximum", 0) - 10 ** rng.randrange(1, 9))
        return rng.randint(low, schema.get("maximum", low + 10 ** rng.randrange(1, 9)))
    if kind == "number":
        # Rounded: we write at most 16 digits on either side of the point.
        return round(rng.choice([rng.randint(-999, 999), rng.uniform(-1, 1) * 10.0 ** rng.randint(-3, 8)]), 6)
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "null":
        return None
    if kind == "string":
        if schema.get("format") == "date":
            return f"{rng.randint(1, 9999):04}-{rng.randint(1, 13):02}-{rng.randint(1, 32):02}"
        if schema.get("format") == "ipv4":
            return ".".join(str(rng.randint(0, 280)) for _ in range(rng.choice([4, 4, 4, 3, 5])))
        if schema.get("format") == "uuid":
            digits = "".join(rng.choice("0123456789abcdef") for _ in range(32))
            return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        if "pattern" in schema:
            return rng.choice(["a", "cb", "b"]) + rng.choice(["12", "1234", "xd", "é", "\"d"])
        low = schema.get("minLength", 0)
        return "".join(rng.choice("ab 0\"\\/\té€😀") for _ in range(rng.randint(low, schema.get("maxLength", low + 5))))
    if kind == "array":
        parts = [from_schema(rng, item, root) for item in schema.get("prefixItems", [])]
        items = schema.get("items", True)
        low = schema.get("minItems", 0)
        if isinstance(items, dict):
            parts += [from_schema(rng, items, root) for _ in range(rng.randint(low, schema.get("maxItems", low + 3)))]
        return parts
    out = {}
    for name, part in schema.get("properties", {}).items():
        if name in schema.get("required", []) or rng.random() < 0.6:
            out[name] = from_schema(rng, part, root)
    more = schema.get("additionalProperties", False)
    if isinstance(more, dict):
        for name in rng.sample(["a", "abcd", "x", "é", ""], rng.randint(0, 3)):
            out[name] = from_schema(rng, more, root)
    return out


def changed(rng, value):
    """The value with one thing changed somewhere."""
    if isinstance(value, dict) and value and rng.random() < 0.7:
        name = rng.choice(list(value))
        if rng.random() < 0.4:
            return {k: v for k, v in value.items() if k != name}
        if rng.random() < 0.3:
            return {**value, "zz": 1}
        return {k: changed(rng, v) if k == name else v for k, v in value.items()}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return value[:at] + ([] if rng.random() < 0.4 else [changed(rng, value[at])]) + value[at + 1:]
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.6:
        return value + rng.choice([-1, 1, 10, -100, 1000])
    if isinstance(value, str) and rng.random() < 0.6:
        at = rng.randint(0, len(value))
        return value[:at] + rng.choice(["", "x", "0", "é"]) + value[at + rng.randint(0, 1):]
    return rng.choice([None, True, 0, -1, 12, "a", "", [], {}, [1], {"a": 1}, 0.5])


def spelled(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def is_leap_day(schema, value):
    return schema.get("format") == "date" and isinstance(value, str) and value.endswith("-02-29")


def schema_cases(rng):
    cases = []
    for schema in SCHEMAS:
        check = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker(["date", "ipv4", "uuid"]))
        texts = {True: set(), False: set()}
        for _ in range(400):
            value = from_schema(rng, schema, schema)
            for _ in range(rng.randint(0, 2)):
                value = changed(rng, value)
            if not is_leap_day(schema, value):  # documented as left out
                texts[check.is_valid(value)].add(spelled(value))
        cases.append({"schema": spelled(schema),
                      "accepted": sorted(texts[True])[:40], "rejected": sorted(texts[False])[:40]})
    return cases


def regex_cases(rng):
    cases = []
    letters = "abcz019.,@-_]\\^ \n\té€A*"
    for pattern in PATTERNS:
        compiled = re.compile(pattern, re.ASCII)
        texts = {True: set(), False: set()}
        for _ in range(6000):
            own = [c for c in letters if c in pattern] or ["a"]
            source = rng.choice([letters, "".join(own) + "abc", "abc", "01,."])
            text = "".join(rng.choice(source) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 3, 4, 5, 7])))
            if rng.random() < 0.3:  # near the pattern's own spelling
                text = pattern.replace("\\", "")
                for _ in range(rng.randint(0, 2)):
                    at = rng.randint(0, len(text))
                    text = text[:at] + rng.choice(["", "a"]) + text[at + rng.randint(0, 1):]
            texts[compiled.fullmatch(text) is not None].add(text)
        pick = lambda found: rng.sample(sorted(found), min(30, len(found)))
        cases.append({"pattern": pattern, "accepted": pick(texts[True]), "rejected": pick(texts[False])})
    return cases


def main():
    rng = random.Random(20)
    out = {
        "versions": {"jsonschema": importlib.metadata.version("jsonschema")},
        "schemas": schema_cases(rng),
        "regexes": regex_cases(rng),
    }
    for case in out["schemas"] + out["regexes"]:
        assert case["accepted"] and case["rejected"], case
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "cases.json").write_text(json.dumps(out, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
