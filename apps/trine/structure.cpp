#include "apps/trine/structure.h"

#include <string>
#include <utility>

#include "apps/trine/input.h"

namespace trine::app {

namespace {

// A schema is an object, true or false, so a text that begins so is none of a file's name.
bool is_schema_text(std::string_view value) {
  const std::size_t first = value.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos &&
         (value[first] == '{' || value == "true" || value == "false");
}

Result<grammar::AutomatonPtr> compile_option(std::string_view name,
                                             const options::Settings& settings) {
  if (name == "json-object") {
    return grammar::compile_json_object();
  }
  if (name == "choice") {
    return grammar::compile_choice(settings.list(name));
  }
  const std::string& value = settings.text(name);
  if (name == "regex") {
    return grammar::compile_regex(value);
  }
  if (name == "json-schema" && is_schema_text(value)) {
    return grammar::compile_json_schema(value);
  }
  TRINE_TRY_ASSIGN(const std::string text, read_file(value));
  return name == "grammar" ? grammar::compile_gbnf(text) : grammar::compile_json_schema(text);
}

}  // namespace

std::vector<std::string_view> structure_options() {
  return {"json-schema", "grammar", "regex", "choice", "json-object"};
}

Result<grammar::AutomatonPtr> asked_structure(const options::Settings& settings) {
  std::string_view asked;
  for (const std::string_view name : structure_options()) {
    const bool given = name == "json-object" ? settings.flag(name) : settings.has(name);
    if (given && !asked.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  "--{} and --{} both say what the answer must match; give one", asked, name);
    }
    asked = given ? name : asked;
  }
  if (asked.empty()) {
    return grammar::AutomatonPtr();
  }
  auto made = compile_option(asked, settings);
  if (!made.has_value()) {
    return tl::unexpected(std::move(made).error().with_context(fmt::format("--{}", asked)));
  }
  return made;
}

}  // namespace trine::app
