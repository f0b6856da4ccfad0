"""Help, errors, exit codes, sources of options, closed and full outputs."""

import os
import shutil
import subprocess
import unittest

from harness import BIN, MODEL, SOURCE, Case, main


class Help(Case):
    def test_overview_lists_commands_in_groups(self):
        done = self.ok("--help")
        for word in ("run", "chat", "pull", "tokenize", "logits", "verify", "completion", "config", "Usage:"):
            self.assertIn(word, done.text)
        self.assertEqual(done.err, b"")
        self.assertNotIn("options-page", done.text)

    def test_help_has_three_spellings(self):
        self.assertEqual(self.ok("help", "run").out, self.ok("run", "--help").out)
        self.assertEqual(self.ok("run", "-h").out, self.ok("run", "--help").out)
        self.assertEqual(self.ok("help").out, self.ok("--help").out)

    def test_help_searches_by_word(self):
        text = self.ok("help", "temperature").text
        self.assertIn("--temperature", text)
        self.assertIn("run", text)

    def test_help_needs_no_configuration(self):
        env = {"TRINE_CONFIG": "/nonexistent.toml", "TRINE_TOP_P": "nonsense"}
        self.ok("run", "--help", env=env)
        self.ok("--version", env=env)

    def test_version(self):
        self.assertRegex(self.ok("--version").text, r"^trine \d+\.\d+\.\d+\n$")

    def test_no_arguments_is_a_usage_error(self):
        done = self.trine()
        self.assertEqual(done.code, 2)
        self.assertEqual(done.out, b"")
        self.assertIn("Usage:", done.error)


class UsageErrors(Case):
    def test_unknown_command_suggests_the_nearest(self):
        self.bad(2, "unknown command 'tokenise', did you mean 'tokenize'", "tokenise")
        self.bad(2, "unknown command 'xyzzy'", "xyzzy")
        self.bad(2, "--quiet before a command", "--quiet", "run")

    def test_unknown_option_suggests_the_nearest(self):
        self.bad(2, "unknown option --temprature, did you mean --temperature", "run", "m", "--temprature", "1")

    def test_missing_and_extra_arguments_are_named(self):
        self.bad(2, "missing MODEL", "tokenize")
        self.bad(2, "unexpected argument 'c'", "tokenize", "a", "b", "c")

    def test_bad_values_name_the_flag_and_the_range(self):
        self.bad(2, r"--top-p: cannot use '1.5', expected a number, above 0 to 1", "run", "m", "--top-p", "1.5")
        self.bad(2, r"--seed: cannot use '-1'", "run", "m", "--seed", "-1")
        self.bad(2, r"--kv: cannot use 'q8', expected one of f16\|bf16\|f32\|int8", "run", "m", "--kv", "q8")
        self.bad(2, r"--threads", "run", "m", "--threads")

    def test_a_missing_file_is_not_found_in_every_command(self):
        # Usage errors are status 2; a file that is not there is status 1, whichever flag names it.
        messages = self.path("m.json", "[]")
        for gone in (self.path("gone"), self.path("file", "") + "/gone"):
            for args in (
                ("run", gone, "x"),
                ("chat", gone),
                ("show", gone),
                ("logits", gone, "--tokens", "1", "--out", self.path("x.npy")),
                ("verify", "invariance", gone),
                ("pull", gone),
                ("run", MODEL, "--file", gone),
                ("tokenize", MODEL, "--file", gone),
                ("tokenize", MODEL, "--jsonl", gone),
                ("detokenize", MODEL, "--file", gone),
                ("detokenize", MODEL, "--jsonl", gone),
                ("detokenize", MODEL, "@" + gone),
                ("template", MODEL, gone),
                ("template", MODEL, messages, "--tools", gone),
                ("template", MODEL, messages, "--template-args", gone),
                ("logits", MODEL, "--tokens", "@" + gone, "--out", self.path("x.npy")),
                ("verify", "invariance", MODEL, "--jsonl", gone),
                ("pull", "hf:org/repo", "--hub-url", "http://127.0.0.1:9", "--token-file", gone),
                ("run", MODEL, "x", "--config", gone),
                ("pull", "smollm2-135m", "--catalogue", gone),
            ):
                self.bad(1, "gone", *args)
                done = self.trine(*args, "--json")
                self.assertEqual((done.code, done.json["error"]["code"]), (1, "not_found"), args)
            self.bad(1, "gone", "chat", MODEL, stdin=f"/load {gone}\n")

    def test_help_for_an_unknown_word_lists_what_there_is(self):
        done = self.bad(2, "no command or option matches 'nosuchword'; the commands are .*tokenize", "help", "nosuchword")
        for word in ("help", "run", "chat", "pull", "show", "verify", "completion"):
            self.assertRegex(done.error, rf"\b{word}\b")
        self.assertNotIn("options-page", done.error)
        self.bad(2, "matches 'tokenise', did you mean 'tokenize'", "help", "tokenise")

    def test_inputs_of_a_call_are_given_once(self):
        self.bad(2, "--prompt is given 2 times, as 'a' and 'b'; give it once", "run", "m", "-p", "a", "-p", "b")
        self.bad(2, "--file is given 3 times", "run", "m", "-f", "a", "-f", "b", "-f", "c")
        # Of a setting the last one counts.
        rows = self.ok("config", "show", "--json", "--top-k", "3", "--top-k", "4").json["options"]
        self.assertEqual([row["value"] for row in rows if row["key"] == "sampling.top_k"], [4])

    def test_json_errors_are_json_on_stdout_and_text_on_stderr(self):
        done = self.trine("run", "m", "--json", "--top-p", "7")
        self.assertEqual(done.code, 2)
        self.assertEqual(done.json["error"]["code"], "invalid_argument")
        self.assertIn("--top-p", done.json["error"]["message"])
        self.assertTrue(done.error.startswith("error: "))
        self.assertEqual(done.error.count("\n"), 1)

    def test_messages_stay_one_line_and_harmless(self):
        done = self.trine("run\n\x1b[31m")
        self.assertEqual(done.code, 2)
        self.assertEqual(done.error.count("\n"), 1)
        self.assertNotIn("\x1b", done.error)


