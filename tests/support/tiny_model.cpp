#include "support/tiny_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/check.h"
#include "base/half.h"
#include "base/json.h"
#include "support/hash_weights.h"

namespace trine::testing {
namespace {

std::filesystem::path families_dir() {
  return std::filesystem::path(TRINE_SOURCE_DIR) / "tests" / "golden" / "families";
}

template <typename T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

TempDir::TempDir() {
  static std::atomic<int> counter{0};
  path_ = std::filesystem::temp_directory_path() /
          fmt::format("trine-test-{}-{}", ::getpid(), counter++);
  std::filesystem::create_directories(path_);
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> family_case_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(families_dir())) {
    if (entry.is_directory()) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

FamilyCase load_family_case(const std::string& name) {
  const std::filesystem::path dir = families_dir() / name;
  FamilyCase out;
  out.name = name;
  out.config = read_file(dir / "config.json");
  out.config_v5 = read_file(dir / "config_v5.json");
  const auto meta = parse_json(read_file(dir / "case.json"));
  const auto config = parse_json(out.config);
  TRINE_CHECK(meta.has_value() && config.has_value());
  out.max_context = meta->at("max_context").get<std::int32_t>();
  out.tokens = hash_tokens(meta->at("tokens").get<std::size_t>(),
                           config->at("vocab_size").get<std::int32_t>());
  out.positions = meta->at("positions").get<std::vector<std::int32_t>>();
  for (const auto& row : meta->at("tensors")) {
    TinyTensor tensor;
    tensor.name = row[0].get<std::string>();
    tensor.shape = row[1].get<std::vector<std::int64_t>>();
    std::size_t count = 1;
    for (const std::int64_t dim : tensor.shape) {
      count *= static_cast<std::size_t>(dim);
    }
    const std::uint64_t hash = fnv1a(tensor.name);
    tensor.values.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      tensor.values[i] = hash_weight(hash, i, row[2].get<double>(), row[3].get<double>());
    }
    out.tensors.push_back(std::move(tensor));
  }
  const std::string bytes = read_file(dir / "logits.f32");
  out.logits.resize(bytes.size() / sizeof(float));
  std::memcpy(out.logits.data(), bytes.data(), out.logits.size() * sizeof(float));
  return out;
}

std::string safetensors_bytes(std::span<const TinyTensor> tensors, DType dtype, bool misalign) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::string data;
  for (const TinyTensor& tensor : tensors) {
    const std::size_t begin = data.size();
    for (const float value : tensor.values) {
      if (dtype == DType::kF32) {
        append(data, value);
      } else {
        append(data, dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value));
      }
    }
    header[tensor.name] = {{"dtype", dtype_info(dtype).name},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  while (text.size() % 8 != (misalign ? 1U : 0U)) {
    text += ' ';
  }
  std::string out;
  append(out, static_cast<std::uint64_t>(text.size()));
  return out + text + data;
}

void write_model_dir(const std::filesystem::path& dir, std::string_view config,
                     std::span<const TinyTensor> tensors, DType dtype, bool misalign) {
  std::filesystem::create_directories(dir);
  write_file(dir / "config.json", config);
  write_file(dir / "model.safetensors", safetensors_bytes(tensors, dtype, misalign));
}

Runner::Runner(std::shared_ptr<const Model> loaded, int num_threads, DType kv_dtype,
               std::int32_t num_pages)
    : model(std::move(loaded)) {
  auto made_team = ThreadTeam::create(num_threads);
  auto made_pool = PagePool::create(model->kv_geometry(kv_dtype), num_pages);
  TRINE_CHECK(made_team.has_value() && made_pool.has_value());
  team = *std::move(made_team);
  pool = *std::move(made_pool);
  context = std::make_unique<ops::Context>(*team);
  workspace = model->make_workspace();
}

Status Runner::step(std::span<const Span> spans, std::vector<float>& out, LayerObserver* observer) {
  for (const Span& span : spans) {
    TRINE_TRY(span.sequence->reserve(span.sequence->length() +
                                     static_cast<std::int32_t>(span.tokens.size())));
  }
  TRINE_TRY(model->forward(*context, spans, *workspace, out, observer));
  for (const Span& span : spans) {
    span.sequence->commit(static_cast<std::int32_t>(span.tokens.size()));
  }
  return {};
}

std::vector<float> Runner::logits(std::span<const std::int32_t> tokens, std::size_t chunk) {
  KvSequence sequence(*pool);
  std::vector<float> all;
  std::vector<float> part;
  const std::size_t size = chunk == 0 ? tokens.size() : chunk;
  for (std::size_t first = 0; first < tokens.size(); first += size) {
    const Span span{&sequence,
                    tokens.subspan(first, std::min(size, tokens.size() - first)),
                    {},
                    Span::Logits::kAll};
    const Status status = step({&span, 1}, part);
    EXPECT_TRUE(status.has_value()) << status.error().message;
    if (!status.has_value()) {
      return {};
    }
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

double relative_error(std::span<const float> a, std::span<const float> b) {
  double worst = 0.0;
  double largest = 1e-30;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    worst = difference <= worst ? worst : difference;  // a NaN stays
    largest = std::max(largest, static_cast<double>(std::abs(b[i])));
  }
  return worst / largest;
}

}  // namespace trine::testing
