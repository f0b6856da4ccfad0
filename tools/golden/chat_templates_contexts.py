"""Conversations for the chat template goldens."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather at a place. \"Quoted\" & <angled>.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "City, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "integer", "minimum": 1, "maximum": 7},
            },
            "required": ["place"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "get_time", "description": "Time now", "parameters": {"type": "object", "properties": {}}},
}


def msg(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, call_id="abc123456"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = msg("system", "You are terse.")
ROUND = [msg("user", "Hi"), msg("assistant", "Hello."), msg("user", "Bye")]
TOOL_ROUND = [
    msg("user", "Weather in Zürich?"),
    {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"place": "Zürich", "days": 2})]},
    {"role": "tool", "name": "get_weather", "tool_call_id": "abc123456", "content": "{\"temp\": 21.5}"},
    msg("assistant", "21.5 °C."),
    msg("user", "And the time?"),
]
TWO_CALLS = [
    SYSTEM,
    msg("user", "Weather and time"),
    {"role": "assistant", "content": "Let me see.",
     "tool_calls": [call("get_weather", {"place": "Oslo"}, "call00001"), call("get_time", {}, "call00002")]},
    {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "rain"},
    {"role": "tool", "name": "get_time", "tool_call_id": "call00002", "content": "12:00"},
]

CONVERSATIONS = {
    "single": {"messages": [msg("user", "Hello")]},
    "system": {"messages": [SYSTEM, msg("user", "Hello")]},
    "rounds": {"messages": ROUND},
    "system_rounds": {"messages": [SYSTEM] + ROUND},
    "unicode": {"messages": [msg("system", "  Ω≈ç\n"), msg("user", "\n 你好 🙂 e\u0301 <|im_end|> [/INST] </s>\t"), msg("assistant", "ß ")]},
    "empty": {"messages": []},
    "empty_content": {"messages": [msg("user", ""), msg("assistant", ""), msg("user", " ")]},
    "two_users": {"messages": [msg("user", "a"), msg("user", "b")]},
    "assistant_first": {"messages": [msg("assistant", "a"), msg("user", "b")]},
    "system_only": {"messages": [SYSTEM]},
    "system_late": {"messages": [msg("user", "a"), SYSTEM]},
    "missing_content": {"messages": [{"role": "user"}]},
    "null_content": {"messages": [msg("user", "x"), msg("assistant", None), msg("user", "y")]},
    "unknown_role": {"messages": [msg("narrator", "Once.")]},
    "developer": {"messages": [msg("developer", "Be kind."), msg("user", "Hello")]},
    "tools": {"messages": [msg("user", "Weather?")], "tools": [WEATHER, CLOCK]},
    "tools_system": {"messages": [SYSTEM, msg("user", "Weather?")], "tools": [WEATHER]},
    "tools_empty": {"messages": [msg("user", "Weather?")], "tools": []},
    "tool_round": {"messages": TOOL_ROUND, "tools": [WEATHER]},
    "tool_round_without_tools": {"messages": TOOL_ROUND},
    "two_calls": {"messages": TWO_CALLS, "tools": [WEATHER, CLOCK]},
    "reasoning": {"messages": [msg("user", "1+1"), msg("assistant", "2", reasoning_content="one and\none"), msg("user", "2+2"),
                               msg("assistant", "<think>\ntwo and two\n</think>\n\n4"), msg("user", "3+3")]},
    "no_thinking": {"messages": [msg("user", "Hi")], "extra": {"enable_thinking": False}},
    "thinking": {"messages": [msg("user", "Hi")], "extra": {"enable_thinking": True, "date_string": "01 Jan 2025"}},
    "documents": {"messages": [msg("user", "Q")], "extra": {"documents": [{"title": "T1", "text": "body"}, {"title": "T2", "text": "b2"}]}},
}


TEXTS = ["Hi", "", " ", "\n lines\n\n  two\t", "Ωμέγα 你好 🙂 e\u0301", "<|im_end|> [/INST] </s> {{ x }}", "a\"b'c\\d", "<think>\nhm\n</think>\n\nyes",
         "<tool_response>x</tool_response>", "1", "null", "x" * 70, "&<>\u2028\x07", "ß. ǆ! É"]
ROLES = ["user", "assistant", "system", "tool", "developer", "narrator"]


def random_value(rng, depth=0):
    kind = rng.randrange(8 if depth < 3 else 6)
    if kind == 6:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    if kind == 7:
        return {rng.choice(["k", "ключ", "a b", "z"]): random_value(rng, depth + 1) for _ in range(rng.randrange(3))}
    return [rng.choice(TEXTS), rng.randrange(-5, 10**6), rng.random() * 10 ** rng.randrange(-8, 20), True, None, False][kind]


def random_message(rng, role):
    out = msg(role, rng.choice(TEXTS))
    if rng.random() < 0.05:
        out["content"] = None
    if role == "assistant" and rng.random() < 0.3:
        out["tool_calls"] = [
            call(rng.choice(["f", "get_weather", "größe"]), {rng.choice(["p", "place", "q q"]): random_value(rng) for _ in range(rng.randrange(3))},
                 rng.choice(["abc123456", "call00001", "short"])) for _ in range(1 + (rng.random() < 0.3))]
    if role == "assistant" and rng.random() < 0.2:
        out[rng.choice(["reasoning_content", "thinking", "reasoning"])] = rng.choice(TEXTS)
    if role == "tool":
        out["name"] = rng.choice(["f", "get_weather"])
        out["tool_call_id"] = rng.choice(["abc123456", "call00001", "short"])
    if rng.random() < 0.05:
        out["extra"] = random_value(rng)
    return out


def random_conversation(rng):
    """Mostly turns as models expect them, sometimes any order of roles."""
    messages = []
    if rng.random() < 0.4:
        messages.append(random_message(rng, "system"))
    for turn in range(rng.randrange(1, 5)):
        messages.append(random_message(rng, "user"))
        if turn and rng.random() < 0.8:
            messages.insert(-1, random_message(rng, "assistant"))
            if "tool_calls" in messages[-2]:
                messages.insert(-1, random_message(rng, "tool"))
    if rng.random() < 0.2:
        messages = [random_message(rng, rng.choice(ROLES)) for _ in range(rng.randrange(1, 5))]
    out = {"messages": messages}
    if rng.random() < 0.4:
        out["tools"] = [tool for tool in (WEATHER, CLOCK) if rng.random() < 0.7]
        if rng.random() < 0.3:
            out["tools"].append({"type": "function", "function": {"name": "odd", "description": rng.choice(TEXTS), "parameters": {
                "type": "object", "properties": {"v": {"type": "string", "default": random_value(rng)}}}}})
    if rng.random() < 0.2:
        out["extra"] = {rng.choice(["enable_thinking", "tools_in_user_message", "date_string"]): rng.choice([True, False, "01 Jan 2025"])}
    return out
