// A report as one HTML page that needs nothing beside itself: no script, no font, no address.
//
// Charts are inline SVG in the page's own colours, light or dark as the reader's system asks, and
// under every chart stands the table of its numbers, so that nothing depends on seeing colours. Any
// text may hold anything: it is escaped here, once. Values that are not finite are shown as text
// and drawn as nothing. Thread rule: values; one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trine::report {

struct Table {
  std::string caption = {};
  std::vector<std::string> columns = {};
  // As many cells as columns; a short row ends in empty cells.
  std::vector<std::vector<std::string>> rows = {};
};

// Bars of one or several series beside each other, a group per label.
struct BarChart {
  std::string title = {};
  std::string unit = {};  // of the values; empty: plain numbers
  std::vector<std::string> series = {};
  // Label and a value per series.
  std::vector<std::pair<std::string, std::vector<double>>> bars = {};
};

// One bar per label, made of parts that add up; values below 0 count as 0.
struct StackedBars {
  std::string title = {};
  std::string unit = {};
  std::vector<std::string> parts = {};
  std::vector<std::pair<std::string, std::vector<double>>> bars = {};
};

struct LineChart {
  struct Series {
    std::string name;
    std::vector<double> y;  // as many as x
  };

  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  std::vector<double> x = {};  // rising
  std::vector<Series> series = {};
};

// Counts between neighbouring edges; one edge more than counts. Bins are drawn equally wide.
struct Histogram {
  std::string title = {};
  std::string x_label = {};
  std::vector<double> edges = {};
  std::vector<std::int64_t> counts = {};
};

// Counts in cells, darker for more: a confusion matrix.
struct Matrix {
  std::string title = {};
  std::string row_label = {};
  std::string column_label = {};
  std::vector<std::string> rows = {};
  std::vector<std::string> columns = {};
  std::vector<std::vector<std::int64_t>> counts = {};  // [rows][columns]
};

class Document {
 public:
  explicit Document(std::string_view title);

  void section(std::string_view heading);
  void paragraph(std::string_view text);
  // Stands out: a warning or a floor that was not met.
  void warning(std::string_view text);
  // Text as it is, line ends kept (an answer of a model).
  void preformatted(std::string_view text);
  void add(const Table& table);
  void add(const BarChart& chart);
  void add(const StackedBars& chart);
  void add(const LineChart& chart);
  void add(const Histogram& chart);
  void add(const Matrix& chart);

  // The whole page.
  std::string html() const;

 private:
  std::string title_;
  std::string body_;
};

// Text that may stand between tags and in a quoted attribute: markup is escaped, control bytes and
// bytes that are no UTF-8 become \xNN, line ends and tabs stay.
std::string escaped(std::string_view text);

// Up to four significant digits, and all those before the point up to 10^12.
std::string number_text(double value);

}  // namespace trine::report
