// The report of `trine quantize` as text, JSON and a page. Thread rule: pure functions.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "compress/quantize_model.h"

namespace trine::app {

// dry_run: predictions only.
std::string quantize_text(const QuantizeReport& report, bool dry_run);
nlohmann::ordered_json quantize_json(const QuantizeReport& report, bool dry_run);
std::string quantize_html(const QuantizeReport& report);

}  // namespace trine::app
