"""Random small templates for the differential golden: typed expressions and statements, seeded.

Left out by construction, because docs/chat-templates.md lists them as differences: methods that change lists and dicts,
the text of generators and functions, integers beyond 64 bits, unknown filters and tests in branches that do not run.
"""
import random

CONTEXTS = [
    {
        "s": "Hello World",
        "u": "Grüße, Ωμέγα ΣΑΣ 你好 🙂 ß",
        "e": "",
        "w": "  pad\t\n",
        "n": 7,
        "z": 0,
        "neg": -3,
        "f": 2.5,
        "big": 12345678901234,
        "t": True,
        "no": False,
        "nil": None,
        "l": [3, 1, 2],
        "ls": ["b", "A", "c", "a"],
        "mix": [1, "x", None, 2.5, True],
        "d": {"k": "v", "b": 2, "a": [1, 2], "n": {"x": "y"}},
        "rows": [
            {"role": "user", "content": "hi", "n": 2, "ok": True},
            {"role": "assistant", "content": "yo", "n": 1},
            {"role": "user", "content": "B\nye", "n": 3, "ok": False},
        ],
        "tree": [{"v": "a", "kids": [{"v": "b", "kids": []}, {"v": "c", "kids": [{"v": "d", "kids": []}]}]}],
    },
    {
        "s": "a,b,,c <b> & \"q\" 'x'",
        "u": "İstanbul ŉ ﬁ ǆ e\u0301 \u00a0x\u2003y",
        "e": "",
        "w": "\n\nline one\nline two\r\n  three",
        "n": -12,
        "z": 1,
        "neg": -1,
        "f": 1e16,
        "big": -98765432109,
        "t": True,
        "no": False,
        "nil": None,
        "l": [],
        "ls": ["x y", "X Y", "é", ""],
        "mix": [{"a": 1}, [2], "three", -0.0],
        "d": {},
        "rows": [{"role": "system", "content": None, "n": 0}],
        "tree": [],
    },
]

STR_LITERALS = ["''", "'a'", "'b'", "\"it's\"", "'x-y_z'", "'%s|%s'", "'ÄÖ'", "'\\n'", "', '", "'Hello'", "'o'", "'{}'", "'<|x|>'"]
STR_VARS = ["s", "u", "e", "w"]
INT_VARS = ["n", "z", "neg"]
LIST_VARS = ["l", "ls", "mix", "rows"]


