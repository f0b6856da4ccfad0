#include "report/svg.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace trine::report {
namespace {

constexpr double kWidth = 860.0;
constexpr double kLabelWidth = 200.0;  // left of horizontal bars
constexpr double kValueWidth = 80.0;   // right of them
constexpr double kRow = 18.0;
constexpr std::size_t kNumColours = 6;
constexpr std::size_t kLongestLabel = 28;  // characters; the table below has the whole text

std::string start(double height, std::string_view title) {
  return fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" role=\"img\" "
      "aria-label=\"{}\">",
      kWidth, height, kWidth, height, escaped(title));
}

// Cut between characters, not inside one.
std::string short_label(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0U) != 0x80U && count++ == kLongestLabel) {
      return std::string(text.substr(0, i)) + "...";
    }
  }
  return std::string(text);
}

std::string label(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x, y, anchor,
                     escaped(short_label(text)));
}

std::string rectangle(double x, double y, double width, double height, std::size_t colour) {
  return fmt::format(
      "<rect class=\"s{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>",
      colour % kNumColours, x, y, std::max(0.0, width), std::max(0.0, height));
}

std::string straight(double x1, double y1, double x2, double y2) {
  return fmt::format(
      "<line class=\"axis\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", x1, y1, x2,
      y2);
}

std::string legend(const std::vector<std::string>& names, double y) {
  std::string out;
  double x = kLabelWidth;
  for (std::size_t i = 0; i < names.size() && x < kWidth - 60.0; ++i) {
    out += rectangle(x, y - 10.0, 12.0, 12.0, i) + label(x + 17.0, y, "start", names[i]);
    x += 40.0 + 8.0 * static_cast<double>(std::min(names[i].size(), kLongestLabel));
  }
  return out;
}

double drawn(double value) {
  return std::isfinite(value) ? value : 0.0;
}

// A span of values on the page; an empty one becomes one wide.
struct Scale {
  double low = 0.0;
  double high = 1.0;
  double from = 0.0;
  double to = 1.0;

  double operator()(double value) const {
    const double range = high > low ? high - low : 1.0;
    return from + (std::clamp(drawn(value), low, high) - low) / range * (to - from);
  }
};

}  // namespace

std::string draw(const BarChart& chart) {
  Scale x{.low = 0.0, .high = 0.0, .from = kLabelWidth, .to = kWidth - kValueWidth};
  for (const auto& [name, values] : chart.bars) {
    for (const double value : values) {
      x.low = std::min(x.low, drawn(value));
      x.high = std::max(x.high, drawn(value));
    }
  }
  const auto num_series = static_cast<double>(std::max<std::size_t>(1, chart.series.size()));
  const double group = kRow * num_series + 6.0;
  const double top = chart.series.size() > 1 ? 28.0 : 6.0;
  std::string out = start(top + group * static_cast<double>(chart.bars.size()) + 6.0, chart.title);
  if (chart.series.size() > 1) {
    out += legend(chart.series, 14.0);
  }
  double y = top;
  const double zero = x(0.0);
  for (const auto& [name, values] : chart.bars) {
    out += label(kLabelWidth - 8.0, y + group / 2.0, "end", name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double at = y + kRow * static_cast<double>(i);
      const double end = x(values[i]);
      out += rectangle(std::min(zero, end), at, std::abs(end - zero), kRow - 4.0, i);
      out += label(std::max(zero, end) + 5.0, at + 11.0, "start", number_text(values[i]));
    }
    y += group;
  }
  return out + straight(zero, top, zero, y) + "</svg>";
}

std::string draw(const StackedBars& chart) {
  Scale x{.low = 0.0, .high = 0.0, .from = 0.0, .to = kWidth - kValueWidth - kLabelWidth};
  const auto total = [](const std::vector<double>& values) {
    double sum = 0.0;
    for (const double value : values) {
      sum += std::max(0.0, drawn(value));
    }
    return sum;
  };
  for (const auto& [name, values] : chart.bars) {
    x.high = std::max(x.high, total(values));
  }
  constexpr double kTop = 28.0;
  std::string out =
      start(kTop + (kRow + 6.0) * static_cast<double>(chart.bars.size()) + 6.0, chart.title);
  out += legend(chart.parts, 14.0);
  double y = kTop;
  for (const auto& [name, values] : chart.bars) {
    out += label(kLabelWidth - 8.0, y + 13.0, "end", name);
    double at = kLabelWidth;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double width = x(std::max(0.0, drawn(values[i])));
      out += rectangle(at, y, width, kRow, i);
      at += width;
    }
    out += label(at + 5.0, y + 13.0, "start", number_text(total(values)));
    y += kRow + 6.0;
  }
  return out + "</svg>";
}

