// Log lines on stderr. stdout belongs to results. Prompt text is never logged above debug level.
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace trine::log {

enum class Level : std::uint8_t { kDebug, kInfo, kWarn, kError, kOff };

// Lines below `level` are dropped. Default: kWarn.
void set_level(Level level);
Level level();
void write(Level level, std::string_view text);

template <typename... Args>
void debug(fmt::format_string<Args...> text, Args&&... args) {
  if (level() <= Level::kDebug) {
    write(Level::kDebug, fmt::format(text, std::forward<Args>(args)...));
  }
}

template <typename... Args>
void info(fmt::format_string<Args...> text, Args&&... args) {
  if (level() <= Level::kInfo) {
    write(Level::kInfo, fmt::format(text, std::forward<Args>(args)...));
  }
}

template <typename... Args>
void warn(fmt::format_string<Args...> text, Args&&... args) {
  if (level() <= Level::kWarn) {
    write(Level::kWarn, fmt::format(text, std::forward<Args>(args)...));
  }
}

template <typename... Args>
void error(fmt::format_string<Args...> text, Args&&... args) {
  if (level() <= Level::kError) {
    write(Level::kError, fmt::format(text, std::forward<Args>(args)...));
  }
}

}  // namespace trine::log
