// Pooled vectors of the trained models against numpy (tests/golden/embeddings/PROVENANCE.md).
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "engine/engine.h"

namespace trine {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::stringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

TEST(EmbeddingsGolden, EqualNumpys) {
  const std::filesystem::path root(TRINE_SOURCE_DIR);
  for (const std::string name : {"docs-1m", "docs-8m"}) {
    const auto golden = parse_json(read_file(root / "tests/golden/embeddings" / (name + ".json")));
    ASSERT_TRUE(golden.has_value()) << golden.error().message;
    auto model = Model::load((root / "assets/models" / name).string());
    ASSERT_TRUE(model.has_value()) << model.error().message;
    auto engine =
        Engine::create(*model, nullptr, {.num_threads = 2, .kv_dtype = DType::kF32}).value();
    for (const auto& [key, pooling] :
         {std::pair{"mean", Pooling::kMean}, {"last", Pooling::kLast}}) {
      const auto wanted = golden->at(key).get<std::vector<double>>();
      std::vector<float> got;
      GenerationRequest request{.prompt = golden->at("ids").get<std::vector<std::int32_t>>(),
                                .pooling = pooling};
      ASSERT_TRUE(engine
                      ->submit(std::move(request),
                               [&got](const TokenEvent& event) {
                                 ASSERT_NE(event.embedding, nullptr);
                                 got = *event.embedding;
                               })
                      .has_value());
      engine->run_to_end();
      ASSERT_EQ(got.size(), wanted.size());
      double largest = 0.0;
      double worst = 0.0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        largest = std::max(largest, std::abs(wanted[i]));
        worst = std::max(worst, std::abs(wanted[i] - double{got[i]}));
      }
      EXPECT_LE(worst, 1e-5 * largest) << name << " " << key;
    }
  }
}

}  // namespace
}  // namespace trine
