#include "hub/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "hub/files.h"

namespace trine::hub {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kBarInterval{100};
constexpr std::chrono::milliseconds kJsonInterval{500};
constexpr std::chrono::seconds kLineInterval{5};
constexpr std::chrono::seconds kRateWindow{5};
constexpr int kBarCells = 24;

// Bytes per second over the last few seconds: a rate since the start would hide a stall.
class RateMeter {
 public:
  void add(Clock::time_point now, std::uint64_t bytes) {
    if (!samples_.empty() && bytes < samples_.back().second) {
      samples_.clear();  // a file started afresh
    }
    samples_.emplace_back(now, bytes);
    while (samples_.size() > 2 && now - samples_.front().first > kRateWindow) {
      samples_.pop_front();
    }
  }

  double bytes_per_s() const {
    if (samples_.size() < 2) {
      return 0.0;
    }
    const std::chrono::duration<double> span = samples_.back().first - samples_.front().first;
    const auto bytes = static_cast<double>(samples_.back().second - samples_.front().second);
    return span.count() > 0.0 ? bytes / span.count() : 0.0;
  }

 private:
  std::deque<std::pair<Clock::time_point, std::uint64_t>> samples_;
};

std::string format_seconds(double seconds) {
  if (seconds >= 360000.0) {
    return "over 99 h";
  }
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

class QuietProgress : public ProgressSink {
 public:
  void plan(std::string_view /*name*/, std::size_t /*num_files*/,
            std::uint64_t /*total_bytes*/) override {}

  void update(std::uint64_t /*done_bytes*/) override {}

  void file_done(std::string_view /*file*/, std::uint64_t /*size*/,
                 std::string_view /*sha256*/) override {}

  void note(std::string_view /*text*/) override {}

  void finish() override {}
};

class TextProgress : public ProgressSink {
 public:
  TextProgress(std::FILE* out, bool bar) : out_(out), bar_(bar) {}

  void plan(std::string_view name, std::size_t num_files, std::uint64_t total_bytes) override {
    name_ = name;
    total_ = total_bytes;
    next_ = Clock::now() + (bar_ ? Clock::duration(kBarInterval) : Clock::duration(kLineInterval));
    line(fmt::format("{}: {} file{}, {}", name, num_files, num_files == 1 ? "" : "s",
                     format_bytes(total_bytes)));
  }

  void update(std::uint64_t done_bytes) override {
    done_ = done_bytes;
    const Clock::time_point now = Clock::now();
    if (now < next_) {
      return;
    }
    next_ = now + (bar_ ? Clock::duration(kBarInterval) : Clock::duration(kLineInterval));
    rate_.add(now, done_bytes);
    show();
  }

  void file_done(std::string_view file, std::uint64_t size, std::string_view /*sha256*/) override {
    if (!bar_) {
      line(fmt::format("{}: {} complete ({})", name_, file, format_bytes(size)));
    }
  }

  void note(std::string_view text) override { line(std::string(text)); }

  void finish() override {
    if (bar_ && shown_) {
      show();
      std::fputs("\n", out_);
      shown_ = false;
    }
  }

 private:
  void line(const std::string& text) {
    // \r and erase-to-end replace an unfinished bar.
    const std::string out = (bar_ && shown_ ? "\r\033[K" : "") + text + "\n";
    shown_ = false;
    std::fputs(out.c_str(), out_);
    std::fflush(out_);
  }

  void show() {
    const double part =
        total_ == 0 ? 1.0 : std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
    const double rate = rate_.bytes_per_s();
    const double left = total_ > done_ ? static_cast<double>(total_ - done_) : 0.0;
    std::string text =
        fmt::format("{:3.0f}%  {} / {}", part * 100.0, format_bytes(done_), format_bytes(total_));
    if (rate > 0.0) {
      text += fmt::format("  {}/s  ETA {}", format_bytes(static_cast<std::uint64_t>(rate)),
                          format_seconds(left / rate));
    }
    if (!bar_) {
      std::fputs(fmt::format("{}: {}\n", name_, text).c_str(), out_);
    } else {
      const int cells = static_cast<int>(part * kBarCells);
      const auto full = static_cast<std::size_t>(cells);
      std::fputs(fmt::format("\r\033[K[{}{}] {}", std::string(full, '#'),
                             std::string(static_cast<std::size_t>(kBarCells) - full, '.'), text)
                     .c_str(),
                 out_);
      shown_ = true;
    }
    std::fflush(out_);
  }

  std::FILE* out_;
  bool bar_;
  bool shown_ = false;  // a bar without its line end is on the screen
  std::string name_;
  std::uint64_t total_ = 0;
  std::uint64_t done_ = 0;
  Clock::time_point next_;
  RateMeter rate_;
};

class JsonProgress : public ProgressSink {
 public:
  explicit JsonProgress(std::FILE* out) : out_(out) {}

  void plan(std::string_view name, std::size_t num_files, std::uint64_t total_bytes) override {
    total_ = total_bytes;
    emit({{"event", "plan"},
          {"name", name},
          {"num_files", num_files},
          {"total_bytes", total_bytes}});
  }

  void update(std::uint64_t done_bytes) override {
    const Clock::time_point now = Clock::now();
    if (now < next_) {
      return;
    }
    next_ = now + kJsonInterval;
    rate_.add(now, done_bytes);
    emit({{"event", "progress"},
          {"done_bytes", done_bytes},
          {"total_bytes", total_},
          {"bytes_per_s", static_cast<std::uint64_t>(rate_.bytes_per_s())}});
  }

  void file_done(std::string_view file, std::uint64_t size, std::string_view sha256) override {
    emit({{"event", "file"}, {"file", file}, {"size", size}, {"sha256", sha256}});
  }

  void note(std::string_view text) override { emit({{"event", "note"}, {"text", text}}); }

  void finish() override {}

 private:
  void emit(const Json& event) {
    std::fputs((event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n").c_str(), out_);
    std::fflush(out_);
  }

  std::FILE* out_;
  std::uint64_t total_ = 0;
  Clock::time_point next_;
  RateMeter rate_;
};

}  // namespace

std::unique_ptr<ProgressSink> make_progress(ProgressStyle style, std::FILE* out) {
  switch (style) {
    case ProgressStyle::kBar:
      return std::make_unique<TextProgress>(out, true);
    case ProgressStyle::kLines:
      return std::make_unique<TextProgress>(out, false);
    case ProgressStyle::kJson:
      return std::make_unique<JsonProgress>(out);
    case ProgressStyle::kQuiet:
      break;
  }
  return std::make_unique<QuietProgress>();
}

}  // namespace trine::hub
