#include "apps/trine/statistics.h"

#include <algorithm>
#include <cmath>

namespace trine::app {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Measured measured(const std::vector<double>& values) {
  Measured out;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) {
    out.mean += value / count;
  }
  for (const double value : values) {
    out.deviation += (value - out.mean) * (value - out.mean);
  }
  out.deviation = values.size() > 1 ? std::sqrt(out.deviation / (count - 1)) : 0.0;
  return out;
}

}  // namespace trine::app
