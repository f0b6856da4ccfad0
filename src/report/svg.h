// The drawings of a report's charts. Internal to this folder.
#pragma once

#include <string>

#include "report/html.h"

namespace trine::report {

std::string draw(const BarChart& chart);
std::string draw(const StackedBars& chart);
std::string draw(const LineChart& chart);
std::string draw(const Histogram& chart);
std::string draw(const Matrix& chart);

}  // namespace trine::report
