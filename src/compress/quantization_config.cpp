// quantization_config of the three checkpoint formats.
#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "compress/output.h"

namespace trine {
namespace {

using Json = nlohmann::ordered_json;

// A name as a regular expression that matches only it.
std::string exact(std::string_view module) {
  std::string out = "^";
  for (const char c : module) {
    if (c == '.') {
      out += '\\';
    }
    out += c;
  }
  return out + "$";
}

std::int64_t group_of(const QuantScheme& scheme) {
  return scheme.group == 0 ? -1 : scheme.group;
}

Json gptq_config(const QuantizeOptions& options,
                 const std::map<std::string, QuantizedModule>& modules) {
  Json dynamic = Json::object();
  for (const auto& [name, module] : modules) {
    if (!module.scheme.has_value()) {
      dynamic["-:" + exact(name)] = Json::object();
    } else if (!(*module.scheme == options.scheme)) {
      dynamic["+:" + exact(name)] = {{"bits", module.scheme->bits},
                                     {"group_size", group_of(*module.scheme)},
                                     {"sym", module.scheme->kind == GridKind::kSymmetric}};
    }
  }
  Json out = {{"quant_method", "gptq"},
              {"bits", options.scheme.bits},
              {"group_size", group_of(options.scheme)},
              {"sym", options.scheme.kind == GridKind::kSymmetric},
              {"desc_act", false},
              {"static_groups", options.act_order},
              {"true_sequential", options.true_sequential},
              {"damp_percent", options.damping},
              {"lm_head", false},
              {"pack_dtype", "int32"},
              {"checkpoint_format", "gptq_v2"}};
  if (!dynamic.empty()) {
    out["dynamic"] = std::move(dynamic);
  }
  return out;
}

Json awq_config(const QuantizeOptions& options,
                const std::map<std::string, QuantizedModule>& modules) {
  Json kept = Json::array();
  for (const auto& [name, module] : modules) {
    if (!module.scheme.has_value()) {
      kept.push_back(name);
    }
  }
  return {{"quant_method", "awq"},
          {"bits", 4},
          {"group_size", group_of(options.scheme)},
          {"zero_point", true},
          {"version", "gemm"},
          {"modules_to_not_convert", kept.empty() ? Json(nullptr) : kept}};
}

// One group of modules that are stored alike.
struct CompressedGroup {
  QuantScheme scheme;
  bool int8_activations = false;
  std::vector<std::string> targets;
};

Json weights_of(const CompressedGroup& group) {
  const QuantScheme& scheme = group.scheme;
  const bool float8 = scheme.kind == GridKind::kFloat8;
  Json out = {{"num_bits", scheme.bits},
              {"type", float8 ? "float" : "int"},
              {"symmetric", scheme.kind != GridKind::kZeroPoint},
              {"strategy", scheme.group == 0 ? "channel" : "group"},
              {"dynamic", false}};
  if (scheme.group != 0) {
    out["group_size"] = scheme.group;
  }
  return out;
}

std::string layout_of(const CompressedGroup& group) {
  return group.scheme.kind == GridKind::kFloat8 ? "float-quantized"
         : group.int8_activations               ? "int-quantized"
                                                : "pack-quantized";
}

Json compressed_config(const QuantizeOptions& options,
                       const std::map<std::string, QuantizedModule>& modules) {
  std::vector<CompressedGroup> groups;
  Json ignore = Json::array({"lm_head"});
  for (const auto& [name, module] : modules) {
    if (!module.scheme.has_value()) {
      ignore.push_back(name);
      continue;
    }
    const bool int8 = options.method == QuantMethod::kSmoothQuant && !module.plain_activations;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const CompressedGroup& g) {
      return g.scheme == *module.scheme && g.int8_activations == int8;
    });
    if (same == groups.end()) {
      groups.push_back({*module.scheme, int8, {name}});
    } else {
      same->targets.push_back(name);
    }
  }
  Json config_groups = Json::object();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const CompressedGroup& group = groups[i];
    Json activations = nullptr;
    if (group.int8_activations) {
      activations = {{"num_bits", 8},
                     {"type", "int"},
                     {"symmetric", true},
                     {"strategy", "token"},
                     {"dynamic", true}};
    }
    // One kind of module needs no list of names.
    const Json targets = groups.size() == 1 ? Json::array({"Linear"}) : Json(group.targets);
    config_groups[fmt::format("group_{}", i)] = {{"targets", targets},
                                                 {"weights", weights_of(group)},
                                                 {"input_activations", activations},
                                                 {"output_activations", nullptr},
                                                 {"format", layout_of(group)}};
  }
  const bool mixed = std::any_of(groups.begin(), groups.end(), [&](const CompressedGroup& g) {
    return layout_of(g) != layout_of(groups.front());
  });
  return {{"quant_method", "compressed-tensors"},
          {"format", groups.empty() ? "dense"
                     : mixed        ? "mixed-precision"
                                    : layout_of(groups[0])},
          {"quantization_status", "compressed"},
          {"config_groups", config_groups},
          {"ignore", ignore},
          {"kv_cache_scheme", nullptr}};
}

}  // namespace

Json quantization_config(const QuantizeOptions& options,
                         const std::map<std::string, QuantizedModule>& modules) {
  switch (options.format) {
    case OutputFormat::kGptq:
      return gptq_config(options, modules);
    case OutputFormat::kAwq:
      return awq_config(options, modules);
    default:
      return compressed_config(options, modules);
  }
}

}  // namespace trine
