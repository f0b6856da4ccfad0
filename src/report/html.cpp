#include "report/html.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/printable.h"
#include "report/svg.h"

namespace trine::report {
namespace {

// Every colour of text has at least 7:1 against its background, every bar and line 4.5:1.
constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--bg:#ffffff;--fg:#1a1a1a;--muted:#444444;--line:#c4c4c4;--warn-bg:#fff2d6;--warn-fg:#4a2c00;--c0:#1f5fa8;--c1:#a4480a;--c2:#2a6f2e;--c3:#7b3fa0;--c4:#8a1c4a;--c5:#4d5560}
@media (prefers-color-scheme:dark){:root{--bg:#14161a;--fg:#eeeeee;--muted:#c9c9c9;--line:#4a4f57;--warn-bg:#3b2a08;--warn-fg:#ffe3b0;--c0:#7fb3ff;--c1:#ffb26b;--c2:#8fd694;--c3:#d6a6f0;--c4:#ff9fbf;--c5:#b9c2cf}}
body{background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1,h2{line-height:1.2}h2{border-bottom:1px solid var(--line);padding-bottom:.2rem;margin-top:2.5rem}
table{border-collapse:collapse;margin:.5rem 0 1.5rem;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}
caption{text-align:left;color:var(--muted);padding-bottom:.3rem}
th,td{border:1px solid var(--line);padding:.2rem .6rem;text-align:left;vertical-align:top;white-space:pre-wrap;overflow-wrap:anywhere}
figure{margin:1rem 0}figcaption{font-weight:600;margin-bottom:.3rem}
svg{max-width:100%;height:auto}svg text{fill:var(--fg);font:13px system-ui,sans-serif}
.axis{stroke:var(--line)}.s0{fill:var(--c0)}.s1{fill:var(--c1)}.s2{fill:var(--c2)}.s3{fill:var(--c3)}.s4{fill:var(--c4)}.s5{fill:var(--c5)}
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}.l4{stroke:var(--c4)}.l5{stroke:var(--c5)}
.line{fill:none;stroke-width:2}.cell{fill:var(--c0);stroke:var(--line)}
.warning{background:var(--warn-bg);color:var(--warn-fg);border-left:.3rem solid currentColor;padding:.5rem .8rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid var(--line);padding:.5rem}
)";

std::string table_html(const Table& table) {
  std::string out = "<table>";
  if (!table.caption.empty()) {
    out += "<caption>" + escaped(table.caption) + "</caption>";
  }
  out += "<thead><tr>";
  for (const std::string& column : table.columns) {
    out += "<th scope=\"col\">" + escaped(column) + "</th>";
  }
  out += "</tr></thead><tbody>";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      out += "<td>" + (i < row.size() ? escaped(row[i]) : std::string()) + "</td>";
    }
    out += "</tr>";
  }
  return out + "</tbody></table>\n";
}

std::string figure(std::string_view title, std::string_view svg, const Table& table) {
  return fmt::format("<figure><figcaption>{}</figcaption>{}{}</figure>\n", escaped(title), svg,
                     table_html(table));
}

std::string with_unit(std::string_view name, std::string_view unit) {
  return unit.empty() ? std::string(name) : fmt::format("{}, {}", name, unit);
}

Table bars_table(const std::vector<std::string>& names, std::string_view unit,
                 const std::vector<std::pair<std::string, std::vector<double>>>& bars) {
  Table out;
  out.columns.emplace_back("");
  for (const std::string& name : names) {
    out.columns.push_back(with_unit(name, unit));
  }
  for (const auto& [label, values] : bars) {
    out.rows.push_back({label});
    for (const double value : values) {
      out.rows.back().push_back(number_text(value));
    }
  }
  return out;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of("\n\t", begin), text.size());
    for (const char c : printable(text.substr(begin, end - begin), std::string_view::npos)) {
      switch (c) {
        case '&':
          out += "&amp;";
          break;
        case '<':
          out += "&lt;";
          break;
        case '>':
          out += "&gt;";
          break;
        case '"':
          out += "&quot;";
          break;
        case '\'':
          out += "&#39;";
          break;
        default:
          out += c;
      }
    }
    if (end < text.size()) {
      out += text[end];
    }
    begin = end + 1;
  }
  return out;
}

std::string number_text(double value) {
  constexpr double kWhole = 1e3;  // from here on, and below kPower, digits before the point
  constexpr double kPower = 1e12;
  if (std::abs(value) >= kWhole && std::abs(value) < kPower) {
    return fmt::format("{:.0f}", value);
  }
  return fmt::format("{:.4g}", value == 0.0 ? 0.0 : value);  // no -0
}

Document::Document(std::string_view title) : title_(escaped(title)) {}

void Document::section(std::string_view heading) {
  body_ += "<h2>" + escaped(heading) + "</h2>\n";
}

void Document::paragraph(std::string_view text) {
  body_ += "<p>" + escaped(text) + "</p>\n";
}

void Document::warning(std::string_view text) {
  body_ += "<p class=\"warning\" role=\"note\">" + escaped(text) + "</p>\n";
}

void Document::preformatted(std::string_view text) {
  body_ += "<pre>" + escaped(text) + "</pre>\n";
}

void Document::add(const Table& table) {
  body_ += table_html(table);
}

void Document::add(const BarChart& chart) {
  body_ += figure(with_unit(chart.title, chart.unit), draw(chart),
                  bars_table(chart.series, chart.unit, chart.bars));
}

void Document::add(const StackedBars& chart) {
  body_ += figure(with_unit(chart.title, chart.unit), draw(chart),
                  bars_table(chart.parts, chart.unit, chart.bars));
}

void Document::add(const LineChart& chart) {
  Table table;
  table.columns.push_back(chart.x_label);
  for (const LineChart::Series& series : chart.series) {
    table.columns.push_back(series.name);
  }
  for (std::size_t i = 0; i < chart.x.size(); ++i) {
    table.rows.push_back({number_text(chart.x[i])});
    for (const LineChart::Series& series : chart.series) {
      table.rows.back().push_back(i < series.y.size() ? number_text(series.y[i]) : std::string());
    }
  }
  body_ += figure(with_unit(chart.title, chart.y_label), draw(chart), table);
}

void Document::add(const Histogram& chart) {
  Table table;
  table.columns = {chart.x_label, "count"};
  for (std::size_t i = 0; i < chart.counts.size() && i + 1 < chart.edges.size(); ++i) {
    table.rows.push_back(
        {fmt::format("{} to {}", number_text(chart.edges[i]), number_text(chart.edges[i + 1])),
         fmt::format("{}", chart.counts[i])});
  }
  body_ += figure(chart.title, draw(chart), table);
}

void Document::add(const Matrix& chart) {
  Table table;
  table.columns.push_back(fmt::format("{} \\ {}", chart.row_label, chart.column_label));
  table.columns.insert(table.columns.end(), chart.columns.begin(), chart.columns.end());
  for (std::size_t r = 0; r < chart.rows.size(); ++r) {
    table.rows.push_back({chart.rows[r]});
    for (const std::int64_t count : chart.counts[r]) {
      table.rows.back().push_back(fmt::format("{}", count));
    }
  }
  body_ += figure(chart.title, draw(chart), table);
}

std::string Document::html() const {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<title>{}</title><style>{}</style></head>\n<body><h1>{}</h1>\n{}</body></html>\n",
      title_, kStyle, title_, body_);
}

}  // namespace trine::report