class Sources(Case):
    def shown(self, *args, **kwargs):
        rows = self.ok("config", "show", "--json", *args, **kwargs).json["options"]
        return {row["key"]: row for row in rows}

    def test_flag_beats_environment_beats_file_beats_default(self):
        config = self.path("c.toml", "[sampling]\ntemperature = 0.3\ntop_p = 0.5\nmin_p = 0.25\n")
        env = {"TRINE_CONFIG": config, "TRINE_TEMPERATURE": "0.4", "TRINE_TOP_P": "0.6"}
        rows = self.shown("--temperature", "0.9", env=env)
        self.assertEqual((rows["sampling.temperature"]["value"], rows["sampling.temperature"]["origin"]), (0.9, "flag"))
        self.assertEqual((rows["sampling.top_p"]["value"], rows["sampling.top_p"]["origin"]), (0.6, "environment"))
        self.assertEqual((rows["sampling.min_p"]["value"], rows["sampling.min_p"]["place"]), (0.25, config + ":4"))
        self.assertEqual(rows["sampling.top_k"]["origin"], "default")

    def test_config_flag_beats_its_variable_and_the_users_file(self):
        os.makedirs(self.path(".config/trine"))
        self.path(".config/trine/config.toml", "[sampling]\ntop_k = 1\n")
        self.assertEqual(self.shown()["sampling.top_k"]["value"], 1)
        second = self.path("second.toml", "[sampling]\ntop_k = 2\n")
        third = self.path("third.toml", "[sampling]\ntop_k = 3\n")
        self.assertEqual(self.shown(env={"TRINE_CONFIG": second})["sampling.top_k"]["value"], 2)
        self.assertEqual(self.shown("--config", third, env={"TRINE_CONFIG": second})["sampling.top_k"]["value"], 3)

    def test_xdg_config_home(self):
        os.makedirs(self.path("xdg/trine"))
        self.path("xdg/trine/config.toml", "[sampling]\ntop_k = 5\n")
        self.assertEqual(self.shown(env={"XDG_CONFIG_HOME": self.path("xdg")})["sampling.top_k"]["value"], 5)

    def test_human_sizes(self):
        self.assertEqual(self.shown("--ctx", "32k")["engine.ctx"]["value"], 32000)
        self.assertEqual(self.shown("--ctx", "32K")["engine.ctx"]["value"], 32768)

    def test_file_errors_have_file_and_line(self):
        config = self.path("c.toml", "[sampling]\n\ntop_q = 1\n")
        self.bad(2, r"c\.toml:3: unknown key 'sampling.top_q', did you mean", "config", "show", "--config", config)
        config = self.path("d.toml", "[sampling]\ntop_p = 3\n")
        self.bad(2, r"d\.toml:2: sampling.top_p: cannot use '3'", "config", "show", "--config", config)
        config = self.path("e.toml", "[sampling\n")
        self.bad(2, r"e\.toml:1: ", "config", "show", "--config", config)
        self.bad(1, "nosuch.toml", "config", "show", "--config", self.path("nosuch.toml"))

    def test_environment_errors_name_the_variable(self):
        self.bad(2, "TRINE_TOP_P: cannot use 'x'", "config", "show", env={"TRINE_TOP_P": "x"})

    def test_unknown_variables_are_warned_about(self):
        done = self.ok("config", "show", env={"TRINE_TEMPRATURE": "1"})
        self.assertIn("TRINE_TEMPRATURE", done.error)
        self.assertEqual(self.ok("config", "show", "--log-level", "off", env={"TRINE_TEMPRATURE": "1"}).err, b"")

    def test_origin_column(self):
        self.assertIn("# flag --top-k", self.ok("config", "show", "--origin", "--top-k", "3").text)
        self.assertNotIn("#", self.ok("config", "show", "--top-k", "3").text)

    def test_secrets_are_not_shown(self):
        done = self.ok("config", "show", env={"TRINE_HUB_TOKEN": "hf_secret"})
        self.assertNotIn("hf_secret", done.text)
        done = self.ok("config", "show", "--json", env={"TRINE_HUB_TOKEN": "hf_secret"})
        self.assertNotIn("hf_secret", done.text)

    def test_options_page_is_current(self):
        with open(os.path.join(SOURCE, "docs", "options.md"), "rb") as file:
            self.assertEqual(self.ok("options-page").out, file.read())


