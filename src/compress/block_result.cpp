#include "compress/block_result.h"

#include <cstring>
#include <set>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json.h"
#include "base/printable.h"
#include "format/safetensors.h"
#include "format/safetensors_writer.h"

namespace trine {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
TensorInfo tensor_of(std::string name, DType dtype, const std::vector<T>& values) {
  return {std::move(name),
          dtype,
          {static_cast<std::int64_t>(values.size())},
          std::as_bytes(std::span(values))};
}

template <typename T>
Status take_values(const Checkpoint& file, const std::string& name, std::size_t count,
                   std::vector<T>& out) {
  TRINE_TRY_ASSIGN(const TensorInfo* tensor, file.require(name));
  if (tensor->data.size() != count * sizeof(T)) {
    return fail(ErrorCode::kCorruptData, "{}: {} has {} bytes, {} are expected", file.source(),
                name, tensor->data.size(), count * sizeof(T));
  }
  out.resize(count);
  std::memcpy(out.data(), tensor->data.data(), tensor->data.size());
  return {};
}

Json json_of(const LinearResult& linear) {
  const ModuleReport& r = linear.report;
  Json out = {{"module", linear.module},
              {"first_row", linear.first_row},
              {"rows", linear.rows},
              {"cols", linear.cols},
              {"plain_activations", linear.plain_activations},
              {"kept", !linear.kept.empty()},
              {"scheme", r.scheme},
              {"bits_per_weight", r.bits_per_weight},
              {"clipped_share", r.clipped_share},
              {"damping", r.damping},
              {"dead_columns", r.dead_columns},
              {"tokens", r.tokens},
              {"fallback", r.fallback}};
  if (r.error.has_value()) {
    out["error"] = *r.error;
    out["plain_error"] = r.plain_error.value_or(0);
  }
  if (linear.quantized.has_value()) {
    const QuantScheme& scheme = linear.quantized->scheme;
    out["bits"] = scheme.bits;
    out["group"] = scheme.group;
    out["kind"] = static_cast<int>(scheme.kind);
  }
  return out;
}

LinearResult linear_of(const Json& j) {
  LinearResult out;
  ModuleReport& r = out.report;
  out.module = r.module = j.at("module").get<std::string>();
  out.first_row = j.at("first_row").get<std::int64_t>();
  out.rows = r.rows = j.at("rows").get<std::int64_t>();
  out.cols = r.cols = j.at("cols").get<std::int64_t>();
  out.plain_activations = j.at("plain_activations").get<bool>();
  r.scheme = j.at("scheme").get<std::string>();
  r.bits_per_weight = j.at("bits_per_weight").get<double>();
  r.clipped_share = j.at("clipped_share").get<double>();
  r.damping = j.at("damping").get<double>();
  r.dead_columns = j.at("dead_columns").get<std::int64_t>();
  r.tokens = j.at("tokens").get<std::int64_t>();
  r.fallback = j.at("fallback").get<std::string>();
  if (j.contains("error")) {
    r.error = j.at("error").get<double>();
    r.plain_error = j.at("plain_error").get<double>();
  }
  return out;
}

Status read_linear(const Checkpoint& file, const std::string& prefix, const Json& j,
                   LinearResult& out) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  if (out.rows < 1 || out.cols < 1 || out.rows > kMost || out.cols > kMost) {
    return fail(ErrorCode::kCorruptData, "{}: a matrix of {} x {}", file.source(), out.rows,
                out.cols);
  }
  const auto count = static_cast<std::size_t>(out.rows * out.cols);
  if (j.at("kept").get<bool>()) {
    TRINE_TRY(take_values(file, prefix + "kept", count, out.kept));
  }
  if (!j.contains("bits")) {
    return {};
  }
  const int kind = j.at("kind").get<int>();
  if (kind < 0 || kind > static_cast<int>(GridKind::kMin)) {
    return fail(ErrorCode::kCorruptData, "{}: there is no grid {}", file.source(), kind);
  }
  const QuantScheme scheme{j.at("bits").get<int>(), j.at("group").get<std::int32_t>(),
                           static_cast<GridKind>(kind)};
  TRINE_TRY(check_scheme(scheme));
  // The codes come first: what is there bounds what is allocated.
  std::vector<std::uint8_t> packed;
  TRINE_TRY(take_values(file, prefix + "codes",
                        (count * static_cast<std::size_t>(scheme.bits) + 7) / 8, packed));
  QuantizedWeights q(scheme, out.rows, out.cols);
  q.codes = unpack_bits(std::as_bytes(std::span(packed)), scheme.bits, count);
  TRINE_TRY(take_values(file, prefix + "scales", q.scales.size(), q.scales));
  if (scheme.kind == GridKind::kMin) {
    TRINE_TRY(take_values(file, prefix + "mins", q.mins.size(), q.mins));
  } else {
    TRINE_TRY(take_values(file, prefix + "zeros", q.zeros.size(), q.zeros));
  }
  out.quantized = std::move(q);
  return {};
}

}  // namespace

