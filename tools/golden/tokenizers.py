#!/usr/bin/env python3
"""Makes tests/golden/tokenizers: small trained tokenizers of every kind, and what the Hugging Face `tokenizers`
package does with a Unicode corpus.

Run with the Python of the golden venv (tools/golden/requirements.txt):
    python -P tools/golden/tokenizers.py [--retrain] [--smollm2 FILE.gguf] [--gemma3 FILE.gguf]
(-P: the package of the same name must win over this file). Without the model files, the goldens of those two are left
as they are. Training breaks ties by the order of hash maps and differs from run to run, so tokenizers that are there are
kept and only their answers are made anew; --retrain trains them too.
"""

import argparse
import hashlib
import json
import pathlib
import tempfile

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizers"

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL
CL100K = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
UPPER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (UPPER + "*" + LOWER + "+" + CONTRACTIONS + "?|" + UPPER + "+" + LOWER + "*" + CONTRACTIONS + "?"
         + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (UPPER + "*" + LOWER + "+|" + UPPER + "+" + LOWER + "*"
          + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DEFAULT = [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"[!" + '"' + r"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]

TRAINING = """The quick brown fox jumps over the lazy dog. It's the model's own words, and they're not what we've seen.
A tokenizer turns text into numbers; a detokenizer turns the numbers into text again. The two must agree on every byte.
I'LL SAY IT AGAIN: WE'RE NOT DONE. camelCaseWords and snake_case_words, HTTPServer, parseJSONFile, iPhone, eBook.
for (int i = 0; i < 10; ++i) {\n    total += values[i] * 3.14159;\n}\n\treturn total;\n
def main():\n    print("hello, world")  # comment\n    return {"key": [1, 2, 3]}\n
In 1984 there were 12345 of them, in 2024 some 1,234,567.89; call 555-0123 or 00420 for more.
Größe, Straße, Übung, naïve, café, façade, jalapeño, Zürich, Malmö, Ærø, œuvre, İstanbul, ısı.
Быстрая коричневая лиса прыгает через ленивую собаку. Съешь же ещё этих мягких французских булок.
Η γρήγορη αλεπού πηδά πάνω από τον τεμπέλη σκύλο. Ὀδυσσεύς.
快速的棕色狐狸跳过懒狗。人工智能模型的分词器把文本变成数字。東京は日本の首都です。カタカナとひらがな。한국어 문장도 있습니다.
तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है। வணக்கம் உலகம். বাংলা ভাষা। ภาษาไทยไม่มีช่องว่าง
الثعلب البني السريع يقفز فوق الكلب الكسول. שלום עולם. سلام دنیا، چطوری؟
emoji 😀😃 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 ❤️ 🇩🇪🇫🇷 and symbols ± × ÷ € £ ¥ © ® ™ … — – “quoted” ‘single’ «guillemets»
"""

CORPUS = [
    "", " ", "  ", "a", "Hello", " Hello", "Hello ", "  Hello  world  ", "Hello, world!", "hello\nworld", "hello\r\nworld\r\n",
    "\n", "\n\n\n", "\t", " \t \n x", "a\n\n  b\n   \n\tc", "trailing   ", "trailing\n  ", "\u00a0nbsp\u00a0\u00a0x", "\u3000wide\u3000space",
    "line\u2028sep\u2029para\u0085nel", "a\u200bzero\u200cwidth\u200djoin\ufeffbom", "\u180emongolian\u180e vowel separator",
    "It's they're we've I'm you'll he'd don't", "IT'S THEY'RE WE'VE I'M YOU'LL HE'D DON'T", "'s't're've'm'll'd", "'S'T'RE 'ſ x'ſtory", "''''s '' ' ",
    "camelCase HTTPServer parseJSONFile iPhone XMLHttpRequest ABCdef abcDEF AbCdEf", "ǅungla ǅ ʰmodifier ªº Ⅷ ⅷ",
    "0 1 12 123 1234 12345 123456 1234567", "3.14159 1,234,567.89 -5 +7 1e10 0x1F", "١٢٣٤٥ ९८७६ 一二三 ½ ² ⅓ ⑦ ㊿ 𝟘𝟙𝟚",
    "caf\u00e9 na\u00efve \u00c5ngstr\u00f6m", "cafe\u0301 nai\u0308ve A\u030angstro\u0308m", "e\u0301\u0323 e\u0323\u0301 \u1e69 s\u0323\u0307 s\u0307\u0323", "q\u0307\u0323\u0301\u0300\u0327",
    "\ufb01ligature \u2460 \uff21\uff22\uff23 \u33a5 \u2126 \u212b", "\uac00\ub098 \u1100\u1161\u11a8 \u3131", "\u0344 \u0958 \u0f73 \ufb2a \u2adc",
    "Größe Straße ÜBUNG İstanbul ISI ıi ẞ", "Быстрая лиса прыгает. ЩУКА ёж", "Ελληνικά ΣΊΣΥΦΟΣ ςσ Ὀδυσσεύς",
    "快速的棕色狐狸跳过懒狗。", "東京は日本の首都です。カタカナ ｶﾀｶﾅ ﾊﾟ", "한국어 문장도 있습니다.", "中文English混合123文本，标点！", "𠀀𪚥 extension B",
    "तेज़ भूरी लोमड़ी क्षत्रिय", "வணக்கம் உலகம்", "বাংলা ভাষা", "ภาษาไทยไม่มีช่องว่าง", "မြန်မာဘာသာ", "ខ្មែរ",
    "الثعلب البني السريع", "مَرْحَبًا بِالعَالَم", "שָׁלוֹם עולם", "\u202bRTL\u202c \u2066isolate\u2069", "سلام دنیا، چطوری؟",
    "😀", "😀😃😄", "👍🏽", "👨‍👩‍👧‍👦 family", "🏳️‍🌈 ❤️ ☎️", "🇩🇪🇫🇷🇯🇵", "1️⃣ 2️⃣ #️⃣", "a😀b 😀 c", "🫠🥹",
    "\x00\x01\x02\x07\x1b[0m\x7f", "\x80\x9f\u0085 C1", "null\x00inside", "\ufffd replacement \ufffe\uffff", "\ue000 private \U000f0000", "\u0378 unassigned \U0003fffd",
    "a" * 300, "ab" * 150, " " * 200, "\n" * 60, " " * 37 + "x", "\t" * 20 + "y", "-" * 150, "=" * 3 + "+" * 4, "1" * 100, "é" * 80, "e\u0301" * 40, "世" * 60, "😀" * 30, "aA" * 60, "あA" * 40, "A" * 80, "!?" * 40, "\u0301" * 50, "\r\n" * 20, " \n" * 20,
    "for (int i = 0; i < 10; ++i) {\n    sum += v[i];\n}\n", "def f(x):\n\treturn x**2  # square\n", "<div class=\"a\">text</div>", "https://example.org/path?q=1&r=a%20b#frag", "user@example.org", "C:\\path\\file.txt", "{\"k\": [1, 2.5, null]}", "$x^2 + y_1 = \\frac{a}{b}$", "/usr/bin/env\n///\n//", "a/b/c\n/\nd",
    "snake_case __init__ _private CONST_VALUE", "“quoted” ‘single’ «guillemets» — – …", "±×÷€£¥©®™§¶†‡•", "\u0300leading mark", " \u0301space then mark", "ab\u0301\u0302cd", "z\u0337a\u0335l\u0338g\u0336o",
    "▁already▁escaped ▁ x", "<0x0A> <0xE2><0x96>", "<unk> <s> </s>", "[CLS] text [SEP]",
    "<|bos|>after", "before<|eos|>", "a <|eos|> b", "<|eos|><|eos|>", "<|bos|", "<|eos|>\n<|bos|>x", "x<|pad|>  y  <|pad|>", "word<|single|>word <|single|> .<|single|>.", "  <|lstrip|>  x", "x  <|rstrip|>  y<|rstrip|>", "USERTOKEN and xUSERTOKENx usertoken", "МАЙ маи\u0306 май майка смай май.", "<|eos|> <|lstrip|> <|rstrip|> <|eos|>", "<s>[INST] hi [/INST]</s>",
    "Mixed: naïve 日本語 тест 123 😀\n\tEnd.", "The tokenizer's own words aren't ours; they'd say 'we'll see' at 12:30.",
]

SPECIALS = [
    AddedToken("<|bos|>", special=True, normalized=False), AddedToken("<|eos|>", special=True, normalized=False),
    AddedToken("<|pad|>", special=True, normalized=False), AddedToken("<|lstrip|>", special=True, normalized=False, lstrip=True),
    AddedToken("<|rstrip|>", special=True, normalized=False, rstrip=True), AddedToken("<|single|>", special=True, normalized=False, single_word=True),
]
USERS = [AddedToken("USERTOKEN", special=False, normalized=False), AddedToken("май", special=False, normalized=True, single_word=True), AddedToken("    ", special=False, normalized=False)]


def byte_level_bpe(name, splits, *, normalizer=None, prefix=False, regex=False, ignore_merges=False, template=False, digits=False, vocab=560, users=True):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tok.normalizer = normalizer
    steps = [pre_tokenizers.Split(Regex(s), "isolated") for s in splits]
    if digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex))
    tok.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=[], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tok.train_from_iterator([TRAINING] * 3 + TRAINING.split("\n"), trainer)
    tok.add_special_tokens(SPECIALS)
    if users:
        tok.add_tokens(USERS)
    if template:
        bos = tok.token_to_id("<|bos|>")
        tok.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", bos)])])
    else:
        tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return name, tok


def spm_bpe_parts(vocab_size):
    """Pieces and scores as SentencePiece's BPE has them, and all merges between them (what converted models carry)."""
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, limit_alphabet=180, show_progress=False)
    tok.train_from_iterator(TRAINING.split("\n"), trainer)
    trained = sorted(tok.get_vocab().items(), key=lambda kv: kv[1])
    pieces = [p for p, _ in trained if len(p) > 1] + ["▁▁", "▁▁▁▁", "\n\n"]
    chars = sorted({p for p, _ in trained if len(p) == 1} | {"▁", "\n", "\t"})
    pieces = [p for p in dict.fromkeys(pieces)]
    vocab = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    scores = [0.0] * len(vocab)
    for rank, piece in enumerate(pieces + chars):
        vocab.append(piece)
        scores.append(-float(rank))
    ids = {p: i for i, p in enumerate(vocab)}
    merges = []
    for piece in pieces:
        local = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in ids and piece[i:] in ids]
        merges += [(scores[ids[piece]], pair) for pair in sorted(local, key=lambda pair: (ids[pair[0]], ids[pair[1]]))]
    merges = [pair for _, pair in sorted(merges, key=lambda item: -item[0])]
    return ids, scores, merges


