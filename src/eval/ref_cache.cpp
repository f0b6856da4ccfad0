#include "eval/ref_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/check.h"
#include "base/half.h"
#include "base/json.h"
#include "eval/row_metrics.h"
#include "format/output_file.h"
#include "hub/files.h"

namespace trine::eval {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "TRINEREF";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kLongestHeader = 16U << 20;
constexpr std::size_t kAlignment = 64;
constexpr std::int32_t kChunk = 64;  // rows in memory while writing

std::size_t element_bytes(RefCacheType type) {
  return type == RefCacheType::kF32 ? 4 : 2;
}

std::string_view type_name(RefCacheType type) {
  return type == RefCacheType::kF32 ? "f32" : "f16";
}

std::size_t aligned(std::size_t offset) {
  return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

Result<std::string> text_field(const Json& header, const char* name) {
  const auto at = header.find(name);
  if (at == header.end() || !at->is_string()) {
    return fail(ErrorCode::kCorruptData, "header: \"{}\" is missing or no string", name);
  }
  return at->get<std::string>();
}

Result<std::int64_t> count_field(const Json& header, const char* name, std::int64_t most) {
  const auto at = header.find(name);
  if (at == header.end() || !at->is_number_integer() || at->get<std::int64_t>() < 1 ||
      at->get<std::int64_t>() > most) {
    return fail(ErrorCode::kCorruptData, "header: \"{}\" is missing or not in [1, {}]", name, most);
  }
  return at->get<std::int64_t>();
}

Result<std::vector<std::vector<std::int32_t>>> continuations_field(const Json& header,
                                                                   std::int32_t num_ids) {
  std::vector<std::vector<std::int32_t>> out;
  const auto at = header.find("continuations");
  const auto bad = [] {
    return fail(ErrorCode::kCorruptData, "header: \"continuations\" are not lists of token ids");
  };
  if (at == header.end() || !at->is_array()) {
    return bad();
  }
  for (const Json& list : *at) {
    if (!list.is_array()) {
      return bad();
    }
    out.emplace_back();
    for (const Json& id : list) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
          id.get<std::int64_t>() >= num_ids) {
        return bad();
      }
      out.back().push_back(id.get<std::int32_t>());
    }
  }
  return out;
}

Result<RefCacheHeader> parse_header(std::string_view text) {
  auto header = parse_json(text, JsonLimits{.max_depth = 4});
  if (!header.has_value() || !header->is_object()) {
    return fail(ErrorCode::kCorruptData, "header: {}",
                header.has_value() ? "an object is expected" : header.error().message);
  }
  RefCacheHeader out;
  TRINE_TRY_ASSIGN(out.key.model_hash, text_field(*header, "model_sha256"));
  TRINE_TRY_ASSIGN(out.key.settings, text_field(*header, "settings"));
  TRINE_TRY_ASSIGN(out.key.protocol, text_field(*header, "protocol"));
  TRINE_TRY_ASSIGN(out.key.text_hash, text_field(*header, "text_sha256"));
  TRINE_TRY_ASSIGN(out.key.greedy, text_field(*header, "greedy"));
  TRINE_TRY_ASSIGN(const std::string type, text_field(*header, "type"));
  if (type != "f32" && type != "f16") {
    return fail(ErrorCode::kCorruptData, "header: \"type\" is '{}', expected f32 or f16", type);
  }
  out.key.type = type == "f32" ? RefCacheType::kF32 : RefCacheType::kF16;
  constexpr std::int64_t kMostIds = std::int64_t{1} << 30;
  constexpr std::int64_t kMostRows = std::int64_t{1} << 40;
  TRINE_TRY_ASSIGN(const std::int64_t num_ids, count_field(*header, "num_ids", kMostIds));
  out.key.num_ids = static_cast<std::int32_t>(num_ids);
  TRINE_TRY_ASSIGN(out.key.num_rows, count_field(*header, "num_rows", kMostRows));
  TRINE_TRY_ASSIGN(out.continuations, continuations_field(*header, out.key.num_ids));
  return out;
}

std::string header_text(const RefCacheKey& key,
                        const std::vector<std::vector<std::int32_t>>& continuations) {
  return Json{{"model_sha256", key.model_hash}, {"settings", key.settings},
              {"protocol", key.protocol},       {"text_sha256", key.text_hash},
              {"num_ids", key.num_ids},         {"num_rows", key.num_rows},
              {"type", type_name(key.type)},    {"greedy", key.greedy},
              {"continuations", continuations}}
      .dump();
}