std::vector<std::uint8_t> pack_bits(const std::vector<std::uint8_t>& codes, int bits) {
  std::vector<std::uint8_t> out((codes.size() * static_cast<std::size_t>(bits) + 7) / 8);
  std::size_t at = 0;
  for (const std::uint8_t code : codes) {
    const auto wide = static_cast<unsigned>(code) << (at % 8);
    out[at / 8] = static_cast<std::uint8_t>(out[at / 8] | (wide & 0xffU));
    if (wide > 0xffU) {
      out[at / 8 + 1] = static_cast<std::uint8_t>(wide >> 8);
    }
    at += static_cast<std::size_t>(bits);
  }
  return out;
}

std::vector<std::uint8_t> unpack_bits(std::span<const std::byte> packed, int bits,
                                      std::size_t count) {
  TRINE_CHECK(packed.size() * 8 >= count * static_cast<std::size_t>(bits));
  std::vector<std::uint8_t> out(count);
  std::size_t at = 0;
  for (std::uint8_t& code : out) {
    auto wide = static_cast<unsigned>(packed[at / 8]);
    if (at / 8 + 1 < packed.size()) {
      wide |= static_cast<unsigned>(packed[at / 8 + 1]) << 8;
    }
    code = static_cast<std::uint8_t>((wide >> (at % 8)) & ((1U << bits) - 1U));
    at += static_cast<std::size_t>(bits);
  }
  return out;
}

BlockResult take_result(BlockWeights& block) {
  BlockResult out;
  // Parts of a fused tensor are kept together: one of them may be scaled alone.
  std::set<std::string> scaled;
  for (const auto& linear : block.linears) {
    if (linear->scaled) {
      scaled.insert(linear->module);
    }
  }
  for (const auto& linear : block.linears) {
    LinearResult result;
    result.module = linear->module;
    result.first_row = linear->first_row;
    result.rows = linear->rows;
    result.cols = linear->cols;
    result.plain_activations = linear->plain_activations;
    result.quantized = std::move(linear->quantized);
    if (!result.quantized.has_value() && scaled.contains(linear->module)) {
      result.kept = linear->w;
    }
    result.report = linear->report;
    out.linears.push_back(std::move(result));
  }
  for (const auto& [name, values] : block.folded) {
    std::erase_if(out.folded, [&](const auto& known) { return known.first == name; });
    out.folded.emplace_back(name, *values);
  }
  return out;
}

Status apply_result(ThreadTeam& team, const BlockResult& result, BlockWeights& block) {
  if (result.linears.size() != block.linears.size()) {
    return fail(ErrorCode::kCorruptData, "a result of {} layers for a block of {}",
                result.linears.size(), block.linears.size());
  }
  for (std::size_t i = 0; i < result.linears.size(); ++i) {
    const LinearResult& from = result.linears[i];
    BlockLinear& to = *block.linears[i];
    if (from.rows != to.rows || from.cols != to.cols || from.module != to.module) {
      return fail(ErrorCode::kCorruptData, "a result of {} [{}, {}] for {} [{}, {}]",
                  printable(from.module), from.rows, from.cols, printable(to.module), to.rows,
                  to.cols);
    }
    if (!from.kept.empty()) {
      std::copy(from.kept.begin(), from.kept.end(), to.w.begin());
    } else if (from.quantized.has_value()) {
      const auto cols = static_cast<std::size_t>(to.cols);
      team.run([&](int thread_idx) {
        const auto [begin, end] = split_range(to.rows, 1, thread_idx, team.num_threads());
        for (std::int64_t r = begin; r < end; ++r) {
          from.quantized->dequantize_row(
              r, std::span(to.w).subspan(static_cast<std::size_t>(r) * cols, cols));
        }
      });
    }
  }
  for (const auto& [name, values] : result.folded) {
    std::vector<float>* const to = block.foldable(name);
    if (to == nullptr || to->size() != values.size()) {
      return fail(ErrorCode::kCorruptData, "a result for {}, which the block does not have so",
                  printable(name));
    }
    *to = values;
  }
  return {};
}

