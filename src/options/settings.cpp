#include "options/settings.h"

#include <algorithm>
#include <cstdlib>

#include "base/check.h"

namespace trine::options {

namespace {

std::size_t index_of(std::string_view name) {
  const Option* option = find_option(name);
  TRINE_CHECK(option != nullptr);
  return static_cast<std::size_t>(option - option_table().data());
}

std::vector<std::string> split_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string_view origin_name(Origin origin) {
  switch (origin) {
    case Origin::kDefault:
      return "default";
    case Origin::kModel:
      return "model";
    case Origin::kFile:
      return "file";
    case Origin::kEnvironment:
      return "environment";
    case Origin::kFlag:
      return "flag";
  }
  return "default";
}

Settings::Settings() {
  for (const Option& option : option_table()) {
    Slot slot;
    if (!option.default_text.empty()) {
      Result<Value> value = parse_value(option, option.default_text, option.name);
      TRINE_CHECK(value.has_value());  // the table's own default; a unit test covers every row
      slot.value = *std::move(value);
    } else if (option.type == Type::kBool) {
      slot.value = false;
    }
    slots_.push_back(std::move(slot));
  }
}

Result<std::vector<std::string>> Settings::apply_environment(const char* const* environment) {
  std::vector<std::string> unknown;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry(*environment);
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) {
      continue;
    }
    const std::string_view name = entry.substr(0, equals);
    const std::string_view text = entry.substr(equals + 1);
    const auto table = option_table();
    const auto row = std::find_if(table.begin(), table.end(), [&](const Option& option) {
      return option.sources != Sources::kFlagOnly && env_name(option) == name;
    });
    if (row == table.end()) {
      if (name.starts_with("TRINE_")) {
        unknown.emplace_back(name);
      }
      continue;
    }
    // NAME= is how a shell user unsets for one command; only free text has an empty value of its
    // own.
    if (text.empty() && row->type != Type::kText) {
      continue;
    }
    if (row->type == Type::kList) {
      set(row->name, split_commas(text), Origin::kEnvironment, std::string(name));
      continue;
    }
    TRINE_TRY_ASSIGN(Value value, parse_value(*row, text, name));
    set(row->name, std::move(value), Origin::kEnvironment, std::string(name));
  }
  return unknown;
}

void Settings::set(std::string_view name, Value value, Origin origin, std::string place) {
  Slot& slot = slots_[index_of(name)];
  if (origin < slot.origin) {
    return;
  }
  slot = Slot{std::move(value), origin, std::move(place)};
}

const Settings::Slot& Settings::slot(std::string_view name) const {
  return slots_[index_of(name)];
}

bool Settings::has(std::string_view name) const {
  return !std::holds_alternative<std::monostate>(slot(name).value);
}

Origin Settings::origin(std::string_view name) const {
  return slot(name).origin;
}

const std::string& Settings::place(std::string_view name) const {
  return slot(name).place;
}

const Value& Settings::value(std::string_view name) const {
  return slot(name).value;
}

bool Settings::flag(std::string_view name) const {
  const Value& held = value(name);
  TRINE_CHECK(find_option(name)->type == Type::kBool);
  return has(name) && std::get<bool>(held);
}

std::int64_t Settings::integer(std::string_view name) const {
  const auto held = maybe_integer(name);
  TRINE_CHECK(held.has_value());
  return *held;
}

double Settings::number(std::string_view name) const {
  const auto held = maybe_number(name);
  TRINE_CHECK(held.has_value());
  return *held;
}

const std::string& Settings::text(std::string_view name) const {
  const auto* held = std::get_if<std::string>(&value(name));
  TRINE_CHECK(held != nullptr);
  return *held;
}

std::optional<std::int64_t> Settings::maybe_integer(std::string_view name) const {
  if (!has(name)) {
    return std::nullopt;
  }
  return std::get<std::int64_t>(value(name));
}

std::optional<std::uint64_t> Settings::maybe_unsigned(std::string_view name) const {
  if (!has(name)) {
    return std::nullopt;
  }
  return std::get<std::uint64_t>(value(name));
}

std::optional<double> Settings::maybe_number(std::string_view name) const {
  if (!has(name)) {
    return std::nullopt;
  }
  return std::get<double>(value(name));
}

std::optional<std::string> Settings::maybe_text(std::string_view name) const {
  if (!has(name)) {
    return std::nullopt;
  }
  return std::get<std::string>(value(name));
}

std::vector<std::string> Settings::list(std::string_view name) const {
  if (!has(name)) {
    return {};
  }
  return std::get<std::vector<std::string>>(value(name));
}

std::string default_config_path() {
  const char* xdg = std::getenv("XDG_CONFIG_HOME");
  if (xdg != nullptr && *xdg != '\0') {
    return std::string(xdg) + "/trine/config.toml";
  }
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') {
    return std::string(home) + "/.config/trine/config.toml";
  }
  return "";
}

}  // namespace trine::options