class Gen:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.depth = 0
        self.names = []

    def pick(self, *options):
        return self.r.choice(options)

    def expr(self, kind=None):
        """An expression of roughly the wanted kind: str, int, float, bool, list, dict, any."""
        kinds = ["str", "int", "float", "bool", "list", "dict"]
        if kind in (None, "any"):
            kind = self.r.choices(kinds, [5, 4, 2, 3, 4, 2])[0]
        elif self.r.random() < 0.06:
            kind = self.r.choice(kinds)
        self.depth += 1
        try:
            if self.depth > 4:
                return self.leaf(kind)
            return getattr(self, kind)()
        finally:
            self.depth -= 1

    def leaf(self, kind):
        if self.r.random() < 0.04:
            return self.pick("missing", "nil", "none", "d.nope", "rows[9]", "true")
        if self.names and self.r.random() < 0.25:
            return self.r.choice(self.names)
        return {
            "str": lambda: self.r.choice(STR_LITERALS + STR_VARS * 3 + ["d.k", "rows[0].role", "d['n'].x"]),
            "int": lambda: self.r.choice(INT_VARS + ["0", "1", "2", "3", "-1", "10", "big", "d.b", "rows[0].n"]),
            "float": lambda: self.r.choice(["f", "1.5", "0.1", "-2.25", "1e3", "3.0", "f / 3"]),
            "bool": lambda: self.r.choice(["t", "no", "true", "false", "rows[0].ok"]),
            "list": lambda: self.r.choice(LIST_VARS + ["[1, 2]", "['p', 'q']", "d.a", "[]", "(1, 2)", "range(3)"]),
            "dict": lambda: self.r.choice(["d", "rows[0]", "{'m': 1, 'o': 'p'}", "{}", "d.n"]),
        }[kind]()

    def group(self, text):
        return f"({text})"

    def str(self):
        e = self.expr
        return self.pick(
            lambda: self.leaf("str"),
            lambda: self.leaf("str"),
            lambda: f"{self.group(e('str'))} ~ {self.group(e())}",
            lambda: f"{self.group(e('str'))} + {self.group(e('str'))}",
            lambda: f"{self.group(e('str'))} * {self.pick('2', '3', '0', '-1')}",
            lambda: f"{self.group(e('str'))}|{self.pick('upper', 'lower', 'title', 'capitalize', 'trim', 'string', 'e', 'escape')}",
            lambda: f"{self.group(e('str'))}.{self.pick('upper', 'lower', 'title', 'capitalize', 'strip', 'lstrip', 'rstrip', 'swapcase')}()",
            lambda: f"{self.group(e('str'))}.{self.pick('strip', 'lstrip', 'rstrip')}({self.leaf('str')})",
            lambda: f"{self.group(e('str'))}.replace({self.leaf('str')}, {self.leaf('str')}{self.pick('', ', 1', ', 2')})",
            lambda: f"{self.group(e('str'))}|replace({self.leaf('str')}, {self.leaf('str')})",
            lambda: f"{self.group(e('str'))}[{self.slice()}]",
            lambda: f"{self.group(e('str'))}[{self.pick('0', '-1', '1')}]",
            lambda: f"{self.group(e('list'))}|join({self.pick('', chr(39) + ', ' + chr(39), 's', 'u')})",
            lambda: f"{self.group(e())}|tojson",
            lambda: f"{self.group(e('dict'))}|tojson({self.pick('indent=2', 'indent=0', 'true', 'sort_keys=true', 'separators=[0|string, 1|string]', 'ensure_ascii=true, indent=1')})",
            lambda: f"{self.group(e())}|string",
            lambda: f"{self.group(e('str'))}|indent{self.pick('', '(2)', '(2, true)', '(1, false, true)')}",
            lambda: f"{self.group(e('str'))}|truncate({self.pick('5', '9', '5, true', '6, false, u, 0', '4, leeway=0')})",
            lambda: f"{self.group(e('str'))}|center({self.pick('9', '14', '2')})",
            lambda: f"{self.group(e())}|default({self.leaf('str')}{self.pick('', ', true')})",
            lambda: f"{self.group(e('str'))} % {self.group(e())}",
            lambda: f"'{self.pick('%s', '%d', '%5.2f', '%r', '%x', '%-6s|', '%05d', '%+d', '%e', '%g', '%3s%%', '%c')}' % {self.group(e(self.pick('int', 'float', 'str')))}",
            lambda: f"'{self.pick('{}-{}', '{1}{0}', '{0!r} {1}', '{:>6}|{:<4}', '{{}}{}{}', '{:05}{}')}'.format({self.leaf(self.pick('int', 'str'))}, {e()})",
            lambda: f"'%s and %s'|format({self.leaf('str')}, {self.leaf('int')})",
            lambda: f"{e('str')} if {e('bool')} else {e('str')}",
            lambda: f"{self.group(e('str'))}.{self.pick('rjust', 'ljust', 'center', 'zfill')}({self.pick('8', '15', '1')})",
            lambda: f"{self.group(e('list'))}|{self.pick('first', 'last')}",
            lambda: f"{self.group(e('str'))}.{self.pick('removeprefix', 'removesuffix')}({self.leaf('str')})",
            lambda: f"{self.group(e('str'))}|reverse",
            lambda: f"{self.group(e('str'))}|urlencode",
        )()

    def slice(self):
        part = lambda: self.pick("", "", "0", "1", "2", "-1", "-2", "5", "z")
        step = self.pick("", "", ":", ":2", ":-1", ":-2", ":1")
        return f"{part()}:{part()}{step}"

    def int(self):
        e = self.expr
        return self.pick(
            lambda: self.leaf("int"),
            lambda: self.leaf("int"),
            lambda: f"{self.group(e('int'))} {self.pick('+', '-', '*', '//', '%')} {self.group(e('int'))}",
            lambda: f"-{self.group(e('int'))}",
            lambda: f"{self.leaf('int')} ** {self.pick('2', '0', '1')}",
            lambda: f"{self.group(e(self.pick('str', 'list', 'dict')))}|{self.pick('length', 'count')}",
            lambda: f"{self.group(e('str'))}.{self.pick('find', 'rfind', 'count', 'index')}({self.leaf('str')})",
            lambda: f"{self.group(e())}|int{self.pick('', '(5)', '(-1, 16)')}",
            lambda: f"{self.group(e(self.pick('int', 'float')))}|{self.pick('abs', 'round', 'int')}",
            lambda: f"{self.group(e('list'))}|{self.pick('sum', 'max', 'min')}",
            lambda: f"{self.group(e('str'))}|wordcount",
            lambda: f"{self.group(e('list'))}[{self.pick('0', '-1', '1', 'z')}]",
            lambda: f"rows|sum(attribute='n')",
            lambda: f"{self.group(e('list'))}.{self.pick('index', 'count')}({e('int')})",
            lambda: f"1 + {e('int')} * 2 - {self.leaf('int')} // 3",
        )()

    def float(self):
        e = self.expr
        return self.pick(
            lambda: self.leaf("float"),
            lambda: f"{self.group(e('int'))} / {self.group(e('int'))}",
            lambda: f"{self.group(e('float'))} {self.pick('+', '-', '*', '/', '//', '%')} {self.group(e(self.pick('int', 'float')))}",
            lambda: f"{self.group(e('float'))}|round({self.pick('1', '2', '0, ' + chr(39) + 'floor' + chr(39), '1, ' + chr(39) + 'ceil' + chr(39)) })",
            lambda: f"{self.group(e())}|float{self.pick('', '(1.5)')}",
            lambda: f"{self.leaf('int')} ** -1",
        )()

    def bool(self):
        e = self.expr
        test = lambda: self.pick("defined", "undefined", "none", "string", "number", "integer", "float", "mapping", "iterable",
                                 "sequence", "boolean", "true", "false", "callable", "lower", "upper", "escaped")
        return self.pick(
            lambda: self.leaf("bool"),
            lambda: f"not {self.group(e('bool'))}",
            lambda: f"{self.group(e())} {self.pick('and', 'or')} {self.group(e())}",
            lambda: f"{self.group(e('int'))} {self.pick('<', '<=', '>', '>=', '==', '!=')} {self.group(e(self.pick('int', 'float')))}",
            lambda: f"{self.group(e('str'))} {self.pick('<', '>', '==', '!=')} {self.group(e('str'))}",
            lambda: f"{self.leaf('int')} < {self.leaf('int')} <= {self.leaf('float')}",
            lambda: f"{self.group(e())} == {self.group(e())}",
            lambda: f"{self.leaf('str')} {self.pick('in', 'not in')} {self.group(e(self.pick('str', 'list', 'dict')))}",
            lambda: f"{self.group(e())} {self.pick('in', 'not in')} {self.group(e('list'))}",
            lambda: f"{self.group(e())} is {self.pick('', 'not ')}{test()}",
            lambda: f"{self.group(e('int'))} is {self.pick('odd', 'even', 'divisibleby 3', 'divisibleby(2)', 'eq 1', 'gt(2)', 'lessthan 4', 'ne 0', 'in [1, 2]')}",
            lambda: f"{self.group(e('str'))}.{self.pick('startswith', 'endswith')}({self.pick(self.leaf('str'), '(' + chr(39) + 'a' + chr(39) + ', s)')})",
            lambda: f"{self.group(e('str'))}.{self.pick('isdigit', 'isalpha', 'isspace', 'isupper', 'islower', 'istitle', 'isalnum', 'isnumeric', 'isdecimal')}()",
            lambda: f"{self.group(e('list'))} {self.pick('<', '==', '>=')} {self.group(e('list'))}",
            lambda: f"{self.group(e())} is sameas {self.pick('none', 'true', 'nil', 'no')}",
        )()

    def list(self):
        e = self.expr
        chain = lambda: self.group(e("list"))
        return self.pick(
            lambda: self.leaf("list"),
            lambda: f"[{e()}, {e()}]",
            lambda: f"({e()}, {e()})",
            lambda: f"{chain()} + {chain()}",
            lambda: f"{chain()}[{self.slice()}]",
            lambda: f"{chain()}|list",
            lambda: f"{chain()}|sort{self.pick('', '(true)', '(case_sensitive=true)', '(reverse=true)')}",
            lambda: f"{chain()}|{self.pick('unique', 'reverse')}|list",
            lambda: f"rows|map(attribute='{self.pick('role', 'n', 'content', 'nope', 'ok')}'{self.pick('', ', default=0')})|list",
            lambda: f"{chain()}|map('{self.pick('upper', 'string', 'int', 'length', 'tojson', 'title')}')|list",
            lambda: f"{chain()}|{self.pick('select', 'reject')}({self.pick('', chr(39) + 'odd' + chr(39), chr(39) + 'string' + chr(39), chr(39) + 'in' + chr(39) + ', [1, 2]', chr(39) + 'defined' + chr(39))})|list",
            lambda: f"rows|{self.pick('selectattr', 'rejectattr')}('{self.pick('ok', 'role', 'n')}'{self.pick('', ', ' + chr(39) + 'defined' + chr(39), ', ' + chr(39) + 'equalto' + chr(39) + ', 2', ', ' + chr(39) + 'eq' + chr(39) + ', ' + chr(39) + 'user' + chr(39))})|list",
            lambda: f"rows|sort(attribute='{self.pick('n', 'role', 'role,n', 'content')}')|map(attribute='n')|list",
            lambda: f"{self.group(e('str'))}.{self.pick('split', 'rsplit')}({self.pick('', self.leaf('str'), self.leaf('str') + ', 1', 'none, 1', self.leaf('str') + ', 2')})",
            lambda: f"{self.group(e('str'))}.{self.pick('splitlines()', 'splitlines(true)', 'partition(' + self.leaf('str') + ')', 'rpartition(' + self.leaf('str') + ')')}",
            lambda: f"{self.group(e('dict'))}.{self.pick('items', 'keys', 'values')}()|list",
            lambda: f"{self.group(e('dict'))}|{self.pick('items|list', 'dictsort', 'list', 'dictsort(by=' + chr(39) + 'value' + chr(39) + ')', 'dictsort(reverse=true)')}",
            lambda: f"range({self.pick('4', '1, 6, 2', '5, 0, -2', 'n')})|list",
            lambda: f"{chain()}|{self.pick('batch(2)', 'slice(2)', 'batch(2, 0)', 'slice(3, 0)')}|list",
            lambda: f"rows|groupby('role')|map(attribute='{self.pick('grouper', '0', 'list')}')|list",
            lambda: f"{chain()} * {self.pick('2', '0')}",
        )()

    def dict(self):
        e = self.expr
        return self.pick(
            lambda: self.leaf("dict"),
            lambda: f"{{{self.leaf('str')}: {e()}, 'z': {e()}}}",
            lambda: f"dict(a={e()}, b={self.leaf('int')})",
            lambda: f"dict({self.group(e('dict'))}, c={self.leaf('int')})",
            lambda: f"rows[{self.pick('0', '1', '-1')}]",
            lambda: f"{self.group(e('dict'))}.get({self.leaf('str')}, {{}})",
            lambda: f"{{{self.leaf('int')}: {e('str')}, {self.pick('none', '1.5', 'true', '(1, 2)')}: 1}}",
        )()

    # ---- statements
    def open(self):
        return self.pick("{%", "{%", "{%-", "{%+")

    def close(self):
        return self.pick("%}", "%}", "-%}", "+%}")

    def tag(self, text):
        return f"{self.open()} {text} {self.close()}"

    def out(self):
        return f"{self.pick('{{', '{{', '{{-')} {self.expr()} {self.pick('}}', '}}', '-}}')}"

    def text(self):
        return self.pick("", " ", "\n", "  \n  ", "txt", " a b\n", "\t", "<|im|>", "\n\n", "{ }", "é")

    def body(self, level):
        return "".join(self.pick(self.text, self.out, lambda: self.statement(level + 1))() for _ in range(self.r.randint(1, 3)))

    def scoped(self, names, level):
        before = list(self.names)
        self.names += names
        text = self.body(level)
        self.names = before
        return text

    def statement(self, level=0):
        if level > 2:
            return self.out()
        e = self.expr
        q = self.tag
        loopvar = self.pick("x", "item")
        return self.pick(
            lambda: q(f"if {e('bool')}") + self.body(level) + q("elif " + e()) + self.body(level) + q("else") + self.body(level) + q("endif"),
            lambda: q(f"if {e()}") + self.body(level) + q("endif"),
            lambda: q(f"for {loopvar} in {e('list')}") + self.scoped([loopvar, "loop.index", "loop.last", "loop.revindex0"], level)
            + self.pick("", q("else") + self.body(level)) + q("endfor"),
            lambda: q(f"for {loopvar} in {e('list')} if {loopvar} {self.pick('is odd', 'is string', '!= 1', 'is defined')}")
            + self.scoped([loopvar, "loop.length", "loop.index0", "loop.first"], level) + q("endfor"),
            lambda: q(f"for k, v in {e('dict')}.items()") + self.scoped(["k", "v"], level) + q("endfor"),
            lambda: q(f"for x in {e('list')}") + self.scoped(["loop.previtem", "loop.nextitem", "loop.cycle('a', 'b')", "loop.changed(x)"], level)
            + q("if " + self.pick("loop.index > 1", "x == 2", "loop.last")) + q(self.pick("break", "continue")) + q("endif") + self.text() + q("endfor"),
            lambda: q("for n in tree recursive") + "{{ n.v }}" + self.pick("{{ loop.depth }}", "") + q("if n.kids") + "[{{ loop(n.kids) }}]" + q("endif") + q("endfor"),
            lambda: q(f"set y = {e()}") + "{{ y }}" + self.scoped(["y"], level),
            lambda: q("set y") + self.body(level) + q("endset") + self.scoped(["y", "y|length"], level),
            lambda: q("set y | upper") + self.body(level) + q("endset") + "{{ y }}",
            lambda: q(f"set a, b = {e()}, {e()}") + "{{ b }}{{ a }}",
            lambda: q(f"set ns = namespace(c={e('int')}, s='')") + q(f"for x in {e('list')}") + q("set ns.c = ns.c + 1") + q("set ns.s = ns.s ~ x") + q("endfor") + "{{ ns.c }}{{ ns.s }}",
            lambda: q("set y = 1") + q("for x in [1, 2]") + "{{ y }}" + q("set y = y + x") + "{{ y }}" + q("endfor") + "{{ y }}",
            lambda: q(f"with q = {e()}, r = {e()}") + self.scoped(["q", "r"], level) + q("endwith"),
            lambda: q(f"macro m(a, b={e()})") + self.scoped(["a", "b"], level) + q("endmacro") + self.pick("{{ m(1) }}", "{{ m(s, b=2) }}|{{ m('q') }}", "{{ m() }}", "{{ m(1, 2, 3) }}"),
            lambda: q("macro m(a)") + "<{{ caller(a) }}>" + q("endmacro") + q("call(z) m(s)") + "{{ z }}" + self.body(level) + q("endcall"),
            lambda: q("macro m(a)") + "{{ varargs }}{{ kwargs }}{{ a }}" + q("endmacro") + f"{{{{ m({e()}, {e()}, k=1) }}}}",
            lambda: q(f"filter {self.pick('upper', 'trim', 'replace(' + self.leaf('str') + ', ' + chr(39) + 'R' + chr(39) + ')', 'indent(2)', 'title')}") + self.body(level) + q("endfilter"),
            lambda: "{#" + self.pick("", "-") + " note " + self.pick("", "-") + "#}" + self.text(),
            lambda: self.open() + " raw " + self.pick("%}", "-%}") + " {{ x }} {% if %}\n" + self.tag("endraw") + self.text(),
            lambda: q("generation") + self.body(level) + q("endgeneration"),
            lambda: self.text() + self.out() + self.text(),
        )()

    def template(self):
        parts = []
        for _ in range(self.r.randint(1, 3)):
            parts.append(self.text())
            parts.append(self.statement() if self.r.random() < 0.55 else self.out())
        parts.append(self.text())
        return "".join(parts)
