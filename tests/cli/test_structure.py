"""run and chat with --json-schema, --grammar, --regex, --choice, --json-object."""

import json
import re

from harness import MODEL, Case, main

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["cat", "dog"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "kind", "tags"],
}
SAMPLERS = (
    ("--temperature", "0"),
    ("--seed", "1"),
    ("--seed", "2", "--top-k", "40", "--top-p", "0.9"),
    ("--seed", "3", "--min-p", "0.05", "--repetition-penalty", "1.3"),
    ("--seed", "4", "--typical-p", "0.8", "--temperature", "2"),
)


class Structure(Case):
    def answers(self, *args):
        for sampler in SAMPLERS:
            done = self.ok("run", MODEL, "--json", "--raw", "-p", "An answer: ", "-n", "200", *sampler, *args).json
            self.assertEqual(done["finish_reason"], "stop", (sampler, done["text"]))
            yield done["text"]

    def holds(self, text):
        value = json.loads(text)
        self.assertEqual(list(value), ["name", "age", "kind", "tags"])
        self.assertLessEqual(len(value["name"]), 12)
        self.assertIs(type(value["age"]), int)
        self.assertTrue(0 <= value["age"] <= 150)
        self.assertIn(value["kind"], ("cat", "dog"))
        self.assertTrue(1 <= len(value["tags"]) <= 3)
        self.assertTrue(all(type(tag) is bool for tag in value["tags"]))

    def test_schema_as_text_and_as_file(self):
        text = json.dumps(SCHEMA)
        given = list(self.answers("--json-schema", " " + text))
        for answer in given:
            self.holds(answer)
        self.assertEqual(list(self.answers("--json-schema", self.path("s.json", text))), given)

    def test_regex(self):
        for answer in self.answers("--regex", "[A-Z][a-z]{2,8} [0-9]{4}-(é|€){1,2}"):
            self.assertIsNotNone(re.fullmatch("[A-Z][a-z]{2,8} [0-9]{4}-(é|€){1,2}", answer), answer)

    def test_choice(self):
        for answer in self.answers("--choice", "yes", "--choice", "no, thanks", "--choice", "no"):
            self.assertIn(answer, ("yes", "no", "no, thanks"))

    def test_grammar_file(self):
        path = self.path("g.gbnf", 'root ::= "(" root ")" | digit{1,3}\ndigit ::= [0-9]\n')
        for answer in self.answers("--grammar", path):
            inner = re.fullmatch(r"(\(*)[0-9]{1,3}(\)*)", answer)
            self.assertIsNotNone(inner, answer)
            self.assertEqual(len(inner[1]), len(inner[2]))

    def test_json_object(self):
        complete = 0
        for seed in range(8):
            done = self.ok("run", MODEL, "--json", "--raw", "-p", "JSON: ", "-n", "200", "--seed", str(seed), "--json-object").json
            if done["finish_reason"] == "stop":
                self.assertIs(type(json.loads(done["text"])), dict)
                complete += 1
            else:
                self.assertEqual(done["finish_reason"], "length")
        self.assertGreater(complete, 0)

    def test_every_one_of_n_answers(self):
        done = self.ok("run", MODEL, "--json", "-p", "x", "--n", "4", "--seed", "1", "--regex", "[ab]{5}").json
        self.assertEqual(len(done["answers"]), 4)
        for answer in done["answers"]:
            self.assertRegex(answer["text"], "^[ab]{5}$")

    def test_chat_holds_every_turn_to_it(self):
        done = self.ok("chat", MODEL, "--seed", "1", "--choice", "left", "--choice", "right", stdin="One?\nTwo?\n")
        lines = done.text.splitlines()
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertIn(line, ("left", "right"))

    def test_chat_says_what_helps(self):
        # Readings that grow without end break a budget, and a shorter conversation would not help.
        path = self.path("g.gbnf", 'root ::= "a" root "b" | "a" root "c" | "' + "a" * 60 + '"\n')
        done = self.trine("chat", MODEL, "--seed", "1", "--grammar", path, stdin="One?\n")
        self.assertEqual(done.code, 4, done.error)
        self.assertRegex(done.error, "error: grammar: .*more than 4096 parallel readings")
        self.assertNotIn("/clear", done.error)
        for more in ((), ("--grammar", path)):
            self.bad(4, "/clear or /undo makes room", "chat", MODEL, "--ctx", "64", *more, stdin="One and two and three. " * 20 + "\n")

    def test_what_cannot_be_used_is_said(self):
        run = lambda code, pattern, *args: self.bad(code, pattern, "run", MODEL, "-p", "x", *args)
        run(2, "--regex and --json-object both say what the answer must match; give one", "--regex", "a", "--json-object")
        run(2, "--regex: regex offset 0: '\\(' without '\\)'", "--regex", "(a")
        run(3, "--regex: .*look-around is not supported", "--regex", "a(?=b)")
        run(3, '--json-schema: schema #/not: keyword "not" is not supported', "--json-schema", '{"not": {}}')
        run(2, "--grammar: grammar 1:10: rule .*missing", "--grammar", self.path("g.gbnf", "root ::= missing"))
        run(1, "--grammar: ", "--grammar", self.path("nowhere.gbnf"))
        run(1, "--json-schema: ", "--json-schema", self.path("nowhere.json"))
        run(4, "--regex: .*at most 10000", "--regex", "a{20000}")


if __name__ == "__main__":
    main()
