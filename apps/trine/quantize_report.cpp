#include "apps/trine/quantize_report.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "hub/files.h"
#include "report/html.h"

namespace trine::app {
namespace {

using Json = nlohmann::ordered_json;

std::string error_text(const std::optional<double>& error) {
  return error.has_value() ? fmt::format("{:.3e}", *error) : "-";
}

std::string share_text(double share) {
  return fmt::format("{:.0f}%", 100.0 * share);
}

std::string sizes_line(std::string_view what, const OutputSizes& sizes) {
  return fmt::format("{:<10} {:>10}  codes {:>10}  scales {:>9}  zeros {:>9}  kept {:>10}\n", what,
                     hub::format_bytes(sizes.total()), hub::format_bytes(sizes.codes),
                     hub::format_bytes(sizes.scales), hub::format_bytes(sizes.zeros),
                     hub::format_bytes(sizes.kept));
}

Json sizes_json(const OutputSizes& sizes) {
  return {{"total", sizes.total()},
          {"codes", sizes.codes},
          {"scales", sizes.scales},
          {"zeros", sizes.zeros},
          {"kept", sizes.kept}};
}

Json maybe(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json module_json(const ModuleReport& module) {
  return {{"module", module.module},
          {"rows", module.rows},
          {"cols", module.cols},
          {"scheme", module.scheme},
          {"bits_per_weight", module.bits_per_weight},
          {"error", maybe(module.error)},
          {"rtn_error", maybe(module.plain_error)},
          {"clipped", module.clipped_share},
          {"damping", module.damping},
          {"dead_columns", module.dead_columns},
          {"tokens", module.tokens},
          {"fallback", module.fallback.empty() ? Json(nullptr) : Json(module.fallback)}};
}

// Mean bits of the linear layers' weights.
double mean_bits(const QuantizeReport& report) {
  double bits = 0;
  double weights = 0;
  for (const ModuleReport& module : report.modules) {
    const auto count = static_cast<double>(module.rows) * static_cast<double>(module.cols);
    bits += module.bits_per_weight * count;
    weights += count;
  }
  return weights > 0 ? bits / weights : 0;
}

std::string modules_text(const QuantizeReport& report) {
  std::size_t width = 6;
  for (const ModuleReport& module : report.modules) {
    width = std::max(width, module.module.size());
  }
  std::string out = fmt::format("{:<{}}  {:>11}  {:<15} {:>5}  {:>9}  {:>9}  {:>4}  {}\n", "module",
                                width, "shape", "scheme", "bits", "error", "rounding", "clip", "");
  for (const ModuleReport& module : report.modules) {
    out += fmt::format("{:<{}}  {:>11}  {:<15} {:>5.2f}  {:>9}  {:>9}  {:>4}  {}\n", module.module,
                       width, fmt::format("{}x{}", module.rows, module.cols), module.scheme,
                       module.bits_per_weight, error_text(module.error),
                       error_text(module.plain_error), share_text(module.clipped_share),
                       module.fallback);
  }
  return out;
}

}  // namespace

std::string quantize_text(const QuantizeReport& report, bool dry_run) {
  std::string out;
  if (!dry_run) {
    out += modules_text(report);
    out +=
        "\nerror: change of the layer's outputs, or of its weights without calibration, as a share "
        "of their energy; rounding: the\nsame for rounding to nearest\n\n";
  }
  if (report.calibration.tokens > 0) {
    out +=
        fmt::format("calibrated on {} tokens in {} sequences, hash {}\n", report.calibration.tokens,
                    report.calibration.num_sequences, report.calibration.hash.substr(0, 16));
  }
  out += fmt::format("{:<10} {:>10}\n", "source", hub::format_bytes(report.source_bytes));
  out += sizes_line("predicted", report.predicted);
  if (dry_run) {
    return out;
  }
  out += sizes_line("written", report.written);
  out += fmt::format("{:.2f} bits per weight of the linear layers\n", mean_bits(report));
  out += fmt::format("{:.1f} s calibration texts, {:.1f} s {} blocks{}, {:.1f} s output\n{}\n",
                     report.calibration_seconds, report.block_seconds, report.num_blocks,
                     report.resumed_blocks > 0
                         ? fmt::format(" ({} of an earlier run)", report.resumed_blocks)
                         : "",
                     report.output_seconds, report.out);
  return out;
}

Json quantize_json(const QuantizeReport& report, bool dry_run) {
  Json out = {{"source", report.source},
              {"out", dry_run ? Json(nullptr) : Json(report.out)},
              {"method", method_name(report.options.method)},
              {"format", format_name(report.options.format)},
              {"scheme", report.options.scheme.text()},
              {"source_bytes", report.source_bytes},
              {"predicted_bytes", sizes_json(report.predicted)}};
  Json files = Json::array();
  for (const CalibrationFile& file : report.calibration.files) {
    files.push_back({{"path", file.path},
                     {"sha256", file.sha256},
                     {"texts", file.texts},
                     {"tokens", file.tokens}});
  }
  out["calibration"] = {{"tokens", report.calibration.tokens},
                        {"hash", report.calibration.hash},
                        {"files", std::move(files)}};
  if (dry_run) {
    return out;
  }
  out["written_bytes"] = sizes_json(report.written);
  out["bits_per_weight"] = mean_bits(report);
  out["seconds"] = {{"calibration", report.calibration_seconds},
                    {"blocks", report.block_seconds},
                    {"output", report.output_seconds}};
  out["blocks"] = report.num_blocks;
  out["resumed_blocks"] = report.resumed_blocks;
  out["modules"] = Json::array();
  for (const ModuleReport& module : report.modules) {
    out["modules"].push_back(module_json(module));
  }
  return out;
}

namespace {

// "model.layers.3.mlp.up_proj" or "blk.3.ffn_up": the block, and the layer's place in it.
std::pair<std::int64_t, std::string> split_module(const std::string& module) {
  for (std::size_t begin = 0; begin < module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    const std::string part = module.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) {
      return {std::stoll(part), end < module.size() ? module.substr(end + 1) : std::string()};
    }
    begin = end + 1;
  }
  return {0, module};
}

// A line for each kind of layer over the blocks.
report::LineChart error_chart(const QuantizeReport& report) {
  report::LineChart chart{
      .title = "Error by block", .x_label = "block", .y_label = "share of the outputs' energy"};
  for (std::int64_t i = 0; i < report.num_blocks; ++i) {
    chart.x.push_back(static_cast<double>(i));
  }
  for (const ModuleReport& module : report.modules) {
    const auto [block, kind] = split_module(module.module);
    if (block >= report.num_blocks || !module.error.has_value()) {
      continue;
    }
    auto at = std::find_if(chart.series.begin(), chart.series.end(),
                           [&](const auto& series) { return series.name == kind; });
    if (at == chart.series.end()) {
      chart.series.push_back({kind, std::vector<double>(chart.x.size(), 0.0)});
      at = chart.series.end() - 1;
    }
    // The worst of fused parts and experts.
    double& y = at->y[static_cast<std::size_t>(block)];
    y = std::max(y, *module.error);
  }
  return chart;
}

report::StackedBars size_bars(const QuantizeReport& report) {
  const auto bar = [](const OutputSizes& sizes) {
    constexpr double kMiB = 1024.0 * 1024.0;
    return std::vector<double>{
        static_cast<double>(sizes.codes) / kMiB, static_cast<double>(sizes.scales) / kMiB,
        static_cast<double>(sizes.zeros) / kMiB, static_cast<double>(sizes.kept) / kMiB};
  };
  report::StackedBars out{
      .title = "Size", .unit = "MiB", .parts = {"codes", "scales", "zeros", "kept"}};
  out.bars.emplace_back("predicted", bar(report.predicted));
  out.bars.emplace_back("written", bar(report.written));
  return out;
}

}  // namespace

std::string quantize_html(const QuantizeReport& report) {
  report::Document page(fmt::format("Quantized: {}", report.out));
  page.paragraph(fmt::format("{} to {}, {}, {}; {:.2f} bits per weight of the linear layers.",
                             report.source, format_name(report.options.format),
                             method_name(report.options.method), report.options.scheme.text(),
                             mean_bits(report)));
  if (report.calibration.tokens > 0) {
    page.paragraph(fmt::format("Calibrated on {} tokens in {} sequences; hash {}.",
                               report.calibration.tokens, report.calibration.num_sequences,
                               report.calibration.hash));
    report::Table files{.caption = "Calibration texts",
                        .columns = {"file", "texts", "tokens", "SHA-256"}};
    for (const CalibrationFile& file : report.calibration.files) {
      files.rows.push_back(
          {file.path, std::to_string(file.texts), std::to_string(file.tokens), file.sha256});
    }
    page.add(files);
  }
  page.section("Size");
  page.add(size_bars(report));
  page.section("Errors");
  page.paragraph(
      "The change of a layer's outputs on the calibration texts (without them: of its weights), as "
      "a share of their energy. The worst of fused layers and experts is shown.");
  page.add(error_chart(report));
  report::Table fallbacks{.caption = "Layers that the method could not treat",
                          .columns = {"module", "why"}};
  report::Table modules{.caption = "All layers",
                        .columns = {"module", "shape", "scheme", "bits", "error", "rounding",
                                    "groups clipped", "damping", "dead inputs", "tokens"}};
  for (const ModuleReport& module : report.modules) {
    if (!module.fallback.empty()) {
      fallbacks.rows.push_back({module.module, module.fallback});
    }
    modules.rows.push_back({module.module, fmt::format("{}x{}", module.rows, module.cols),
                            module.scheme, fmt::format("{:.2f}", module.bits_per_weight),
                            error_text(module.error), error_text(module.plain_error),
                            share_text(module.clipped_share), fmt::format("{:g}", module.damping),
                            std::to_string(module.dead_columns), std::to_string(module.tokens)});
  }
  if (!fallbacks.rows.empty()) {
    page.add(fallbacks);
  }
  page.add(modules);
  page.section("Time");
  page.paragraph(
      fmt::format("{:.1f} s calibration texts, {:.1f} s blocks ({} of {} from an earlier "
                  "run), {:.1f} s output.",
                  report.calibration_seconds, report.block_seconds, report.resumed_blocks,
                  report.num_blocks, report.output_seconds));
  return page.html();
}

}  // namespace trine::app
