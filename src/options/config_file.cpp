// Settings::apply_file: TOML through toml++, the only file that includes it. Keys are
// <group>.<name>.
#include <cmath>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "options/settings.h"

namespace trine::options {

namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

std::string place_of(const std::string& path, const toml::node& node) {
  return fmt::format("{}:{}", path, node.source().begin.line);
}

std::string_view toml_type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a float";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

std::string_view wanted_type(Type type) {
  switch (type) {
    case Type::kBool:
      return "true or false";
    case Type::kInteger:
    case Type::kUnsigned:
      return "an integer";
    case Type::kSize:
      return "an integer or a string such as \"32K\"";
    case Type::kNumber:
      return "a number";
    case Type::kText:
    case Type::kChoice:
      return "a string";
    case Type::kList:
      return "an array of strings or numbers";
  }
  return "a string";
}

// A scalar as the text parse_value reads, or nullopt when the TOML type does not suit the option's
// type.
std::optional<std::string> scalar_text(const toml::node& node, Type type) {
  const bool number = type == Type::kNumber;
  const bool whole = type == Type::kInteger || type == Type::kUnsigned || type == Type::kSize;
  if (const auto* b = node.as_boolean(); b != nullptr && type == Type::kBool) {
    return std::string(b->get() ? "true" : "false");
  }
  if (const auto* i = node.as_integer(); i != nullptr && (whole || number || type == Type::kList)) {
    return fmt::format("{}", i->get());
  }
  if (const auto* f = node.as_floating_point(); f != nullptr && (number || type == Type::kList)) {
    return fmt::format("{}", f->get());
  }
  if (const auto* s = node.as_string();
      s != nullptr && (type == Type::kText || type == Type::kChoice || type == Type::kSize ||
                       type == Type::kList)) {
    return s->get();
  }
  return std::nullopt;
}

Result<Value> read_node(const Option& option, const toml::node& node, const std::string& where) {
  const auto mismatch = [&](const toml::node& bad) {
    return fail(ErrorCode::kInvalidArgument, "{}: {} where {} is expected", where,
                toml_type_name(bad), wanted_type(option.type));
  };
  if (option.type == Type::kList && node.is_array()) {
    std::vector<std::string> list;
    for (const toml::node& element : *node.as_array()) {
      const auto text = scalar_text(element, option.type);
      if (!text.has_value()) {
        return mismatch(element);
      }
      list.push_back(*text);
    }
    return list;
  }
  const auto text = scalar_text(node, option.type);
  if (!text.has_value()) {
    return mismatch(node);
  }
  return parse_value(option, *text, where);
}

tl::unexpected<Error> unknown_key(const std::string& place, const std::string& key) {
  std::vector<std::string> keys;
  for (const Option& option : option_table()) {
    if (option.sources == Sources::kAll) {
      keys.push_back(file_key(option));
    }
  }
  const std::string guess = nearest(key, keys);
  return fail(ErrorCode::kInvalidArgument,
              "{}: unknown key '{}'{}; `trine config show` lists all keys", place, key,
              guess.empty() ? "" : fmt::format(", did you mean '{}'?", guess));
}

Status apply_table(Settings& settings, const toml::table& root, const std::string& path) {
  for (const auto& [group_key, group_node] : root) {
    const std::string group(group_key.str());
    if (!group_node.is_table()) {
      return unknown_key(place_of(path, group_node), group);
    }
    bool known_group = false;
    for (const OptionGroup& row : option_groups()) {
      known_group = known_group || row.name == group;
    }
    if (!known_group) {
      return unknown_key(place_of(path, group_node), group);
    }
    for (const auto& [key, node] : *group_node.as_table()) {
      const std::string full = group + "." + std::string(key.str());
      const std::string place = place_of(path, node);
      const Option* found = nullptr;
      for (const Option& option : option_table()) {
        if (option.sources == Sources::kAll && file_key(option) == full) {
          found = &option;
        }
      }
      if (found == nullptr) {
        return unknown_key(place, full);
      }
      TRINE_TRY_ASSIGN(Value value, read_node(*found, node, fmt::format("{}: {}", place, full)));
      settings.set(found->name, std::move(value), Origin::kFile, place);
    }
  }
  return {};
}

}  // namespace

Status Settings::apply_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return fail(ErrorCode::kNotFound, "{}: cannot open the configuration file", path);
  }
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (in.fail() && !in.eof())) {
    return fail(ErrorCode::kInvalidArgument, "{}: cannot read the configuration file", path);
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMaxFileBytes) {
    return fail(ErrorCode::kInvalidArgument, "{}: configuration file larger than {} bytes", path,
                kMaxFileBytes);
  }
  return apply_file_text(text, path);
}

Status Settings::apply_file_text(std::string_view text, const std::string& path) {
  try {
    const toml::table root = toml::parse(text, path);
    return apply_table(*this, root, path);
  } catch (const toml::parse_error& error) {
    return fail(ErrorCode::kInvalidArgument, "{}:{}: {}", path, error.source().begin.line,
                error.description());
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInvalidArgument, "{}: {}", path, error.what());
  }
}

}  // namespace trine::options
