// The option table: every option of the product once, with its type, default, unit, range, scope
// and help.
//
// Flags, environment variables, keys of the configuration file, `trine config show`, shell
// completion and docs/options.md are all read from this table, so they cannot disagree. A command
// names the rows it takes. Order of precedence: flag > environment > file > the model's
// generation_config > default. Thread rule: constants and pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trine::options {

enum class Type : std::uint8_t {
  kBool,      // --name and --no-name; true or false elsewhere
  kInteger,   // 64-bit signed
  kUnsigned,  // 64-bit unsigned (seeds)
  kSize,  // integer with an optional suffix: 32k = 32000, 32K = 32768, also m/M, g/G, KiB, MiB, GiB
  kNumber,  // finite double
  kText,
  kChoice,  // one of `choices`
  kList,  // repeated flag; array of strings or numbers in the file; one comma-separated line in the
          // environment
};

// How far a value reaches: the whole process, one loaded model, or one request.
enum class Scope : std::uint8_t { kProcess, kModel, kRequest };

// Where a value may be set. Per-call inputs (a prompt, an output file) make no sense in a file or a
// variable; the location of the file cannot be in it; a secret on a command line can be read by
// every user of the machine.
enum class Sources : std::uint8_t { kAll, kFlagOrEnv, kFlagOnly, kEnvOnly };

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

struct Option {
  std::string_view name = {};  // "top-p": flag --top-p, key <group>.top_p, variable TRINE_TOP_P
  char short_name = '\0';
  Type type = Type::kText;
  std::string_view group = {};  // heading in help and table name in the file: "sampling"
  Scope scope = Scope::kRequest;
  Sources sources = Sources::kAll;
  std::string_view default_text = {};  // in the syntax of the environment; empty: unset
  std::string_view unset_note = {};    // what unset means, for help: "the model's own"
  std::string_view unit = {};          // "tokens", "bytes"; empty for pure numbers
  double min = -kNoLimit;
  double max = kNoLimit;
  bool min_exclusive = false;
  std::string_view choices = {};      // "f16|bf16|f32"
  std::string_view placeholder = {};  // in help: N, FILE, TEXT; empty: from the type
  std::string_view help = {};         // one sentence without a full stop
  std::string_view env_name = {};     // when it is not TRINE_<NAME>
};

// All rows, grouped, in the order of help and docs.
std::span<const Option> option_table();

// Groups in the order of the table, with a heading each.
struct OptionGroup {
  std::string_view name;
  std::string_view title;
};

std::span<const OptionGroup> option_groups();

// nullptr when there is no such row.
const Option* find_option(std::string_view name);

std::string env_name(const Option& option);
// "sampling.top_p"; for options that can be set in a file.
std::string file_key(const Option& option);
// "N", "FILE", "f16|bf16|f32"; empty for kBool.
std::string placeholder(const Option& option);
// "0 to 2", "> 0", "" when there is no limit.
std::string range_text(const Option& option);
std::string_view type_name(Type type);
std::string_view scope_name(Scope scope);

// The candidate nearest to `word` by edit distance (transpositions count once), or empty when none
// is near enough to be a likely typo.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace trine::options
