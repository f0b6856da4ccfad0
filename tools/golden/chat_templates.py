#!/usr/bin/env python3
"""Writes tests/golden/chat_templates/: conversations rendered by the transformers package, and random templates.

Run with the Python of the golden venv:
    python -P tools/golden/chat_templates.py [--conversations | --held-out FOLDER]
--conversations leaves the random set as it is. --held-out writes random templates and random conversations of another SEED
(environment, with NUM_RANDOM) to that folder, for text_template_golden_test with TRINE_GOLDEN_CHAT=FOLDER.
Templates come from tests/golden/chat_templates/templates/*.jinja. The clock is fixed.
"""
import datetime
import json
import os
import random
import re
import sys

import transformers.utils.chat_template_utils as ctu

# Behind the packages: a script here has the name of one.
sys.path.append(os.path.dirname(os.path.abspath(__file__)))
from chat_templates_contexts import CONVERSATIONS, random_conversation
from chat_templates_random import CONTEXTS, Gen

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden", "chat_templates")
NOW = datetime.datetime(2025, 7, 28, 9, 5, 3)
NUM_RANDOM = int(os.environ.get("NUM_RANDOM", "3000"))
SEED = int(os.environ.get("SEED", "20250728"))


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


ctu.datetime = FixedClock
# Texts that depend on addresses, or on integers beyond 64 bits: documented differences.
UNSTABLE = re.compile(r" object at 0x|<built-in|<function|<bound|<generator|LoopContext|\d{19}|<transformers|<class")


def render(template, messages, tools, extra, add_generation_prompt):
    try:
        chat = ctu._normalize_chat_messages(messages)
        rendered, _ = ctu.render_jinja_template(
            conversations=[chat], tools=tools, chat_template=template, add_generation_prompt=add_generation_prompt,
            **{"bos_token": "<s>", "eos_token": "</s>", **extra})
        return rendered[0]
    except Exception as error:  # any failure counts as an error, whatever its kind
        if isinstance(error, (MemoryError, KeyboardInterrupt)):
            raise
        return None


def conversations(which):
    out = []
    folder = os.path.join(HERE, "templates")
    for name in sorted(os.listdir(folder)):
        source = open(os.path.join(folder, name), encoding="utf-8", newline="").read()
        for case_name, case in which.items():
            for prompt in (True, False) if case_name in ("rounds", "tool_round") else (True,):
                text = render(source, case["messages"], case.get("tools"), case.get("extra", {}), prompt)
                out.append({"template": name, "conversation": case_name, "prompt": prompt, "text": text})
    return out


def random_cases():
    out = []
    errors = 0
    seed = SEED
    seen = set()
    while len(out) < NUM_RANDOM:
        seed += 1
        template = Gen(seed).template()
        which = seed % len(CONTEXTS)
        if template in seen or len(template) > 400:
            continue
        seen.add(template)
        text = render(template, [], None, CONTEXTS[which], True)
        if text is None:
            if errors > NUM_RANDOM // 4:
                continue
            errors += 1
        elif len(text) > 600 or UNSTABLE.search(text):
            continue
        elif re.search(r"\d{18}", template):
            continue
        out.append([which, template, text])
    return out


def write(folder, which, with_random):
    dump = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(folder, "conversations.json"), "w", encoding="utf-8") as f:
        f.write('{"conversations":' + dump(which) + ',\n"cases":[\n')
        f.write(",\n".join(dump(c) for c in conversations(which)) + "\n]}\n")
    if not with_random:
        return
    with open(os.path.join(folder, "random.json"), "w", encoding="utf-8") as f:
        f.write('{"contexts":' + dump(CONTEXTS) + ',\n"cases":[\n')
        f.write(",\n".join(dump(c) for c in random_cases()) + "\n]}\n")


def main():
    if "--held-out" in sys.argv:
        folder = sys.argv[sys.argv.index("--held-out") + 1]
        os.makedirs(folder, exist_ok=True)
        rng = random.Random(SEED)
        write(folder, {f"held_out_{i}": random_conversation(rng) for i in range(NUM_RANDOM // 10)}, True)
    else:
        write(HERE, CONVERSATIONS, "--conversations" not in sys.argv)


if __name__ == "__main__":
    main()
