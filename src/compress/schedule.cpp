#include "compress/schedule.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/printable.h"
#include "compress/block_weights.h"
#include "compress/checkpoint_layout.h"

namespace trine {
namespace {

std::vector<const ops::WeightView*> linears_of(const LayerWeights& layer) {
  std::vector<const ops::WeightView*> out{&layer.q, &layer.k, &layer.v, &layer.o};
  const auto add = [&](const MlpWeights& mlp) {
    out.insert(out.end(), {&mlp.gate, &mlp.up, &mlp.down});
  };
  if (layer.experts.empty()) {
    add(layer.mlp);
  }
  for (const MlpWeights& expert : layer.experts) {
    add(expert);
  }
  return out;
}

std::uint64_t words(std::int64_t values, int bits) {
  return static_cast<std::uint64_t>((values * bits + 31) / 32) * 4;
}

// The bytes of a matrix in the layouts of checkpoint_layout.h.
OutputSizes matrix_sizes(const QuantizeOptions& options, const ScheduledModule& module) {
  const QuantScheme& scheme = *module.scheme;
  const std::int64_t groups = module.rows * scheme.num_groups(module.cols);
  const auto weights = static_cast<std::uint64_t>(module.rows * module.cols);
  OutputSizes out;
  out.scales = static_cast<std::uint64_t>(groups) * 2;
  if (options.format == OutputFormat::kGguf && gguf_block_type(scheme, module.cols).has_value()) {
    out.codes = weights * static_cast<std::uint64_t>(scheme.bits) / 8;
    out.zeros = scheme.kind == GridKind::kMin ? out.scales : 0;
    return out;
  }
  if (options.format == OutputFormat::kGptq) {
    out.codes = words(module.cols, scheme.bits) * static_cast<std::uint64_t>(module.rows) +
                static_cast<std::uint64_t>(module.cols) * 4;  // and which group a column is of
    out.zeros = words(module.rows, scheme.bits) *
                static_cast<std::uint64_t>(scheme.num_groups(module.cols));
    return out;
  }
  if (options.format == OutputFormat::kAwq) {
    out.codes = weights / 2;
    out.zeros = static_cast<std::uint64_t>(groups) / 2;
    return out;
  }
  if (scheme.kind == GridKind::kFloat8 ||
      (options.method == QuantMethod::kSmoothQuant && !module.plain_activations)) {
    out.codes = weights;
    out.scales *= 2;
    return out;
  }
  // A directory's readers want the shape as a tensor.
  const std::uint64_t shape = options.format == OutputFormat::kGguf ? 0 : 16;
  out.codes = words(module.cols, scheme.bits) * static_cast<std::uint64_t>(module.rows) + shape;
  if (scheme.kind == GridKind::kZeroPoint) {
    out.zeros = words(module.rows, scheme.bits) *
                static_cast<std::uint64_t>(scheme.num_groups(module.cols));
  }
  return out;
}

Status check_rules(const QuantizeOptions& options, const QuantizeSchedule& schedule) {
  for (const ModuleRule& rule : options.rules) {
    const bool used = std::any_of(schedule.begin(), schedule.end(), [&](const auto& entry) {
      return pattern_matches(rule.pattern, entry.first);
    });
    if (!used) {
      return fail(ErrorCode::kInvalidArgument,
                  "--override {}: no linear layer has such a name; they are called like {}",
                  printable(rule.pattern), printable(schedule.begin()->first));
    }
  }
  return {};
}

}  // namespace

Result<QuantizeSchedule> schedule_modules(const DecoderParts& parts,
                                          const QuantizeOptions& options) {
  QuantizeSchedule out;
  for (std::size_t layer = 0; layer < parts.weights.layers.size(); ++layer) {
    for (const ops::WeightView* view : linears_of(parts.weights.layers[layer])) {
      if (view->source != nullptr) {
        return fail(ErrorCode::kInvalidArgument,
                    "layer {}: the model is a quantized checkpoint already ({}); start from the "
                    "model in F16, BF16 or F32",
                    layer, parts.weights.quantized.front()->linear().describe());
      }
      const TensorPlace place = place_of(parts, *view);
      TRINE_CHECK(place.tensor != nullptr);
      if (!is_full_precision(view->dtype) && !options.requantize) {
        return fail(
            ErrorCode::kInvalidArgument,
            "tensor {} is {}: the model is quantized already, and quantizing it again adds a "
            "second error to the first; start from the model in F16, BF16 or F32, or give "
            "--requantize",
            printable(place.tensor->name), dtype_info(view->dtype).name);
      }
      const std::string name = module_of(place.tensor->name);
      ScheduledModule& module = out[name];
      if (module.module.empty()) {
        module.module = name;
        module.layer_idx = static_cast<std::int32_t>(layer);
        module.cols = view->cols;
        const ModuleRule* const rule = rule_for(options, name);
        module.plain_activations = rule != nullptr && rule->plain_activations;
        if (rule == nullptr || rule->plain_activations) {
          module.scheme = options.scheme;
        } else if (!rule->keep) {
          module.scheme = rule->scheme;
        }
      }
      module.rows += view->rows;
    }
  }
  TRINE_TRY(check_rules(options, out));
  bool any = false;
  for (const auto& [name, module] : out) {
    if (module.scheme.has_value()) {
      any = true;
      TRINE_TRY(check_layout(options.format, *module.scheme, name, module.rows, module.cols));
    }
  }
  if (!any) {
    return fail(ErrorCode::kInvalidArgument,
                "--override keeps every linear layer as it is: there "
                "is nothing to quantize");
  }
  return out;
}

OutputSizes predict_sizes(const DecoderParts& parts, const QuantizeOptions& options,
                          const QuantizeSchedule& schedule) {
  OutputSizes out;
  const std::set<const TensorInfo*> tables = quantized_tables(parts, options);
  for (const TensorInfo& tensor : parts.checkpoint->weights().tensors()) {
    const auto at = schedule.find(module_of(tensor.name));
    if (at != schedule.end() && tensor.name != at->first && at->second.scheme.has_value()) {
      out.add(matrix_sizes(options, at->second));
    } else if (tables.contains(&tensor)) {
      const auto weights = static_cast<std::uint64_t>(tensor.num_elems());
      out.add({.codes = weights, .scales = weights / 32 * 2, .zeros = 0, .kept = 0});
    } else {
      out.kept += tensor.data.size();
    }
  }
  return out;
}

WidestInput widest_input(const QuantizeSchedule& schedule) {
  WidestInput out;
  for (const auto& [name, module] : schedule) {
    if (module.scheme.has_value() && module.cols > out.cols) {
      out = {name, module.cols};
    }
  }
  return out;
}

}  // namespace trine
