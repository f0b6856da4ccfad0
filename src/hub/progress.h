// What a long pull tells its caller, and the three ways of showing it: a bar on a terminal, a line
// every five seconds, JSON events. Thread rule: called by the pulling thread only.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace trine::hub {

class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  // How much there is to do. Called once, before update().
  virtual void plan(std::string_view name, std::size_t num_files, std::uint64_t total_bytes) = 0;
  // Bytes that are there so far, of all files; may fall when a server makes a file start afresh.
  virtual void update(std::uint64_t done_bytes) = 0;
  virtual void file_done(std::string_view file, std::uint64_t size, std::string_view sha256) = 0;
  // One line for people: a retry, a wait, a warning.
  virtual void note(std::string_view text) = 0;
  // No more updates follow: ends an unfinished bar line.
  virtual void finish() = 0;
};

enum class ProgressStyle : std::uint8_t { kQuiet, kBar, kLines, kJson };

// kBar and kLines write to `out` (stderr); kJson writes one object per line to `out` (stdout), at
// most two progress events a second.
std::unique_ptr<ProgressSink> make_progress(ProgressStyle style, std::FILE* out);

}  // namespace trine::hub