def spm_bpe(name, *, style):
    ids, scores, merges = spm_bpe_parts(520)
    tok = Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    strip = [decoders.Strip(" ", 1, 0)]
    if style == "llama2":
        tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif style == "metaspace":
        tok.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    elif style == "gemma":
        tok.normalizer = normalizers.Replace(" ", "▁")
        tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        strip = []
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + strip)
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")] + SPECIALS[:3])
    if style == "gemma":
        tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in ("\n\n", "\n\n\n", "▁▁", "[INST]")])
    bos = tok.token_to_id("<s>")
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    return name, tok, scores


def unigram(name, *, byte_fallback, scheme, normalizer):
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizer
    tok.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme)
    trainer = trainers.UnigramTrainer(vocab_size=420, unk_token="<unk>", special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    tok.train_from_iterator(TRAINING.split("\n"), trainer)
    vocab = [tuple(v) for v in json.loads(tok.to_str())["model"]["vocab"]]
    # Fewer digits keep the file small and are exact in float32, as a GGUF file would store them.
    vocab = [(p, round(s * 64) / 64) for p, s in vocab]
    if byte_fallback:
        vocab += [(f"<0x{b:02X}>", 0.0 if b % 2 else -1.0) for b in range(256)]
    tok.model = models.Unigram(vocab, unk_id=0, byte_fallback=byte_fallback)
    tok.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("▁", prepend_scheme=scheme)]) if byte_fallback else decoders.Metaspace("▁", prepend_scheme=scheme)
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")] + SPECIALS[:3])
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", tok.token_to_id("</s>"))])
    return name, tok, [s for _, s in vocab]