class Outputs(Case):
    def run_with_stdout(self, stdout, *args):
        return subprocess.run([BIN, *args], stdout=stdout, stderr=subprocess.PIPE, env=self.env, timeout=60, check=False)

    def test_full_disk_is_an_error(self):
        with open("/dev/full", "wb") as full:
            done = self.run_with_stdout(full, "completion", "bash")
        self.assertEqual(done.returncode, 4)
        self.assertIn(b"cannot write to standard output: No space left", done.stderr)

    def test_closed_stdout_is_an_error(self):
        done = subprocess.run(
            ["sh", "-c", f'"{BIN}" config show >&-'], stderr=subprocess.PIPE, env=self.env, timeout=60, check=False
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot write to standard output", done.stderr)

    def test_logits_to_standard_output_fail_alike(self):
        tokens = ("logits", MODEL, "--tokens", "1", "--out", "-")
        with open("/dev/full", "wb") as full:
            self.assertEqual(self.run_with_stdout(full, *tokens).returncode, 4)
        done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", BIN, *tokens], stderr=subprocess.PIPE, env=self.env, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)

    def test_closed_stdout_does_not_receive_files(self):
        # With descriptor 1 free, the next file opened would be "standard output".
        out = self.path("x.json")
        subprocess.run(["sh", "-c", f'"{BIN}" config show --config "{out}" >&- 2>&-'], env=self.env, timeout=60, check=False)
        self.assertFalse(os.path.exists(out))

    def test_reader_that_went_away_is_quiet(self):
        read, write = os.pipe()
        os.close(read)
        try:
            done = self.run_with_stdout(write, "completion", "bash")
        finally:
            os.close(write)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, b"")

    def test_closed_stdin(self):
        done = subprocess.run(["sh", "-c", f'"{BIN}" config show <&-'], stdout=subprocess.PIPE, env=self.env, timeout=60, check=False)
        self.assertEqual(done.returncode, 0)


class Doctor(Case):
    def test_describes_machine_and_build(self):
        value = self.ok("doctor", "--json", "--threads", "2", "--isa", "scalar").json
        self.assertEqual((value["threads"], value["isa"]), (2, "scalar"))
        self.assertGreater(value["memory_bytes"], 1 << 20)
        self.assertEqual(value["store"], self.env["TRINE_HOME"])
        self.assertEqual(self.ok("doctor", "--home", "/elsewhere", "--json").json["store"], "/elsewhere")
        self.assertRegex(self.ok("doctor").text, r"kernels +(scalar|avx2|avxvnni|avx512|avx512vnni|amx)")
        self.bad(2, "TRINE_ISA", "doctor", env={"TRINE_ISA": "sse9"})


class Completion(Case):
    def test_bash_script_completes(self):
        bash = shutil.which("bash")
        if bash is None:
            self.skipTest("no bash here")
        self.path("c.bash", self.ok("completion", "bash").out)
        probe = (
            'source "$1"; COMP_WORDS=(trine run --temp); COMP_CWORD=2; _trine; echo "${COMPREPLY[*]}";'
            'COMP_WORDS=(trine tok); COMP_CWORD=1; _trine; echo "${COMPREPLY[*]}";'
            'COMP_WORDS=(trine run --kv b); COMP_CWORD=3; _trine; echo "${COMPREPLY[*]}"'
        )
        done = subprocess.run([bash, "-c", probe, "x", self.path("c.bash")], stdout=subprocess.PIPE, env=self.env, check=True)
        self.assertEqual(done.stdout.decode().split("\n")[:3], ["--temperature", "tokenize", "bf16"])

    def test_unknown_shell(self):
        self.bad(2, "tcsh", "completion", "tcsh")


if __name__ == "__main__":
    main()