std::string draw(const LineChart& chart) {
  constexpr double kHeight = 280.0;
  constexpr double kBottom = kHeight - 40.0;
  constexpr double kLeft = 80.0;
  Scale x{.low = 0.0, .high = 0.0, .from = kLeft, .to = kWidth - 20.0};
  Scale y{.low = 0.0, .high = 0.0, .from = kBottom, .to = 30.0};
  if (!chart.x.empty()) {
    x.low = drawn(chart.x.front());
    x.high = drawn(chart.x.back());
  }
  std::vector<std::string> names;
  for (const LineChart::Series& series : chart.series) {
    names.push_back(series.name);
    for (const double value : series.y) {
      y.low = std::min(y.low, drawn(value));
      y.high = std::max(y.high, drawn(value));
    }
  }
  std::string out = start(kHeight, chart.title) + legend(names, 14.0);
  for (int i = 0; i <= 4; ++i) {
    const double value = y.low + (y.high - y.low) * i / 4.0;
    const double at = y.from + (y.to - y.from) * i / 4.0;
    out += straight(kLeft, at, kWidth - 20.0, at);
    out += label(kLeft - 6.0, at + 4.0, "end", number_text(value));
    const double place = x.low + (x.high - x.low) * i / 4.0;
    out += label(x.from + (x.to - x.from) * i / 4.0, kBottom + 18.0, "middle", number_text(place));
  }
  out += label((kLeft + kWidth) / 2.0, kHeight - 6.0, "middle", chart.x_label);
  for (std::size_t s = 0; s < chart.series.size(); ++s) {
    std::string points;
    const std::vector<double>& values = chart.series[s].y;
    for (std::size_t i = 0; i < values.size() && i < chart.x.size(); ++i) {
      if (std::isfinite(values[i])) {
        points += fmt::format("{:.1f},{:.1f} ", x(chart.x[i]), y(values[i]));
      }
    }
    out += fmt::format("<polyline class=\"line l{}\" points=\"{}\"/>", s % kNumColours, points);
  }
  return out + "</svg>";
}

std::string draw(const Histogram& chart) {
  constexpr double kHeight = 240.0;
  constexpr double kBottom = kHeight - 40.0;
  Scale y{.low = 0.0, .high = 0.0, .from = 0.0, .to = kBottom - 20.0};
  for (const std::int64_t count : chart.counts) {
    y.high = std::max(y.high, static_cast<double>(count));
  }
  const auto bins = static_cast<double>(std::max<std::size_t>(1, chart.counts.size()));
  const double width = (kWidth - 40.0) / bins;
  std::string out = start(kHeight, chart.title);
  for (std::size_t i = 0; i < chart.counts.size(); ++i) {
    const double at = 20.0 + width * static_cast<double>(i);
    const double height = y(static_cast<double>(chart.counts[i]));
    out += rectangle(at + 1.0, kBottom - height, width - 2.0, height, 0);
    if (chart.counts[i] > 0) {
      out += label(at + width / 2.0, kBottom - height - 4.0, "middle",
                   fmt::format("{}", chart.counts[i]));
    }
  }
  out += straight(20.0, kBottom, kWidth - 20.0, kBottom);
  for (std::size_t i = 0; i < chart.edges.size(); ++i) {
    out += label(20.0 + width * static_cast<double>(i), kBottom + 16.0, "middle",
                 number_text(chart.edges[i]));
  }
  return out + label(kWidth / 2.0, kHeight - 6.0, "middle", chart.x_label) + "</svg>";
}

std::string draw(const Matrix& chart) {
  constexpr double kCell = 44.0;
  constexpr double kTop = 40.0;
  std::int64_t most = 1;
  for (const auto& row : chart.counts) {
    for (const std::int64_t count : row) {
      most = std::max(most, count);
    }
  }
  const double cell = std::min(
      2.0 * kCell, (kWidth - kLabelWidth - 20.0) /
                       static_cast<double>(std::max<std::size_t>(1, chart.columns.size())));
  std::string out =
      start(kTop + kCell * static_cast<double>(chart.rows.size()) + 10.0, chart.title);
  for (std::size_t c = 0; c < chart.columns.size(); ++c) {
    out += label(kLabelWidth + cell * (static_cast<double>(c) + 0.5), kTop - 8.0, "middle",
                 chart.columns[c]);
  }
  for (std::size_t r = 0; r < chart.rows.size(); ++r) {
    const double y = kTop + kCell * static_cast<double>(r);
    out += label(kLabelWidth - 8.0, y + kCell / 2.0 + 4.0, "end", chart.rows[r]);
    for (std::size_t c = 0; c < chart.counts[r].size(); ++c) {
      const double x = kLabelWidth + cell * static_cast<double>(c);
      // At most this dark, so that the number on it stays readable in both colour schemes.
      constexpr double kMostOpaque = 0.45;
      out += fmt::format(
          "<rect class=\"cell\" fill-opacity=\"{:.2f}\" x=\"{:.1f}\" y=\"{:.1f}\" "
          "width=\"{:.1f}\" height=\"{:.1f}\"/>",
          kMostOpaque * static_cast<double>(chart.counts[r][c]) / static_cast<double>(most), x, y,
          cell, kCell);
      out += label(x + cell / 2.0, y + kCell / 2.0 + 4.0, "middle",
                   fmt::format("{}", chart.counts[r][c]));
    }
  }
  return out + "</svg>";
}

}  // namespace trine::report