def charsmap():
    """A small precompiled character map, made by SentencePiece from a rule table."""
    import sentencepiece

    rules = [("\u00a0", " "), ("\u3000", " "), ("\t", " "), ("\u200b", ""), ("\ufb01", "fi"), ("\uff21", "A"), ("\u00c9", "e"), ("e\u0301", "\u00e9"), ("\u2126", "\u03a9"), ("\u2026", "..."), ("ab", "AB"), ("a", "x")]
    with tempfile.TemporaryDirectory() as tmp:
        tsv = pathlib.Path(tmp, "rules.tsv")
        tsv.write_text("".join(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in rules))
        data = pathlib.Path(tmp, "data.txt")
        data.write_text(TRAINING)
        sentencepiece.SentencePieceTrainer.train(input=str(data), model_prefix=str(pathlib.Path(tmp, "m")), vocab_size=350, normalization_rule_tsv=str(tsv), hard_vocab_limit=False, minloglevel=2)
        from sentencepiece import sentencepiece_model_pb2 as pb

        model = pb.ModelProto()
        model.ParseFromString(pathlib.Path(tmp, "m.model").read_bytes())
        return bytes(model.normalizer_spec.precompiled_charsmap)


def components():
    """Normalizers and pre-tokenizers by themselves, on texts that tell their variants apart."""
    import base64

    texts = ["Hello  World! 123", " a,b..c ", "x--y - z", "  Ünï cödé\u00a0\u3000 É e\u0301 ", "don't 'stop' ﬁ", "a1b22c333", "\n\tx\r\n", "▁▁a ▁b", "日本語 テスト。", "_a_b__ c", "", " ", "ab a\u0301b", "İI ΣΣ ẞ", "१२ ½ Ⅷ", "a\u200cb\u200dc Ⓐ", "\uff21\u2126…aab", "$$x^2`~+<=>|"]
    norms = [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Prepend("▁"), normalizers.Replace(" ", "▁"), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Replace(Regex(r"\w"), "w"), normalizers.Replace(Regex(r"[^\s\d]+"), "-"), normalizers.Strip(), normalizers.Strip(left=True, right=False), normalizers.Strip(left=False, right=True), normalizers.Lowercase(), normalizers.StripAccents(), normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]), normalizers.Precompiled(charsmap())]
    pres = [pre_tokenizers.Split(p, b, invert=i) for p in (Regex(r"\s+"), Regex("[a-z]"), "-", " ") for b in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous") for i in (False, True)]
    pres += [pre_tokenizers.Digits(individual_digits=i) for i in (False, True)] + [pre_tokenizers.Punctuation(b) for b in ("isolated", "removed", "contiguous")]
    pres += [pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit()] + [pre_tokenizers.Metaspace("▁", prepend_scheme=s, split=p) for s in ("always", "first", "never") for p in (False, True)]
    pres += [pre_tokenizers.ByteLevel(add_prefix_space=a, use_regex=u) for a in (False, True) for u in (False, True)]
    pres += [pre_tokenizers.Split(Regex(r), "isolated") for r in (r"^.|.$", r"(?<=\p{L})\d", r"(?i:é|ü)", r"\x{41}|\u00e9|[\p{Lu}&]|\d{2,3}")]
    pres += [pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("▁", prepend_scheme="first"), pre_tokenizers.Digits(True)])]
    out = {"texts": texts, "normalizers": [], "pre_tokenizers": []}
    for n in norms:
        tok = Tokenizer(models.BPE())
        tok.normalizer = n
        out["normalizers"].append({"json": json.loads(tok.to_str())["normalizer"], "out": [n.normalize_str(t) for t in texts]})
    for p in pres:
        tok = Tokenizer(models.BPE())
        tok.pre_tokenizer = p
        out["pre_tokenizers"].append({"json": json.loads(tok.to_str())["pre_tokenizer"], "out": [[piece for piece, _ in p.pre_tokenize_str(t)] for t in texts]})
    return out


