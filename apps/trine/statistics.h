// Figures over a few measurements. Thread rule: pure functions.
#pragma once

#include <vector>

namespace trine::app {

// Of at least one value; between the two middle ones when their number is even.
double median(std::vector<double> values);

// Mean and sample standard deviation; the latter is 0 for fewer than two values.
struct Measured {
  double mean = 0;
  double deviation = 0;
};

Measured measured(const std::vector<double>& values);

}  // namespace trine::app
