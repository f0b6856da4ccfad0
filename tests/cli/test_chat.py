"""chat: plain lines, JSON, and a terminal driven through a pty."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time

from harness import BIN, MODEL, Case, flags_of, main

FAST = ("--temperature", "0", "-n", "6", "--ignore-eos")


class Plain(Case):
    def chat(self, lines, *args, **kwargs):
        return self.ok("chat", MODEL, *FAST, *args, stdin="".join(line + "\n" for line in lines), **kwargs)

    def answers(self, lines, *args, **kwargs):
        return [json.loads(line) for line in self.chat(lines, "--json", *args, **kwargs).text.splitlines()]

    def test_every_line_is_a_question(self):
        done = self.chat(["Hello", "", "And now?"])
        answers = self.answers(["Hello", "", "And now?"])
        self.assertEqual(len(answers), 2)
        self.assertEqual(done.text, "".join(answer["text"] + "\n" for answer in answers))
        self.assertEqual(len(re.findall(r"tokens/s", done.error)) >= 2, True)
        self.assertEqual(self.chat(["Hello"], "--quiet").err, b"")

    def test_first_answer_equals_run(self):
        run = self.ok("run", MODEL, "-p", "Hello", *FAST, "--json").json
        self.assertEqual(self.answers(["Hello"])[0]["ids"], run["ids"])

    def test_conversation_is_remembered_cleared_and_undone(self):
        two = self.answers(["Hello", "And now?"])
        alone = self.answers(["And now?"])[0]
        self.assertGreater(two[1]["timings"]["prompt_tokens"], alone["timings"]["prompt_tokens"])
        self.assertEqual(self.answers(["Hello", "/clear", "And now?"])[1]["ids"], alone["ids"])
        self.assertEqual(self.answers(["Hello", "/undo", "And now?"])[1]["ids"], alone["ids"])

    def test_regen_repeats_greedy_and_moves_on_with_a_seed(self):
        greedy = self.answers(["Hello", "/regen"])
        self.assertEqual(greedy[0]["ids"], greedy[1]["ids"])
        seeded = self.answers(["Hello", "/regen", "/regen"], "--temperature", "1", "--seed", "3")
        self.assertEqual([answer["seed"] for answer in seeded], [3, 4, 5])

    def test_system_prompt(self):
        flag = self.answers(["Hello"], "--system", "Be kind.")[0]
        command = self.answers(["/system Be kind.", "Hello"])[0]
        self.assertEqual(flag["timings"]["prompt_tokens"], command["timings"]["prompt_tokens"])
        removed = self.answers(["/system -", "Hello"], "--system", "Be kind.")[0]
        self.assertLess(removed["timings"]["prompt_tokens"], flag["timings"]["prompt_tokens"])
        self.assertIn("Be kind.", self.chat(["/system"], "--system", "Be kind.").error)

    def test_set_and_unset(self):
        answers = self.answers(["Hello", "/set max-tokens 3", "/clear", "Hello", "/unset max-tokens", "/set max-tokens 2", "/clear", "Hello"])
        self.assertEqual([len(answer["ids"]) for answer in answers], [6, 3, 2])
        listing = self.chat(["/set"]).error
        self.assertRegex(listing, r"temperature +0\b")
        self.assertRegex(listing, r"max-tokens +6\b")

    def test_save_and_load(self):
        file = self.path("talk.json")
        first = self.answers(["Hello", f"/save {file}", "And now?"], "--system", "Be kind.")
        with open(file, encoding="utf-8") as saved:
            messages = json.load(saved)
        self.assertEqual([message["role"] for message in messages], ["system", "user", "assistant"])
        self.ok("template", MODEL, file)
        second = self.answers([f"/load {file}", "And now?"])
        self.assertEqual(second[0]["ids"], first[1]["ids"])

    def test_tokens_and_stats(self):
        done = self.chat(["/tokens", "Hello", "/tokens", "/stats"])
        self.assertIn("0 of 2048 tokens", done.error)
        self.assertRegex(done.error, r"[1-9]\d* of 2048 tokens")
        self.assertRegex(done.error, r"1 answers, \d+ prompt tokens, 6 generated tokens")

    def test_slash_can_be_sent(self):
        sent = self.answers(["//help"])[0]
        self.assertEqual(sent["ids"], self.ok("run", MODEL, "-p", "/help", *FAST, "--json").json["ids"])

    def test_exit_and_help(self):
        done = self.chat(["/help", "/exit", "Hello"])
        self.assertEqual(done.out, b"")
        self.assertIn("/regen", done.error)

    def test_errors_end_a_script(self):
        for lines, code, pattern in [
            (["/nosuch"], 2, "unknown command /nosuch"),
            (["/set top-p 7"], 2, "/set top-p: cannot use '7'"),
            (["/set threads 2"], 2, "not a sampling option"),
            (["/set top-p"], 2, "value is missing"),
            (["/unset nosuch"], 2, "not a sampling option"),
            (["/undo"], 2, "empty"),
            (["/regen"], 2, "no answer"),
            (["/save"], 2, "file name"),
            (["/save -"], 2, "/save -: standard output"),
            (["/load -"], 2, "/load -: standard input"),
            (["/load " + self.path("nosuch.json")], 1, "nosuch.json"),
            (["/load " + self.path("bad.json", '[{"role": "tool", "content": "x"}]')], 2, "message 1"),
        ]:
            done = self.trine("chat", MODEL, *FAST, stdin="".join(line + "\n" for line in lines))
            self.assertEqual(done.code, code, (lines, done.error))
            self.assertRegex(done.error, "error: .*" + pattern)

    def test_overflow_has_both_numbers(self):
        done = self.trine("chat", MODEL, *FAST, "--ctx", "64", stdin="word " * 80 + "\n")
        self.assertEqual(done.code, 4)
        self.assertRegex(done.error, r"error: .*64.*/clear")

    def test_needs_a_template(self):
        config = self.edit_json("tokenizer_config.json", chat_template=None)
        self.bad(3, "no chat template.*--raw", "chat", self.copy_model(replace={"tokenizer_config.json": config}))
        config = self.edit_json("tokenizer_config.json", chat_template="{{ messages[0].content }}")
        # A template that ignores the role has no place of its own for a system prompt, but accepts one.
        self.trine("chat", self.copy_model("b", replace={"tokenizer_config.json": config}), stdin="")


class Terminal(Case):
    def start(self, *args):
        pid, fd = pty.fork()
        if pid == 0:
            os.execve(BIN, [BIN, "chat", MODEL, *args], self.env)
        self.addCleanup(self.stop, pid, fd)
        self.pid, self.fd, self.screen = pid, fd, b""

    def stop(self, pid, fd):
        try:
            os.close(fd)
        except OSError:
            pass
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass

    def send(self, text):
        os.write(self.fd, text if isinstance(text, bytes) else text.encode("utf-8"))

    def wait_for(self, pattern, timeout=60):
        """Reads until the new output matches; returns it."""
        deadline = time.monotonic() + timeout
        while True:
            match = re.search(pattern.encode("utf-8"), self.screen)
            if match:
                seen, self.screen = self.screen[: match.end()], self.screen[match.end() :]
                return seen.decode("utf-8", "replace")
            left = deadline - time.monotonic()
            self.assertGreater(left, 0, f"no {pattern!r} in {self.screen!r}")
            if select.select([self.fd], [], [], min(left, 1.0))[0]:
                try:
                    self.screen += os.read(self.fd, 65536)
                except OSError:
                    self.fail(f"ended before {pattern!r}: {self.screen!r}")

    def drain(self):
        """The last output of a program that has ended."""
        while select.select([self.fd], [], [], 0.2)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                return
            if not data:
                return
            self.screen += data

    def wait_exit(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.drain()
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.screen += os.read(self.fd, 65536)
                except OSError:
                    pass
        self.fail("does not end")

    def test_question_answer_and_ctrl_d(self):
        self.start(*FAST)
        self.wait_for("> ")
        self.send("Hello\r")
        self.wait_for("tokens/s")
        self.wait_for("> ")
        self.send("\x04")
        self.assertEqual(self.wait_exit(), 0)

    def test_editing_history_and_wide_characters(self):
        self.start(*FAST)
        self.wait_for("> ")
        self.send("你好吗\x7f\x1b[D们\r")  # 你们好
        self.wait_for("tokens/s")
        self.wait_for("> ")
        file = self.path("talk.json")
        self.send("\x1b[A\x01//\x05\x15")  # an old line, edited and thrown away
        self.send(f"/save {file}\r")
        self.wait_for("saved")
        with open(file, encoding="utf-8") as saved:
            self.assertEqual(json.load(saved)[0]["content"], "你们好")

    def test_pasted_lines_are_one_question(self):
        self.start(*FAST)
        self.wait_for("> ")
        self.send("\x1b[200~first\nsecond\x1b[201~\r")
        self.wait_for("tokens/s")
        self.wait_for("> ")
        file = self.path("talk.json")
        self.send(f"/save {file}\r")
        self.wait_for("saved")
        with open(file, encoding="utf-8") as saved:
            self.assertEqual(json.load(saved)[0]["content"], "first\nsecond")

    def test_ctrl_c_stops_the_answer_not_the_program(self):
        # The scalar kernels, because on the others the whole context may be full before the key is pressed.
        self.start("--temperature", "1", "--seed", "1", "--ignore-eos", "--isa", "scalar", "--threads", "1")
        self.wait_for("> ")
        self.send("Tell me everything\r")
        time.sleep(0.3)
        self.send("\x03")
        self.wait_for(r"\(stopped\)|cut")
        self.wait_for("> ")
        self.send("\x03")
        self.wait_for("Ctrl-D")
        self.wait_for("> ")
        self.send("half a line\x03")
        self.wait_for("Ctrl-D")
        self.send("/exit\r")
        self.assertEqual(self.wait_exit(), 0)

    def test_errors_do_not_end_a_conversation(self):
        self.start(*FAST, "--ctx", "64")
        self.wait_for("> ")
        self.send("/nosuch\r")
        self.wait_for("error: unknown command")
        self.send("word " * 80 + "\r")
        self.wait_for("error: .*64")
        self.send("/clear\r")
        self.send("Hi\r")
        self.wait_for("tokens/s")
        # Typed before the prompt is there: the editor still gets it as it was typed.
        self.send("\x04")
        self.assertEqual(self.wait_exit(), 0)

    def test_terminal_is_left_as_it_was(self):
        import termios

        self.start(*FAST)
        self.wait_for("> ")
        raw = termios.tcgetattr(self.fd)
        self.assertFalse(raw[3] & termios.ICANON)
        os.kill(self.pid, signal.SIGTERM)
        self.assertEqual(self.wait_exit(), -signal.SIGTERM)
        self.assertIn(b"\x1b[?2004l", self.screen)

    def test_dumb_terminal_gets_plain_lines(self):
        self.env["TERM"] = "dumb"
        self.start(*FAST)
        self.send("Hello\n")
        self.wait_for("tokens/s")
        self.assertNotIn(b"\x1b", self.screen)


class Interrupt(Case):
    def test_ctrl_c_between_plain_questions_ends(self):
        process = subprocess.Popen([BIN, "chat", MODEL, *FAST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)
        process.stdin.write(b"Hello\n")
        process.stdin.flush()
        process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)


class Flags(Case):
    def test_flags_are_those_of_run_without_its_inputs(self):
        chat, run = flags_of(self, "chat"), flags_of(self, "run")
        self.assertEqual(run - chat, {"prompt", "file", "raw", "bos", "parse-special", "n", "logprobs"})
        self.assertEqual(chat - run, set())


if __name__ == "__main__":
    main()