def dump(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


def pack(lists):
    """One line of text per list of numbers keeps the files small and their differences readable."""
    return [" ".join(map(str, ids)) for ids in lists]


def results(tok, corpus, blank=()):
    """`blank`: lines where Trine differs on purpose (docs/tokenizers.md), stored as false."""
    out = {}
    tok.encode_special_tokens = False
    encoded = [tok.encode(t, add_special_tokens=True).ids for t in corpus]
    out["special"] = pack(encoded)
    tok.encode_special_tokens = True
    out["plain"] = pack(tok.encode(t, add_special_tokens=False).ids for t in corpus)
    tok.encode_special_tokens = False
    decoded = [tok.decode(ids, skip_special_tokens=True) for ids in encoded]
    out["decoded"] = [None if d == t else d for d, t in zip(decoded, corpus)]  # null: the text itself
    out["decoded_all"] = [None if d == t else d for d, t in zip((tok.decode(ids, skip_special_tokens=False) for ids in encoded), decoded)]  # null: as above
    for key, values in out.items():
        for i, line in enumerate(corpus):
            if any(mark in line for mark in blank):
                values[i] = False
    return out


def write(name, tok, gguf, retrain, blank=()):
    file = OUT / f"{name}.tokenizer.json"
    if file.exists() and not retrain:
        tok = Tokenizer.from_file(str(file))
        gguf = json.loads((OUT / f"{name}.golden.json").read_text(encoding="utf-8"))["gguf"]
    else:
        dump(file, json.loads(tok.to_str()))
    dump(OUT / f"{name}.golden.json", {"gguf": gguf, **results(tok, CORPUS, blank)})


def gguf_tokenizer(path):
    """A `tokenizers` object from the arrays of a real GGUF file, and its golden."""
    import gguf

    reader = gguf.GGUFReader(path)
    field = lambda key: reader.fields[f"tokenizer.ggml.{key}"].contents()
    tokens, kinds = field("tokens"), field("token_type")
    if field("model") == "gpt2":
        assert field("pre") == "smollm"
        tok = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[tuple(m.split(" ")) for m in field("merges")]))
        tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
        tok.decoder = decoders.ByteLevel()
    else:
        scores = field("scores")
        ids = {t: i for i, t in enumerate(tokens)}
        merges = []
        for piece, i in ids.items():
            if kinds[i] != 1 or len(piece) == 1:
                continue
            local = [(piece[:k], piece[k:]) for k in range(1, len(piece))]
            local = [(l, r) for l, r in local if l in ids and r in ids and kinds[ids[l]] == 1 and kinds[ids[r]] == 1]
            merges += [(scores[i], pair) for pair in sorted(local, key=lambda pair: (ids[pair[0]], ids[pair[1]]))]
        merges = [pair for _, pair in sorted(merges, key=lambda item: -item[0])]
        tok = Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        tok.normalizer = normalizers.Replace(" ", "▁")
        tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, kinds) if k in (2, 3)])
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t, k in zip(tokens, kinds) if k == 4])
    return tok


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--retrain", action="store_true")
    parser.add_argument("--smollm2")
    parser.add_argument("--gemma3")
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    dump(OUT / "corpus.json", CORPUS)
    dump(OUT / "components.json", components())
    for (name, tok), pre in [
        (byte_level_bpe("gpt2", [], regex=True), "gpt-2"),
        (byte_level_bpe("gpt2-prefix", [], regex=True, prefix=True, users=False), None),
        (byte_level_bpe("llama3", [LLAMA3], ignore_merges=True, template=True), "llama-bpe"),
        (byte_level_bpe("cl100k", [CL100K]), None),
        (byte_level_bpe("qwen2", [QWEN2], normalizer=normalizers.NFC()), None),
        (byte_level_bpe("qwen2-plain", [QWEN2], users=False), "qwen2"),
        (byte_level_bpe("o200k", [O200K]), "gpt-4o"),
        (byte_level_bpe("tekken", [TEKKEN], ignore_merges=True, template=True), "tekken"),
        (byte_level_bpe("smollm", [], digits=True, regex=True), "smollm"),
        (byte_level_bpe("deepseek", DEEPSEEK, users=False), "deepseek-v3"),
        (byte_level_bpe("default", DEFAULT, users=False), "default"),
    ]:
        write(name, tok, {"model": "gpt2", "pre": pre} if pre else None, args.retrain)
    for name, tok, scores in [spm_bpe("llama2", style="llama2"), spm_bpe("llama2-metaspace", style="metaspace"), spm_bpe("gemma", style="gemma")]:
        write(name, tok, {"model": "llama", "scores": scores, "add_space_prefix": name == "llama2"} if name != "llama2-metaspace" else None, args.retrain)
    for name, tok, scores in [
        unigram("unigram", byte_fallback=False, scheme="always", normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])),
        unigram("unigram-bytes", byte_fallback=True, scheme="first", normalizer=normalizers.NFC()),
        unigram("unigram-map", byte_fallback=True, scheme="never", normalizer=normalizers.Precompiled(charsmap())),
    ]:
        write(name, tok, None, args.retrain, blank=("<0x", "</s>"))
    for name, path in (("smollm2-135m", args.smollm2), ("gemma3-270m", args.gemma3)):
        if path:
            tok = gguf_tokenizer(path)
            dump(OUT / f"{name}.golden.json", results(tok, CORPUS))
    print("tokenizers", tokenizers.__version__)


if __name__ == "__main__":
    main()
