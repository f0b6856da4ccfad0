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
