#include "options/option.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace trine::options {

namespace {

std::string snake(std::string_view name, bool upper) {
  std::string out(name);
  for (char& c : out) {
    if (c == '-') {
      c = '_';
    } else if (upper) {
      c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

// Damerau-Levenshtein distance, restricted form (no substring is edited twice).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    d[i][0] = i;
  }
  for (std::size_t j = 0; j <= b.size(); ++j) {
    d[0][j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0u : 1u);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

const Option* find_option(std::string_view name) {
  for (const Option& option : option_table()) {
    if (option.name == name) {
      return &option;
    }
  }
  return nullptr;
}

std::string env_name(const Option& option) {
  if (!option.env_name.empty()) {
    return std::string(option.env_name);
  }
  return "TRINE_" + snake(option.name, true);
}

std::string file_key(const Option& option) {
  return fmt::format("{}.{}", option.group, snake(option.name, false));
}

std::string placeholder(const Option& option) {
  if (!option.placeholder.empty()) {
    return std::string(option.placeholder);
  }
  switch (option.type) {
    case Type::kBool:
      return "";
    case Type::kInteger:
    case Type::kUnsigned:
    case Type::kSize:
      return "N";
    case Type::kNumber:
      return "X";
    case Type::kText:
    case Type::kList:
      return "TEXT";
    case Type::kChoice:
      return std::string(option.choices);
  }
  return "";
}

std::string range_text(const Option& option) {
  const bool low = option.min != -kNoLimit;
  const bool high = option.max != kNoLimit;
  const std::string from =
      fmt::format("{}{:.15g}", option.min_exclusive ? "above " : "", option.min);
  if (low && high) {
    return fmt::format("{} to {:.15g}", from, option.max);
  }
  if (low) {
    return option.min_exclusive ? from : fmt::format("{:.15g} or more", option.min);
  }
  return high ? fmt::format("{:.15g} or less", option.max) : std::string();
}

std::string_view type_name(Type type) {
  switch (type) {
    case Type::kBool:
      return "bool";
    case Type::kInteger:
      return "integer";
    case Type::kUnsigned:
      return "unsigned integer";
    case Type::kSize:
      return "size";
    case Type::kNumber:
      return "number";
    case Type::kText:
      return "text";
    case Type::kChoice:
      return "choice";
    case Type::kList:
      return "list";
  }
  return "text";
}

std::string_view scope_name(Scope scope) {
  switch (scope) {
    case Scope::kProcess:
      return "process";
    case Scope::kModel:
      return "model";
    case Scope::kRequest:
      return "request";
  }
  return "process";
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  // Long words come from scripts gone wrong, not from typos; the table is quadratic in their
  // length.
  if (word.size() > 64) {
    return "";
  }
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace trine::options
