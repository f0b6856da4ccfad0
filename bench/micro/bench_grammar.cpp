// Structured output on a vocabulary of 49,152 tokens: compiling, the first mask of a place, a mask
// that is remembered, accepting a token. The vocabulary is random words over text bytes with every
// single byte, as byte-level BPE has them.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include <benchmark/benchmark.h>

#include "grammar/compile.h"

namespace trine::grammar {
namespace {

constexpr std::size_t kVocabulary = 49152;

std::shared_ptr<const TokenTrie> vocabulary() {
  static const std::shared_ptr<const TokenTrie> made = [] {
    std::vector<std::string> tokens{""};  // the end token
    for (int byte = 0; byte < 256; ++byte) {
      tokens.emplace_back(1, static_cast<char>(byte));
    }
    const std::string_view letters =
        "eeeeeeetttttaaaaaooooiiiinnnnsssshhhrrrddlllcuummwfgypbvkETAOIN0123456789.,:;\"{}[]()-_/";
    std::mt19937_64 random(1);
    std::unordered_set<std::string> seen;
    while (tokens.size() < kVocabulary) {
      std::string token(random() % 2, ' ');
      for (std::uint64_t i = 0, size = 1 + random() % 8; i <= size; ++i) {
        token += letters[random() % letters.size()];
      }
      if (seen.insert(token).second) {
        tokens.push_back(token);
      }
    }
    return TokenTrie::build(std::move(tokens), std::vector<std::int32_t>{0});
  }();
  return made;
}

struct Source {
  const char* name;
  Notation notation;
  const char* text;
  const char* start;  // of an answer: where masks are measured
};

const Source kSources[] = {
    {"json_object", Notation::kJsonObject, "", "{\"a"},
    {"schema", Notation::kJsonSchema,
     R"({"type":"object","properties":{"name":{"type":"string","maxLength":40},"age":{"type":"integer","minimum":0,"maximum":150},)"
     R"("tags":{"type":"array","items":{"type":"string"},"maxItems":8},"address":{"type":"object","properties":{"street":{"type":"string"},)"
     R"("zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["street","zip"]}},"required":["name","age","tags","address"]})",
     "{\"name\":\"a"},
    {"regex", Notation::kRegex, "([A-Za-z ]{1,200}[.!?] ){1,20}", "Some "},
    {"gbnf_sum", Notation::kGbnf,
     "root ::= term ((\" + \" | \" * \") term)*\nterm ::= [0-9]+ | \"(\" root \")\"\n", "(12 + "},
    {"choice", Notation::kChoice, R"(["positive","negative","neutral"])", "ne"},
};

std::shared_ptr<const Automaton> automaton_of(const Source& source) {
  auto made = compile(source.notation, source.text);
  if (!made.has_value()) {
    std::fprintf(stderr, "bench_grammar: %s: %s\n", source.name, made.error().message.c_str());
    std::exit(1);
  }
  return *std::move(made);
}

Matcher started(const Source& source, const std::shared_ptr<const Automaton>& automaton) {
  auto made = Matcher::create(CompiledGrammar::create(automaton, vocabulary()));
  if (!made.has_value() || !made->accept_bytes(source.start).has_value()) {
    std::fprintf(stderr, "bench_grammar: %s: the answer cannot begin so\n", source.name);
    std::exit(1);
  }
  return *std::move(made);
}

void BM_Compile(benchmark::State& state) {
  const Source& source = kSources[state.range(0)];
  for (auto _ : state) {
    benchmark::DoNotOptimize(automaton_of(source));
  }
  state.SetLabel(source.name);
}

// With nothing remembered, as in the first step of a new grammar.
void BM_FirstMask(benchmark::State& state) {
  const Source& source = kSources[state.range(0)];
  const auto automaton = automaton_of(source);
  std::vector<std::uint64_t> mask(vocabulary()->mask_words());
  for (auto _ : state) {
    state.PauseTiming();
    Matcher matcher = started(source, automaton);
    state.ResumeTiming();
    benchmark::DoNotOptimize(matcher.mask(mask).has_value());
  }
  state.SetLabel(source.name);
}

void BM_RememberedMask(benchmark::State& state) {
  const Source& source = kSources[state.range(0)];
  Matcher matcher = started(source, automaton_of(source));
  std::vector<std::uint64_t> mask(vocabulary()->mask_words());
  for (auto _ : state) {
    benchmark::DoNotOptimize(matcher.mask(mask).has_value());
  }
  state.SetLabel(source.name);
}

// An answer of up to 64 tokens drawn along the masks, each with its mask: what steps cost, the new
// places of an answer among them.
void BM_Answer(benchmark::State& state) {
  const Source& source = kSources[state.range(0)];
  const auto automaton = automaton_of(source);
  std::vector<std::uint64_t> mask(vocabulary()->mask_words());
  std::mt19937_64 random(2);
  std::int64_t steps = 0;
  for (auto _ : state) {
    Matcher matcher = started(source, automaton);
    for (int i = 0; i < 64 && !matcher.is_complete() && !matcher.is_finished(); ++i, ++steps) {
      if (!matcher.mask(mask).has_value()) {
        state.SkipWithError("a work budget is exhausted");
        return;
      }
      // Any allowed token, the first from a random place on.
      auto id = static_cast<std::int32_t>(random() % kVocabulary);
      while ((mask[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) == 0) {
        id = (id + 1) % static_cast<std::int32_t>(kVocabulary);
      }
      if (!matcher.accept(id).has_value()) {
        state.SkipWithError("a masked token is refused");
        return;
      }
    }
  }
  state.SetLabel(source.name);
  state.counters["per_token"] = benchmark::Counter(
      static_cast<double>(steps), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void BM_Vocabulary(benchmark::State& state) {
  std::vector<std::string> tokens(kVocabulary);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = std::string(vocabulary()->bytes(static_cast<std::int32_t>(i)));
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(TokenTrie::build(tokens, std::vector<std::int32_t>{0}));
  }
}

BENCHMARK(BM_Vocabulary)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Compile)->DenseRange(0, 4)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_FirstMask)->DenseRange(0, 4)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_RememberedMask)->DenseRange(0, 4)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Answer)->DenseRange(0, 4)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace trine::grammar

BENCHMARK_MAIN();