Status write_block_result(const std::string& path, const BlockResult& result,
                          const std::string& identity) {
  Json linears = Json::array();
  std::vector<std::vector<std::uint8_t>> packed;
  std::vector<TensorInfo> tensors;
  packed.reserve(result.linears.size());
  for (std::size_t i = 0; i < result.linears.size(); ++i) {
    const LinearResult& linear = result.linears[i];
    const std::string prefix = fmt::format("{}.", i);
    linears.push_back(json_of(linear));
    if (!linear.kept.empty()) {
      tensors.push_back(tensor_of(prefix + "kept", DType::kF32, linear.kept));
    }
    if (linear.quantized.has_value()) {
      const QuantizedWeights& q = *linear.quantized;
      packed.push_back(pack_bits(q.codes, q.scheme.bits));
      tensors.push_back(tensor_of(prefix + "codes", DType::kU8, packed.back()));
      tensors.push_back(tensor_of(prefix + "scales", DType::kF16, q.scales));
      tensors.push_back(q.scheme.kind == GridKind::kMin
                            ? tensor_of(prefix + "mins", DType::kF16, q.mins)
                            : tensor_of(prefix + "zeros", DType::kU8, q.zeros));
    }
  }
  Json folded = Json::array();
  for (std::size_t i = 0; i < result.folded.size(); ++i) {
    folded.push_back({{"name", result.folded[i].first}, {"size", result.folded[i].second.size()}});
    tensors.push_back(tensor_of(fmt::format("fold.{}", i), DType::kF32, result.folded[i].second));
  }
  return write_safetensors(
      path, tensors,
      {{"identity", identity}, {"linears", linears.dump()}, {"folded", folded.dump()}});
}

Result<BlockResult> read_block_result(const std::string& path, const std::string& identity) {
  TRINE_TRY_ASSIGN(const auto file, MappedFile::open(path));
  return parse_block_result(file->bytes(), path, identity);
}

Result<BlockResult> parse_block_result(std::span<const std::byte> bytes, const std::string& source,
                                       const std::string& identity) {
  auto read = parse_safetensors(bytes);
  if (!read.has_value()) {
    return tl::unexpected(std::move(read).error().with_context(source));
  }
  SafetensorsFile parsed = *std::move(read);
  std::string linears_text;
  std::string folded_text;
  std::string found;
  for (const auto& [key, value] : parsed.metadata) {
    (key == "identity" ? found : key == "linears" ? linears_text : folded_text) = value;
  }
  if (found != identity) {
    return fail(ErrorCode::kInvalidArgument,
                "{} belongs to a run with other options or another model", source);
  }
  TRINE_TRY_ASSIGN(const Json linears, parse_json(linears_text));
  TRINE_TRY_ASSIGN(const Json folded, parse_json(folded_text));
  TRINE_TRY_ASSIGN(const Checkpoint tensors,
                   Checkpoint::build(source, std::move(parsed.tensors), {}));
  BlockResult out;
  try {
    for (std::size_t i = 0; i < linears.size(); ++i) {
      LinearResult& linear = out.linears.emplace_back(linear_of(linears[i]));
      TRINE_TRY(read_linear(tensors, fmt::format("{}.", i), linears[i], linear));
    }
    for (std::size_t i = 0; i < folded.size(); ++i) {
      auto& [name, values] =
          out.folded.emplace_back(folded[i].at("name").get<std::string>(), std::vector<float>{});
      TRINE_TRY(take_values(tensors, fmt::format("fold.{}", i),
                            folded[i].at("size").get<std::size_t>(), values));
    }
  } catch (const Json::exception& error) {
    return fail(ErrorCode::kCorruptData, "{}: {}", source, error.what());
  }
  return out;
}

}  // namespace trine
