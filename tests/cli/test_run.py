"""run: prompts, sampling flags, streaming, limits, interrupts."""

import json
import os
import random
import signal
import subprocess
import time

from harness import BIN, MODEL, Case, flags_of, main, tiny_gguf

PROMPT = "The following options are"
GREEDY = ("--raw", "--temperature", "0")


class RunCase(Case):
    def run_json(self, *args, model=MODEL, **kwargs):
        return self.ok("run", model, "--json", *args, **kwargs).json

    def greedy(self, *args, prompt=PROMPT, **kwargs):
        return self.run_json("-p", prompt, *GREEDY, *args, **kwargs)


class Prompts(RunCase):
    def test_all_ways_to_give_a_prompt_agree(self):
        expected = self.greedy("-n", "8")["ids"]
        tail = ["-n", "8", *GREEDY]
        self.assertEqual(self.run_json(PROMPT, *tail)["ids"], expected)
        self.assertEqual(self.run_json("-f", self.path("p.txt", PROMPT + "\n"), *tail)["ids"], expected)
        self.assertEqual(self.run_json(*tail, stdin=PROMPT)["ids"], expected)
        self.assertEqual(self.run_json(*tail, stdin=PROMPT + "\n")["ids"], expected)
        # One line end is the shell's, the second one the user's.
        two = self.run_json(*tail, stdin=PROMPT + "\n\n")
        one = self.run_json("-p", PROMPT + "\n", *tail)
        self.assertEqual(two["timings"]["prompt_tokens"], one["timings"]["prompt_tokens"])
        self.bad(2, "an argument and --prompt", "run", MODEL, "x", "-p", "y")

    def test_chat_template_is_the_default_and_raw_leaves_it_out(self):
        messages = self.path("m.json", json.dumps([{"role": "user", "content": "Hi"}]))
        rendered = self.ok("template", MODEL, messages, "--json").json["ids"]
        chat = self.run_json("-p", "Hi", "-n", "1")
        self.assertEqual(chat["timings"]["prompt_tokens"], len(rendered))
        raw = self.run_json("-p", "Hi", "-n", "1", "--raw")
        self.assertEqual(raw["timings"]["prompt_tokens"], len(self.ok("tokenize", MODEL, "Hi", "--json").json["ids"]))

    def test_system_prompt(self):
        plain = self.run_json("-p", "Hi", "-n", "1")["timings"]["prompt_tokens"]
        system = self.run_json("-p", "Hi", "-n", "1", "--system", "Be brief.")["timings"]["prompt_tokens"]
        self.assertGreater(system, plain)
        self.bad(2, "--system", "run", MODEL, "-p", "Hi", "--raw", "--system", "x")
        # One from the environment is for chats, not an error here.
        self.ok("run", MODEL, "-p", "Hi", "--raw", "-n", "1", env={"TRINE_SYSTEM": "x"})

    def test_bos_and_parse_special(self):
        count = lambda *args: self.run_json("-p", "a<|im_end|>", "-n", "1", "--raw", *args)["timings"]["prompt_tokens"]
        self.assertEqual(count("--no-bos"), count() - 1)
        self.assertLess(count("--parse-special"), count())
        self.bad(2, "--raw", "run", MODEL, "-p", "x", "--parse-special")
        self.bad(2, "--raw", "run", MODEL, "-p", "x", "--no-bos")

    def test_base_model_without_template(self):
        config = self.edit_json("tokenizer_config.json", chat_template=None)
        model = self.copy_model(replace={"tokenizer_config.json": config})
        self.assertEqual(self.run_json("-p", PROMPT, "-n", "8", "--temperature", "0", model=model)["ids"],
                         self.greedy("-n", "8")["ids"])
        self.bad(2, "--system", "run", model, "-p", "x", "--system", "y")

    def test_prompts_that_cannot_be_used(self):
        self.bad(2, "the prompt is not UTF-8: .*byte 1", "run", MODEL, "--raw", stdin=b"a\xff\xfe")
        self.bad(2, "the prompt is not UTF-8", "run", MODEL, b"\xff")
        self.bad(2, "--system is not UTF-8", "run", MODEL, "x", "--system", b"\xff")
        self.bad(2, "--prompt is given 2 times, as 'a' and 'b'", "run", MODEL, "-p", "a", "--prompt", "b")
        self.bad(2, "no tokens", "run", MODEL, "--raw", "--no-bos", "-p", "")
        done = subprocess.run(["sh", "-c", f'"{BIN}" run "{MODEL}" <&-'], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=self.env, timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.bad(3, "tokenizer", "run", self.copy_model(without=["tokenizer.json"]), "-p", "x")


    def test_an_empty_prompt_is_refused(self):
        self.bad(2, "the prompt is empty", "run", MODEL)
        self.bad(2, "the prompt is empty", "run", MODEL, stdin="\n")
        self.bad(2, "the prompt is empty", "run", MODEL, "--raw")
        self.bad(2, "the prompt is empty", "run", MODEL, "--file", self.path("empty.txt", ""))
        self.bad(2, "the prompt is empty.*--raw", "run", MODEL, "-p", "")
        # Asked for: the answer goes on from the begin token.
        self.assertEqual(self.run_json("-p", "", "--raw", "-n", "1")["timings"]["prompt_tokens"], 1)

    def test_errors_name_flags_not_fields(self):
        run = lambda pattern, *args, code=2: self.bad(code, "error: " + pattern, "run", MODEL, "x", *args)
        run("--stop: empty", "--stop", "")
        run("--stop, text 2: empty", "--stop", "a", "--stop", "")
        run(r"--stop is not UTF-8: .*\(0xff\)", "--stop", b"\xff")
        run(r"--stop, text 1 is not UTF-8", "--stop", b"\xe4\xbd", "--stop", "a")
        run(r"--min-tokens is 5, must be at most --max-tokens \(3\)", "--min-tokens", "5", "-n", "3")
        run(r"--logit-bias: token 8192 is not in the vocabulary \[0, 8192\)", "--logit-bias", "8192=1")
        run("--logit-bias: token 2 is named twice", "--logit-bias", "2=1", "--logit-bias", "2=1")
        run(r"--stop-ids: token 8192 is not", "--stop-ids", "8192")
        run("--stop-ids: entry 2 is empty", "--stop-ids", "1,,2")
        run("[0-9]+ prompt tokens and 9999 --max-tokens need .*raise --ctx", "-n", "9999", code=4)

    def test_debug_log_says_what_was_loaded(self):
        done = self.ok("run", MODEL, "x", "-n", "1", "--threads", "2", "--isa", "scalar", "--ctx", "256", "--log-level", "debug")
        size = sum(t["bytes"] for t in self.ok("show", MODEL, "--json").json["types"])
        self.assertRegex(done.error, rf"debug: loaded .*{os.path.basename(MODEL)}: safetensors, llama with 2 layers, 20 tensors of {size} bytes, context of 256 tokens, [0-9.]+ ms")
        self.assertRegex(done.error, r"debug: engine: kernels scalar, 2 threads, context of 256 tokens, kv cache in F16 of 8 pages of 32 tokens, \d+ bytes")
        self.assertNotIn("debug", self.ok("run", MODEL, "x", "-n", "1").error)


class Output(RunCase):
    def test_json_shape(self):
        value = self.greedy("-n", "5")
        self.assertEqual(len(value["ids"]), 5)
        self.assertEqual(value["finish_reason"], "length")
        self.assertIsInstance(value["seed"], int)
        timings = value["timings"]
        self.assertEqual(timings["generated_tokens"], 5)
        self.assertEqual(timings["decode_steps"], 4)
        for key in ("ttft_ms", "prefill_tokens_per_s", "decode_tokens_per_s", "decode_gb_per_s"):
            self.assertGreater(timings[key], 0, key)
        # Every weight is read in a step: the file's tensors, less its header.
        size = os.path.getsize(os.path.join(MODEL, "model.safetensors"))
        self.assertLess(abs(timings["weight_bytes_per_step"] - size), 20000)

    def test_text_goes_to_stdout_and_numbers_to_stderr(self):
        value = self.greedy("-n", "12")
        done = self.ok("run", MODEL, "-p", PROMPT, *GREEDY, "-n", "12")
        self.assertEqual(done.text, value["text"] + "\n")
        self.assertRegex(done.error, r"TTFT .* ms.*tokens/s.*GB/s")
        self.assertEqual(self.ok("run", MODEL, "-p", PROMPT, *GREEDY, "-n", "12", "--quiet").err, b"")

    def test_text_is_the_decoded_ids(self):
        value = self.greedy("-n", "40")
        text = self.ok("detokenize", MODEL, json.dumps(value["ids"]), "--no-keep-special", "--json").json["text"]
        self.assertEqual(value["text"], text)

    def test_tokens_stream(self):
        process = subprocess.Popen([BIN, "run", MODEL, "-p", PROMPT, *GREEDY, "-n", "1500", "--ignore-eos"], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, env=self.env)
        first = os.read(process.stdout.fileno(), 1 << 20)
        self.assertIsNone(process.poll())
        rest = process.stdout.read()
        process.stdout.close()
        self.assertEqual(process.wait(timeout=120), 0)
        self.assertGreater(len(rest), len(first))

    def test_n_answers(self):
        value = self.run_json("-p", PROMPT, "--raw", "-n", "8", "--n", "3", "--seed", "5")
        self.assertEqual(len(value["answers"]), 3)
        self.assertEqual(len({tuple(answer["ids"]) for answer in value["answers"]}), 3)
        alone = self.run_json("-p", PROMPT, "--raw", "-n", "8", "--seed", "6")
        self.assertEqual(value["answers"][1]["ids"], alone["ids"])
        text = self.ok("run", MODEL, "-p", PROMPT, "--raw", "-n", "8", "--n", "3", "--seed", "5").text
        # More than the default page pool holds: every answer may fill the context.
        many = self.run_json("-p", "x", "--n", "300", "-n", "5")
        self.assertEqual(len(many["answers"]), 300)
        full = self.run_json("-p", PROMPT, "--n", "6", "--stop", "e", "--seed", "1")
        self.assertEqual(len(full["answers"]), 6)
        for i, answer in enumerate(value["answers"]):
            self.assertIn(f"--- answer {i + 1} of 3 (length)\n{answer['text']}\n", text)

    def test_logprobs(self):
        value = self.greedy("-n", "4", "--logprobs", "3")
        self.assertEqual(len(value["logprobs"]), 4)
        for entry, token in zip(value["logprobs"], value["ids"]):
            self.assertEqual(entry["id"], token)
            self.assertEqual(len(entry["top"]), 3)
            self.assertEqual(entry["top"][0]["id"], token)
            self.assertEqual(entry["top"][0]["logprob"], entry["logprob"])
            self.assertLessEqual(entry["logprob"], 0)
        self.assertEqual(self.greedy("-n", "1", "--logprobs", "0")["logprobs"][0]["top"], [])
        self.bad(2, "--logprobs needs --json", "run", MODEL, "-p", "x", "--logprobs", "2")

    def test_tokens_past_the_tokenizer_have_no_text(self):
        # Models pad their matrices: Qwen2.5 has rows for some 270 ids that its tokenizer does not know.
        with open(os.path.join(MODEL, "tokenizer.json"), encoding="utf-8") as file:
            tokenizer = json.load(file)
        vocab = {piece: id for piece, id in tokenizer["model"]["vocab"].items() if id < 300}
        pairs = [pair if isinstance(pair, list) else pair.split(" ") for pair in tokenizer["model"]["merges"]]
        pairs = [pair for pair in pairs if {*pair, "".join(pair)} <= vocab.keys()]
        tokenizer["model"].update(vocab=vocab, merges=pairs)
        model = self.copy_model(replace={"tokenizer.json": json.dumps(tokenizer)})
        value = self.ok("run", model, "-p", "x", "--raw", "-n", "20", "--seed", "1", "--logprobs", "9", "--json").json
        self.assertEqual(len(value["ids"]), 20)
        known = [id for id in value["ids"] if id < 300]
        self.assertLess(len(known), 20)
        text = self.ok("detokenize", model, ",".join(map(str, known))).text if known else "\n"
        self.assertEqual(value["text"] + "\n", text)
        for entry in value["logprobs"]:
            self.assertEqual(entry["piece"] == "", entry["id"] >= 300)

    def test_end_tokens_past_the_models_rows_are_left_out(self):
        # Fine-tunes add tokens to the tokenizer and forget the matrix. Such a token cannot be drawn.
        with open(os.path.join(MODEL, "tokenizer.json"), encoding="utf-8") as file:
            tokenizer = json.load(file)
        tokenizer["model"]["vocab"]["<spare>"] = tokenizer["model"]["vocab"].pop("<|im_end|>")
        for token in tokenizer["added_tokens"]:
            if token["content"] == "<|im_end|>":
                token["id"] = 8192
        model = self.copy_model(replace={"tokenizer.json": json.dumps(tokenizer)})
        done = self.ok("run", model, "-p", "x", "--raw", "-n", "3")
        self.assertIn("warning: the tokenizer's end token 8192 is past the model's 8192 ids", done.error)
        # The chat template asks for it: the files do not belong together, so nobody's arguments are wrong.
        self.bad(3, r"the chat template uses token 8192 \(<\|im_end\|>\), but the model has rows for 8192 tokens", "run", model, "-p", "x", "-n", "3")


class Sampling(RunCase):
    """Each flag changes the answer in the way it says."""

    def sampled(self, *args):
        return self.run_json("-p", PROMPT, "--raw", "--seed", "11", "-n", "24", *args)

    def test_seed_decides(self):
        first = self.sampled()
        self.assertEqual(first["ids"], self.sampled()["ids"])
        self.assertEqual(first["seed"], 11)
        self.assertNotEqual(first["ids"], self.sampled("--seed", "12")["ids"])
        free = self.run_json("-p", PROMPT, "--raw", "-n", "24")
        again = self.run_json("-p", PROMPT, "--raw", "-n", "24", "--seed", str(free["seed"]))
        self.assertEqual(free["ids"], again["ids"])

    def test_every_cut_to_one_token_is_greedy(self):
        greedy = self.greedy("-n", "24")["ids"]
        self.assertNotEqual(self.sampled()["ids"], greedy)
        self.assertEqual(self.sampled("--temperature", "0")["ids"], greedy)
        self.assertEqual(self.sampled("--top-k", "1")["ids"], greedy)
        self.assertEqual(self.sampled("--top-p", "0.000001")["ids"], greedy)
        self.assertEqual(self.sampled("--min-p", "1")["ids"], greedy)

    def test_typical_and_temperature_change_the_law(self):
        base = self.sampled()["ids"]
        self.assertNotEqual(self.sampled("--typical-p", "0.05")["ids"], base)
        self.assertNotEqual(self.sampled("--temperature", "3")["ids"], base)

    def test_penalties(self):
        base = self.greedy("-n", "64", "--ignore-eos")["ids"]
        repeats = len(base) - len(set(base))
        self.assertGreater(repeats, 5)
        for flag in (["--repetition-penalty", "5"], ["--presence-penalty", "2"], ["--frequency-penalty", "2"]):
            ids = self.greedy("-n", "64", "--ignore-eos", *flag)["ids"]
            self.assertNotEqual(ids, base, flag)
            self.assertLess(len(ids) - len(set(ids)), repeats, flag)

    def test_logit_bias(self):
        self.assertEqual(self.greedy("-n", "3", "--logit-bias", "300=100")["ids"], [300] * 3)
        first = self.greedy("-n", "1")["ids"][0]
        second = self.greedy("-n", "1", "--logit-bias", f"{first}=-100")["ids"][0]
        self.assertNotEqual(second, first)
        third = self.greedy("-n", "1", "--logit-bias", f"{first}=-100", "--logit-bias", f"{second}=-100")["ids"][0]
        self.assertNotIn(third, (first, second))
        for value in ("x", "5", "5=", "=5", "5=x", "5=1000", "8192=1", "-1=1"):
            self.bad(2, "bias", "run", MODEL, "-p", "x", "--raw", "--logit-bias", value)

    def test_bad_words(self):
        text = self.greedy("-n", "24")["text"]
        word = next(word for word in text.split() if word.isalpha() and len(word) > 2)
        ids = self.greedy("-n", "24", "--bad-words", word)["ids"]
        self.assertNotEqual(ids, self.greedy("-n", "24")["ids"])

    def test_max_and_min_tokens(self):
        self.assertEqual(len(self.greedy("-n", "3")["ids"]), 3)
        stopped = self.greedy("-n", "9", "--stop-ids", str(self.greedy("-n", "2")["ids"][1]))
        self.assertEqual((len(stopped["ids"]), stopped["finish_reason"]), (2, "stop"))
        kept = self.greedy("-n", "9", "--stop-ids", str(self.greedy("-n", "2")["ids"][1]), "--min-tokens", "5")
        self.assertGreaterEqual(len(kept["ids"]), 5)

    def test_stop_strings(self):
        text = self.greedy("-n", "40")["text"]
        stop = text[20:26]
        at = text.index(stop)
        value = self.greedy("-n", "40", "--stop", "never in there", "--stop", stop)
        self.assertEqual(value["text"], text[:at])
        self.assertEqual((value["finish_reason"], value["matched_stop"]), ("stop", stop))
        self.assertEqual(self.greedy("-n", "40", "--stop", stop, "--include-stop")["text"], text[: at + len(stop)])
        self.assertEqual(self.ok("run", MODEL, "-p", PROMPT, *GREEDY, "-n", "40", "--stop", stop).text, text[:at] + "\n")
        self.bad(2, "stop", "run", MODEL, "-p", "x", "--stop", "")

    def test_end_tokens_of_the_model(self):
        force = ["--logit-bias", "0=100", "-n", "6"]
        self.assertEqual((lambda v: (len(v["ids"]), v["finish_reason"]))(self.greedy(*force)), (1, "stop"))
        self.assertEqual(len(self.greedy(*force, "--ignore-eos")["ids"]), 6)

    def test_generation_config_ranks_between_file_and_default(self):
        with open(os.path.join(MODEL, "generation_config.json"), encoding="utf-8") as file:
            own = json.load(file)
        config = json.dumps({**own, "top_k": 1, "max_new_tokens": 7})
        model = self.copy_model(replace={"generation_config.json": config})
        value = self.run_json("-p", PROMPT, "--raw", "--ignore-eos", model=model)
        self.assertEqual(value["ids"], self.greedy("-n", "7", "--ignore-eos")["ids"])
        wide = self.run_json("-p", PROMPT, "--raw", "--top-k", "0", "--seed", "11", "-n", "24", model=model)
        self.assertEqual(wide["ids"], self.sampled()["ids"])
        rows = {row["key"]: row for row in self.ok("config", "show", "--json", model).json["options"]}
        self.assertEqual((rows["sampling.top_k"]["value"], rows["sampling.top_k"]["origin"]), (1, "model"))
        # The model's wish yields to the context, and a bad one only matters where it is used.
        big = self.copy_model("big", replace={"generation_config.json": json.dumps({**own, "max_new_tokens": 99999, "top_p": 7})})
        self.bad(3, "top-p", "run", big, "-p", "x")
        done = self.run_json("-p", PROMPT, *GREEDY, "--top-p", "1", "--ctx", "32", "--ignore-eos", model=big)
        self.assertEqual(done["finish_reason"], "length")


class Engine(RunCase):
    def test_answers_do_not_depend_on_the_machine(self):
        expected = self.greedy("-n", "24")["ids"]
        for flags in (["--threads", "1"], ["--threads", "3"], ["--isa", "scalar"], ["--step-tokens", "1"], ["--no-prefix-cache"], ["-c", "1K"]):
            self.assertEqual(self.greedy("-n", "24", *flags)["ids"], expected, flags)
        self.assertEqual(self.greedy("-n", "24", env={"TRINE_ISA": "scalar"})["ids"], expected)

    def test_kv_type_is_used(self):
        top = [self.greedy("-n", "6", "--logprobs", "1", "--kv", kv)["logprobs"] for kv in ("f16", "bf16", "f32", "int8")]
        self.assertNotEqual(top[0], top[1])
        self.assertNotEqual(top[0], top[2])
        self.assertNotEqual(top[0], top[3])

    def test_activations_are_used(self):
        gguf = self.path("m.gguf", tiny_gguf().build(random.Random(7)))
        ids = {}
        for flags in ([], ["--activations", "int8"], ["--activations", "f32"]):
            out = self.path("x.npy")
            self.ok("logits", gguf, "--tokens", "1,2,3,4", "--out", out, *flags)
            with open(out, "rb") as file:
                ids[tuple(flags)] = file.read()
        self.assertEqual(ids[()], ids["--activations", "int8"])
        self.assertNotEqual(ids[()], ids["--activations", "f32"])
        self.bad(2, "--activations.*int8.*f32", "run", MODEL, "-p", "x", "--activations", "int4")

    def test_context_overflow_has_both_numbers(self):
        long = PROMPT * 20
        tokens = len(self.ok("tokenize", MODEL, long, "--json").json["ids"])
        self.bad(4, f"{tokens}.*50|50.*{tokens}", "run", MODEL, "-p", long, "--raw", "--ctx", "50")
        self.bad(4, "2048", "run", MODEL, "-p", PROMPT, "--raw", "-n", "4096")
        self.bad(2, "4096.*2048|2048.*4096", "run", MODEL, "-p", PROMPT, "--ctx", "4K")
        # Without a number the answer ends with the context.
        value = self.greedy("--ctx", "40", "--ignore-eos")
        self.assertEqual(value["finish_reason"], "length")
        self.assertLessEqual(value["timings"]["prompt_tokens"] + len(value["ids"]), 41)


class Interrupts(RunCase):
    LONG = ["run", MODEL, "-p", PROMPT, "--raw", "--ignore-eos", "-n", "2000"]

    def start(self, *args):
        return subprocess.Popen([BIN, *self.LONG, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)

    def test_ctrl_c_stops_with_what_there_is(self):
        process = self.start()
        first = os.read(process.stdout.fileno(), 4096)
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, err)
        self.assertTrue(first)
        self.assertIn(b"tokens/s", err)

    def test_ctrl_c_with_json_gives_the_part_as_json(self):
        process = self.start("--json")
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        if process.returncode == 0:
            self.skipTest("the machine was faster than the signal")
        self.assertEqual(process.returncode, 130, err)
        if out:
            self.assertIn(json.loads(out).get("finish_reason", "cancelled"), ("cancelled",))

    def test_ctrl_c_while_reading_the_prompt(self):
        process = subprocess.Popen([BIN, "run", MODEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, err)

    def test_closed_pipe_stops_the_work(self):
        process = self.start()
        os.read(process.stdout.fileno(), 64)
        process.stdout.close()
        err = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=120), 1, err)
        self.assertNotIn(b"error", err)


class Flags(RunCase):
    def test_no_flag_without_a_test_here(self):
        common = {"json", "quiet", "log-level", "config", "home", "catalogue"}
        tested = set(
            "prompt file raw system bos parse-special n logprobs max-tokens min-tokens temperature top-k top-p min-p "
            "typical-p repetition-penalty presence-penalty frequency-penalty logit-bias bad-words seed stop include-stop "
            "stop-ids ignore-eos json-schema grammar regex choice json-object threads ctx kv activations isa step-tokens prefix-cache".split()
        )
        self.assertEqual(flags_of(self, "run") - common, tested)


if __name__ == "__main__":
    main()