Status write_header(OutputFile& file, const std::string& header) {
  std::string out(kMagic);
  const auto append = [&out](std::uint32_t value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  append(kVersion);
  append(static_cast<std::uint32_t>(header.size()));
  out += header;
  out.resize(aligned(out.size()), '\0');
  return file.write(as_byte_span(out));
}

// Rows of float32 logits in the file's type.
Status write_rows(OutputFile& file, RefCacheType type, std::size_t width,
                  std::span<const float> rows) {
  if (type == RefCacheType::kF32) {
    return file.write(std::as_bytes(rows));
  }
  std::vector<std::uint16_t> halves;
  halves.reserve(rows.size());
  for (std::size_t first = 0; first < rows.size(); first += width) {
    const std::span<const float> row = rows.subspan(first, width);
    const double log_sum = log_sum_exp(row);
    for (const float logit : row) {
      constexpr double kLeast = -65504.0;  // of binary16
      halves.push_back(
          f32_to_f16(static_cast<float>(std::clamp(double{logit} - log_sum, kLeast, 0.0))));
    }
  }
  return file.write(std::as_bytes(std::span<const std::uint16_t>(halves)));
}

}  // namespace

Result<RefCacheHeader> parse_ref_cache(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  TRINE_TRY_ASSIGN(const auto magic, reader.read_bytes(kMagic.size(), "magic"));
  if (as_text(magic) != kMagic) {
    return fail(ErrorCode::kCorruptData, "not a file of reference logits");
  }
  TRINE_TRY_ASSIGN(const std::uint32_t version, reader.read<std::uint32_t>("version"));
  if (version != kVersion) {
    return fail(ErrorCode::kUnsupported, "version {} of the format, this program knows {}", version,
                kVersion);
  }
  TRINE_TRY_ASSIGN(const std::uint32_t length, reader.read<std::uint32_t>("header length"));
  if (length > kLongestHeader) {
    return fail(ErrorCode::kCorruptData, "header length {}, at most {}", length, kLongestHeader);
  }
  TRINE_TRY_ASSIGN(const auto text, reader.read_bytes(length, "header"));
  TRINE_TRY_ASSIGN(RefCacheHeader out, parse_header(as_text(text)));
  out.data_offset = aligned(reader.position());
  const auto row_bytes = static_cast<std::uint64_t>(out.key.num_ids) * element_bytes(out.key.type);
  const auto wanted = checked_mul(row_bytes, static_cast<std::uint64_t>(out.key.num_rows));
  const auto end = wanted.has_value() ? checked_add(*wanted, out.data_offset) : std::nullopt;
  if (!end.has_value() || *end != bytes.size()) {
    return fail(ErrorCode::kCorruptData,
                "{} rows of {} {} values do not make up its {} bytes (truncated file?)",
                out.key.num_rows, out.key.num_ids, type_name(out.key.type), bytes.size());
  }
  return out;
}

Status check_ref_cache(const RefCacheHeader& header, const RefCacheKey& wanted) {
  const auto check = [](std::string_view what, const auto& has, const auto& wants) -> Status {
    if (has == wants) {
      return {};
    }
    return fail(ErrorCode::kInvalidArgument,
                "it was made for another {}: {}, not {}; name another file or remove this one",
                what, has, wants);
  };
  const RefCacheKey& key = header.key;
  TRINE_TRY(check("reference model (SHA-256)", key.model_hash, wanted.model_hash));
  TRINE_TRY(check("setting of the reference", key.settings, wanted.settings));
  TRINE_TRY(check("text (SHA-256 of the tokens)", key.text_hash, wanted.text_hash));
  TRINE_TRY(check("protocol", key.protocol, wanted.protocol));
  TRINE_TRY(check("vocabulary size", key.num_ids, wanted.num_ids));
  TRINE_TRY(check("number of rows", key.num_rows, wanted.num_rows));
  TRINE_TRY(check("choice of continued prompts", key.greedy, wanted.greedy));
  return check("type", type_name(key.type), type_name(wanted.type));
}

