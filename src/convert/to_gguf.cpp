#include "convert/to_gguf.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "convert/gguf_rows.h"
#include "format/gguf_writer.h"
#include "platform/mapped_file.h"

namespace trine {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kStretchBytes = std::int64_t{1} << 20;

Result<std::optional<std::string>> read_optional(const fs::path& path) {
  auto file = MappedFile::open(path.string());
  if (!file.has_value()) {
    if (file.error().code == ErrorCode::kNotFound) {
      return std::nullopt;
    }
    return tl::unexpected(std::move(file).error());
  }
  const auto bytes = (*file)->bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

fs::path folder_of(const std::string& source) {
  const fs::path given(source);
  return fs::is_directory(given) ? given : given.parent_path();
}

// The directory's own name, also when it is spelled "." or "models/a/".
std::string name_of(const std::string& source) {
  std::error_code error;
  const fs::path full = fs::canonical(folder_of(source) / ".", error);
  return error ? std::string() : full.filename().string();
}

Result<std::optional<text::GgufTokenizer>> read_tokenizer(const std::string& source,
                                                          std::int64_t rows) {
  const fs::path file = folder_of(source) / "tokenizer.json";
  TRINE_TRY_ASSIGN(const auto tokenizer, read_optional(file));
  if (!tokenizer.has_value()) {
    return std::nullopt;
  }
  TRINE_TRY_ASSIGN(const auto config, read_optional(folder_of(source) / "tokenizer_config.json"));
  auto made = text::gguf_tokenizer(*tokenizer, config.value_or(""), rows);
  if (!made.has_value()) {
    return tl::unexpected(std::move(made).error().with_context(file.string()));
  }
  return std::optional(*std::move(made));
}

// The type that most weights of the source's matrices have.
DType usual_type(const GgufPlan& plan) {
  std::map<DType, std::int64_t> counts;
  for (const PlannedTensor& tensor : plan.tensors) {
    for (const RowSource& source : tensor.sources) {
      counts[source.tensor->dtype] += tensor.small ? 0 : source.rows * tensor.cols();
    }
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? DType::kF32 : most->first;
}

Status write_tensor(const PlannedTensor& tensor, DType type, GgufWriter& writer,
                    const std::function<Status(std::uint64_t)>& written) {
  const std::int64_t row_bytes = dtype_row_bytes(type, tensor.cols()).value_or(1);
  const std::int64_t rows = tensor.rows();
  const std::int64_t stretch = std::max<std::int64_t>(1, kStretchBytes / row_bytes);
  std::vector<std::byte> bytes;
  for (std::int64_t first = 0; first < rows; first += stretch) {
    bytes.clear();
    TRINE_TRY(encode_rows(tensor, type, first, std::min(stretch, rows - first), bytes));
    TRINE_TRY(writer.append(tensor.name, bytes));
    TRINE_TRY(written(bytes.size()));
  }
  return {};
}

Status check_output(const ConvertRequest& request) {
  std::error_code error;
  const fs::file_status status = fs::status(request.out, error);
  if (fs::is_directory(status)) {
    return fail(ErrorCode::kInvalidArgument, "{} is a directory; --out names the file to write",
                request.out);
  }
  if (fs::is_regular_file(status) && !request.replace) {
    return fail(ErrorCode::kInvalidArgument, "{} exists; --force replaces it", request.out);
  }
  return {};
}

}  // namespace

std::uint32_t gguf_file_type(DType type) {
  switch (type) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 32;
    default:
      TRINE_CHECK(type == DType::kQ8_0);
      return 7;
  }
}

Result<GgufPairs> gguf_pairs(const std::string& source, const DecoderParts& parts,
                             std::string_view architecture, std::vector<std::string>& notes) {
  TRINE_TRY_ASSIGN(const ModelText text, ModelText::load(source));
  TRINE_TRY_ASSIGN(std::optional<text::GgufTokenizer> tokenizer,
                   read_tokenizer(source, parts.config.vocab_size));
  if (!tokenizer.has_value()) {
    notes.emplace_back("the directory has no tokenizer.json, so the file takes token ids only");
  }
  GgufPairs out;
  add_general_keys(architecture, name_of(source), out);
  add_sampling_keys(text.generation(), out);
  add_model_keys(architecture, parts.config, out, notes);
  TRINE_TRY(add_tokenizer_keys(tokenizer.has_value() ? &*tokenizer : nullptr, text, parts.config,
                               out, notes));
  return out;
}

Result<ConvertReport> convert_to_gguf(const ConvertRequest& request) {
  TRINE_TRY(check_output(request));
  TRINE_TRY_ASSIGN(const DecoderParts parts, open_decoder(request.source, request.max_context));
  auto planned = plan_gguf(parts);
  if (!planned.has_value()) {
    return tl::unexpected(std::move(planned).error().with_context(request.source));
  }
  const GgufPlan& plan = *planned;
  ConvertReport report;
  report.architecture = plan.architecture;
  report.type = request.type.value_or(usual_type(plan));
  TRINE_TRY_ASSIGN(GgufPairs pairs,
                   gguf_pairs(request.source, parts, plan.architecture, report.notes));
  report.has_tokenizer = std::any_of(
      pairs.begin(), pairs.end(),
      [](const GgufMetadata::Pair& pair) { return pair.first == "tokenizer.ggml.tokens"; });
  pairs.emplace_back("general.file_type", gguf_file_type(report.type));
  if (report.type == DType::kQ8_0) {
    pairs.emplace_back("general.quantization_version", std::uint32_t{2});
  }

  std::vector<GgufTensorSpec> specs;
  std::uint64_t total = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    const DType type = stored_type(tensor, report.type);
    specs.push_back({tensor.name, type, tensor.shape});
    total += static_cast<std::uint64_t>(tensor.rows() *
                                        dtype_row_bytes(type, tensor.cols()).value_or(0));
    report.params += tensor.sources.empty() ? 0 : tensor.rows() * tensor.cols();
  }
  report.tensors = static_cast<std::int64_t>(specs.size());
  TRINE_TRY_ASSIGN(GgufWriter writer, GgufWriter::create(request.out, pairs, specs));
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    TRINE_TRY(write_tensor(plan.tensors[i], specs[i].dtype, writer, [&](std::uint64_t bytes) {
      done += bytes;
      return request.progress ? request.progress(done, total) : Status{};
    }));
    parts.checkpoint->weights().release_pages();
  }
  TRINE_TRY(writer.finish());
  std::error_code error;
  const std::uintmax_t size = fs::file_size(request.out, error);
  report.bytes = error ? done : size;
  return report;
}

}  // namespace trine
