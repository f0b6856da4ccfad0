"""tokenize, detokenize, template."""

import json
import subprocess

from harness import BIN, MODEL, Case, flags_of, main

TEXT = "The quick brown fox, 你好 👍🏽 naïve\n\tdef f(x): return x**2 "


class Tokenize(Case):
    def ids(self, *args, **kwargs):
        return self.ok("tokenize", MODEL, "--json", *args, **kwargs).json["ids"]

    def test_round_trip(self):
        done = self.ok("tokenize", MODEL, TEXT)
        self.assertRegex(done.text, r"^\d+( \d+)*\n$")
        back = self.ok("detokenize", MODEL, done.text)
        self.assertEqual(back.text, "<|endoftext|>" + TEXT + "\n")
        bare = self.ok("tokenize", MODEL, TEXT, "--no-bos").text
        self.assertEqual(self.ok("detokenize", MODEL, bare).text, TEXT + "\n")
        self.assertEqual(self.ok("detokenize", MODEL, "--no-keep-special", done.text).text, TEXT + "\n")

    def test_all_ways_to_give_a_text_agree(self):
        expected = self.ids(TEXT)
        self.assertEqual(self.ids(stdin=TEXT), expected)
        self.assertEqual(self.ids("--file", self.path("t.txt", TEXT)), expected)
        self.assertEqual(self.ids("-f", "-", stdin=TEXT), expected)
        self.assertEqual(self.ids("--", "--json"), self.ids(stdin="--json"))
        self.bad(2, "an argument and --file", "tokenize", MODEL, "x", "--file", self.path("t.txt"))
        self.bad(2, "directory", "tokenize", MODEL, "--file", self.tmp)

    def test_all_ways_to_give_ids_agree(self):
        ids = self.ids("Hello world")
        text = self.ok("detokenize", MODEL, ",".join(map(str, ids))).text
        self.assertEqual(self.ok("detokenize", MODEL, json.dumps(ids)).text, text)
        file = self.path("ids.txt", "\n".join(map(str, ids)) + "\n")
        self.assertEqual(self.ok("detokenize", MODEL, "@" + file).text, text)
        self.assertEqual(self.ok("detokenize", MODEL, "--file", file).text, text)
        self.assertEqual(self.ok("detokenize", MODEL, stdin=" ".join(map(str, ids))).text, text)

    def test_bos_and_parse_special(self):
        with_bos = self.ids("a")
        self.assertEqual(with_bos[0], 0)
        self.assertEqual(self.ids("a", "--no-bos"), with_bos[1:])
        spelled = self.ids("<|im_end|>", "--no-bos")
        self.assertGreater(len(spelled), 1)
        self.assertEqual(self.ids("<|im_end|>", "--no-bos", "--parse-special"), [2])

    def test_empty_text(self):
        self.assertEqual(self.ids("", "--no-bos"), [])
        self.assertEqual(self.ids(stdin="", *["--no-bos"]), [])
        self.assertEqual(self.ok("detokenize", MODEL, "").text, "\n")

    def test_json_lists_pieces(self):
        value = self.ok("tokenize", MODEL, "Hello", "--json").json
        self.assertEqual(len(value["pieces"]), value["count"])
        self.assertEqual(value["count"], len(value["ids"]))

    def test_text_that_is_not_utf8_is_refused_with_its_place(self):
        self.bad(2, "2", "tokenize", MODEL, stdin=b"ab\xffcd")
        self.bad(2, "UTF-8", "tokenize", MODEL, b"\xe4\xbd")

    def test_bad_ids_are_named(self):
        self.bad(2, "entry 2 is 'x'", "detokenize", MODEL, "1,x")
        self.bad(2, "entry 1 is '-1'", "detokenize", MODEL, "--", "-1")
        self.bad(2, "99999999", "detokenize", MODEL, "99999999")
        for text, entry in (("1,,2", 2), (",1", 1), ("1,2,", 3), ("[1, ,2]", 2), ("1,\n,2", 2)):
            self.bad(2, f"entry {entry} is empty", "detokenize", MODEL, text)
        self.assertEqual(self.ok("detokenize", MODEL, "[ 1 ,2\n3 ]").out, self.ok("detokenize", MODEL, "1 2,3").out)
        self.bad(2, "entry 1", "detokenize", MODEL, "99999999999999999999")

    def test_no_text_and_closed_stdin(self):
        done = subprocess.run(
            ["sh", "-c", f'"{BIN}" tokenize "{MODEL}" <&-'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, timeout=60, check=False
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"standard input", done.stderr)

    def test_model_without_tokenizer(self):
        model = self.copy_model(without=["tokenizer.json"])
        self.bad(3, "tokenizer.json: no such file", "tokenize", model, "x")
        self.bad(3, "tokenizer.json: no such file", "detokenize", model, "1")

    def test_missing_model(self):
        self.bad(1, "nosuch", "tokenize", self.path("nosuch"), "x")


class JsonLines(Case):
    def test_every_line_is_answered(self):
        texts = ["one", "zwei ü", "", "a\nb"]
        lines = "".join(json.dumps({"text": t, "id": 7}) + "\n" for t in texts)
        done = self.ok("tokenize", MODEL, "--jsonl", self.path("t.jsonl", lines))
        answers = [json.loads(line) for line in done.text.splitlines()]
        self.assertEqual(len(answers), len(texts))
        for text, answer in zip(texts, answers):
            self.assertEqual(answer, {"ids": self.ok("tokenize", MODEL, "--json", "--", text).json["ids"]})
        back = self.ok("detokenize", MODEL, "--no-keep-special", "--jsonl", "-", stdin=done.out)
        self.assertEqual([json.loads(line)["text"] for line in back.text.splitlines()], texts)

    def test_flags_apply_to_lines(self):
        line = json.dumps({"text": "<|im_end|>"})
        answer = self.ok("tokenize", MODEL, "--jsonl", "-", "--no-bos", "--parse-special", stdin=line).json
        self.assertEqual(answer, {"ids": [2]})

    def test_bad_lines_are_named_and_earlier_answers_stand(self):
        good = json.dumps({"text": "x"}) + "\n"
        for bad, why in [
            ("{", ""),
            ('{"txt": "x"}', '"text"'),
            ('{"text": 5}', "not a string"),
            ("[1]", '"text"'),
            ('{"text": "x", "text": "y"}', ""),
            (b'{"text": "\xff"}', ""),
        ]:
            bad = bad if isinstance(bad, bytes) else bad.encode()
            done = self.trine("tokenize", MODEL, "--jsonl", self.path("t.jsonl", good.encode() * 2 + bad + b"\n"))
            self.assertEqual(done.code, 2, (bad, done.error))
            self.assertRegex(done.error, r"^error: .*t\.jsonl:3: .*" + why)
            self.assertEqual(len(done.text.splitlines()), 2)
        done = self.trine("detokenize", MODEL, "--jsonl", "-", stdin='{"ids": [1]}\n\n{"ids": [1, 2.5]}\n')
        self.assertEqual(done.code, 2)
        self.assertRegex(done.error, r"standard input:3: .*entry 2")

    def test_jsonl_and_text_contradict(self):
        self.bad(2, "--jsonl", "tokenize", MODEL, "x", "--jsonl", "-")
        self.bad(2, "--jsonl", "detokenize", MODEL, "--file", "f", "--jsonl", "-")

    def test_answers_come_while_input_is_open(self):
        process = subprocess.Popen(
            [BIN, "tokenize", MODEL, "--jsonl", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.env
        )
        process.stdin.write(b'{"text": "x"}\n')
        process.stdin.flush()
        self.assertEqual(json.loads(process.stdout.readline())["ids"][0], 0)
        process.stdin.close()
        self.assertEqual(process.wait(timeout=60), 0)
        process.stdout.close()


class Template(Case):
    MESSAGES = [{"role": "user", "content": "Hi <|im_end|>"}]
    TEXT = "<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n"

    def messages(self, value=None):
        return self.path("m.json", json.dumps(self.MESSAGES if value is None else value))

    def test_text_ids_and_parts(self):
        value = self.ok("template", MODEL, self.messages(), "--json").json
        self.assertEqual(value["text"], self.TEXT)
        self.assertEqual("".join(part["text"] for part in value["parts"]), self.TEXT)
        user = [part["text"] for part in value["parts"] if part["from_user"]]
        self.assertIn("Hi <|im_end|>", "".join(user))
        # Control tokens of the template only: two turns' opening, one closing.
        self.assertEqual(value["ids"].count(1), 2)
        self.assertEqual(value["ids"].count(2), 1)
        plain = self.ok("template", MODEL, "-", stdin=json.dumps(self.MESSAGES)).text
        self.assertEqual(plain, self.TEXT + "ids: " + " ".join(map(str, value["ids"])) + "\n")

    def test_generation_prompt_can_be_left_out(self):
        value = self.ok("template", MODEL, self.messages(), "--json", "--no-generation-prompt").json
        self.assertFalse(value["text"].endswith("assistant\n"))

    def test_tools_and_further_variables_reach_the_template(self):
        config = self.edit_json(
            "tokenizer_config.json",
            chat_template="{{ tools | length if tools else 'none' }}/{{ mood }}/{{ messages[0].content }}",
        )
        model = self.copy_model(replace={"tokenizer_config.json": config})
        tools = self.path("tools.json", json.dumps([{"type": "function", "function": {"name": "f"}}]))
        extra = self.path("extra.json", json.dumps({"mood": "calm"}))
        text = lambda *args: self.ok("template", model, *args, "--json").json["text"]
        self.assertEqual(text(self.messages()), "none//Hi <|im_end|>")
        self.assertEqual(text(self.messages(), "--tools", tools, "--template-args", extra), "1/calm/Hi <|im_end|>")
        request = {"messages": self.MESSAGES, "tools": [{}, {}]}
        self.assertEqual(text(self.messages(request)), "2//Hi <|im_end|>")
        config = self.edit_json("tokenizer_config.json", chat_template="{{ tools | tojson if tools }}")
        able = self.copy_model("able", replace={"tokenizer_config.json": config})
        self.assertEqual(self.ok("template", able, self.messages(), "--tools", tools).error, "")
        config = self.edit_json("tokenizer_config.json", chat_template="{{ messages[0].content }}")
        deaf = self.copy_model("deaf", replace={"tokenizer_config.json": config})
        self.assertRegex(self.ok("template", deaf, self.messages(), "--tools", tools).error, "deaf does not show its tools")
        self.bad(2, "--tools", "template", model, self.messages(request), "--tools", tools)

    def test_jinja_file_and_named_templates(self):
        model = self.copy_model("a", replace={"chat_template.jinja": "file {{ messages[0].content }}"})
        self.assertEqual(self.ok("template", model, self.messages(), "--json").json["text"], "file Hi <|im_end|>")
        named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
        model = self.copy_model("b", replace={"tokenizer_config.json": self.edit_json("tokenizer_config.json", chat_template=named)})
        tools = self.path("tools.json", "[{}]")
        self.assertEqual(self.ok("template", model, self.messages(), "--json").json["text"], "plain")
        self.assertEqual(self.ok("template", model, self.messages(), "--tools", tools, "--json").json["text"], "tools")

    def test_errors(self):
        self.bad(2, "m.json", "template", MODEL, self.path("m.json", "{"))
        self.bad(2, "array of messages", "template", MODEL, self.messages({"role": "user"}))
        self.bad(2, "temperature", "template", MODEL, self.messages({"messages": [], "temperature": 1}))
        self.bad(2, "array", "template", MODEL, self.messages(), "--tools", self.path("t.json", "{}"))
        self.bad(2, "object", "template", MODEL, self.messages(), "--template-args", self.path("t.json", "[]"))
        plain = self.edit_json("tokenizer_config.json", chat_template=None)
        self.bad(3, "no chat template", "template", self.copy_model("a", replace={"tokenizer_config.json": plain}), self.messages())
        broken = self.edit_json("tokenizer_config.json", chat_template="{% if %}")
        self.bad(3, "chat_template", "template", self.copy_model("b", replace={"tokenizer_config.json": broken}), self.messages())

    def test_integers_that_would_lose_digits_are_refused(self):
        def call(arguments):
            text = '[{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [{"function": %s}]}]'
            return self.path("big.json", text % ('{"name": "f", "arguments": %s}' % arguments))

        config = self.edit_json("tokenizer_config.json", chat_template="{{ messages[1].tool_calls[0].function.arguments.id }}")
        model = self.copy_model(replace={"tokenizer_config.json": config})
        text = lambda arguments: self.ok("template", model, call(arguments), "--json").json["text"]
        for digits in ("9223372036854775807", "-9223372036854775808"):
            self.assertEqual(text('{"id": %s}' % digits), digits)
            self.assertEqual(text(json.dumps('{"id": %s}' % digits)), digits)
        limit = r"integers must be in \[-9223372036854775808, 9223372036854775807\]"
        place = r"\[1\]\.tool_calls\[0\]\.function\.arguments"
        for digits in ("9223372036854775808", "-9223372036854775809", "12345678901234567890"):
            self.bad(2, rf"big\.json: .*{place}\.id is {digits}, {limit}", "template", model, call('{"id": %s}' % digits))
            # The OpenAI shape: arguments as JSON text.
            encoded = call(json.dumps('{"id": %s}' % digits))
            self.bad(2, rf"messages{place}: .*id is {digits}, {limit}", "template", model, encoded)
        self.assertEqual(text('{"id": 1e30}'), "1e+30")

    def test_works_without_a_tokenizer(self):
        model = self.copy_model(without=["tokenizer.json"])
        self.assertIsNone(self.ok("template", model, self.messages(), "--json").json["ids"])
        self.assertNotIn("ids:", self.ok("template", model, self.messages()).text)


class Flags(Case):
    COMMON = {"json", "quiet", "log-level", "config", "home", "catalogue"}

    def test_no_flag_without_a_test_here(self):
        self.assertEqual(flags_of(self, "tokenize") - self.COMMON, {"file", "jsonl", "bos", "parse-special"})
        self.assertEqual(flags_of(self, "detokenize") - self.COMMON, {"file", "jsonl", "keep-special"})
        self.assertEqual(flags_of(self, "template") - self.COMMON, {"tools", "template-args", "generation-prompt"})


if __name__ == "__main__":
    main()