Status write_ref_cache(const std::string& path, const RefCacheKey& key, const TokenText& text,
                       const WindowPlan& plan, LogitSource& source,
                       const std::vector<std::vector<std::int32_t>>& prompts,
                       std::int32_t num_tokens, const std::function<bool(std::int64_t)>& progress) {
  TRINE_TRY_ASSIGN(OutputFile file, OutputFile::create(path));
  TRINE_TRY_ASSIGN(const auto continuations, source.continue_greedily(prompts, num_tokens));
  TRINE_TRY(write_header(file, header_text(key, continuations)));
  std::vector<float> rows;
  std::int64_t done = 0;
  for (const Window& window : plan.windows) {
    TRINE_TRY(source.begin(text, plan, window));
    for (std::int32_t row = window.score_from; row < window.length;) {
      const std::int32_t count = std::min(kChunk, window.length - row);
      TRINE_TRY(source.next(count, rows));
      if (!std::all_of(rows.begin(), rows.end(), [](float x) { return std::isfinite(x); })) {
        return fail(ErrorCode::kInternal, "the reference gave logits that are not finite");
      }
      TRINE_TRY(write_rows(file, key.type, static_cast<std::size_t>(key.num_ids), rows));
      row += count;
      done += count;
      if (!progress(done)) {
        return fail(ErrorCode::kCancelled, "interrupted after {} of {} rows, nothing was written",
                    done, key.num_rows);
      }
    }
  }
  TRINE_CHECK(done == key.num_rows);
  return file.commit();
}

Result<std::unique_ptr<RefCacheSource>> RefCacheSource::open(const std::string& path,
                                                             const RefCacheKey& wanted) {
  TRINE_TRY_ASSIGN(auto file, MappedFile::open(path));
  auto header = parse_ref_cache(file->bytes());
  if (!header.has_value()) {
    return tl::unexpected(std::move(header).error().with_context("--ref-cache " + path));
  }
  if (Status fits = check_ref_cache(*header, wanted); !fits.has_value()) {
    return tl::unexpected(std::move(fits).error().with_context("--ref-cache " + path));
  }
  return std::unique_ptr<RefCacheSource>(new RefCacheSource(std::move(file), *std::move(header)));
}

Status RefCacheSource::begin(const TokenText& /*text*/, const WindowPlan& /*plan*/,
                             const Window& /*window*/) {
  return {};
}

Status RefCacheSource::next(std::int32_t count, std::vector<float>& logits) {
  TRINE_CHECK(row_ + count <= header_.key.num_rows);
  const auto width = static_cast<std::size_t>(header_.key.num_ids);
  const auto num = width * static_cast<std::size_t>(count);
  const std::size_t bytes_each = element_bytes(header_.key.type);
  const std::byte* from = file_->bytes().data() + header_.data_offset +
                          static_cast<std::size_t>(row_) * width * bytes_each;
  logits.resize(num);
  if (header_.key.type == RefCacheType::kF32) {
    std::memcpy(logits.data(), from, num * sizeof(float));
  } else {
    for (std::size_t i = 0; i < num; ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, from + i * sizeof half, sizeof half);
      logits[i] = f16_to_f32(half);
    }
  }
  row_ += count;
  return {};
}

Result<std::vector<std::vector<std::int32_t>>> RefCacheSource::continue_greedily(
    const std::vector<std::vector<std::int32_t>>& prompts, std::int32_t num_tokens) {
  const bool fits =
      header_.continuations.size() == prompts.size() &&
      std::all_of(header_.continuations.begin(), header_.continuations.end(), [&](const auto& ids) {
        return ids.size() == static_cast<std::size_t>(num_tokens);
      });
  if (!fits) {
    return fail(ErrorCode::kCorruptData,
                "the file of reference logits does not hold {} continuations of {} tokens",
                prompts.size(), num_tokens);
  }
  return header_.continuations;
}

Result<std::string> fingerprint(const std::string& model_path, const std::atomic<bool>* cancel) {
  namespace fs = std::filesystem;
  const fs::path path(model_path);
  std::vector<fs::path> files;
  std::error_code error;
  const bool directory = fs::is_directory(path, error);
  const fs::path folder = directory ? path : path.parent_path();
  if (directory) {
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
      if (at->path().extension() == ".safetensors") {
        files.push_back(at->path());
      }
    }
    if (error) {
      return fail(ErrorCode::kNotFound, "{}: {}", model_path, error.message());
    }
  } else {
    files.push_back(path);
  }
  if (directory || path.extension() == ".safetensors") {
    for (const char* name : {"config.json", "tokenizer.json"}) {
      if (fs::exists(folder / name, error)) {
        files.push_back(folder / name);
      }
    }
  }
  std::sort(files.begin(), files.end());
  hub::Sha256 hash;
  for (const fs::path& file : files) {
    TRINE_TRY_ASSIGN(const std::string digest, hub::sha256_file(file, cancel));
    // Names of single files do not matter: a copy under another name is the same model.
    hash.update((files.size() > 1 ? file.filename().string() : std::string()) + " " + digest +
                "\n");
  }
  return hash.finish();
}

}  // namespace trine::eval
