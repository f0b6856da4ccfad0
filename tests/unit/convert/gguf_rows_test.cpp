// The blocks of converted rows against the gguf package (tests/golden/convert/PROVENANCE.md), and
// the trained model of assets/ as a file.
#include "convert/gguf_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "convert/to_gguf.h"
#include "engine/bundle.h"
#include "support/hash_weights.h"
#include "support/tiny_model.h"

namespace trine {
namespace {

namespace fs = std::filesystem;
using testing::Runner;

const fs::path kRoot(TRINE_SOURCE_DIR);

TEST(GgufRows, Q8BlocksAreThoseOfTheReference) {
  constexpr std::size_t kRows = 64;
  constexpr std::size_t kCols = 96;
  const std::string golden = testing::read_file(kRoot / "tests/golden/convert/q8_0.bin");
  ASSERT_EQ(golden.size(), kRows * kCols / 32 * 34);
  const std::uint64_t hash = testing::fnv1a("q8_0");
  std::vector<float> x(kCols);
  std::vector<std::byte> blocks(kCols / 32 * 34);
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t col = 0; col < kCols; ++col) {
      x[col] = row < 60 ? testing::hash_weight(hash, row * kCols + col,
                                               std::ldexp(1.0, -static_cast<int>(row)), 0.0)
                        : 0.0F;
    }
    encode_q8_0(x, blocks.data());
    EXPECT_EQ(std::memcmp(blocks.data(), golden.data() + row * blocks.size(), blocks.size()), 0)
        << "row " << row;
  }
}

class ConvertDocs : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto report = convert_to_gguf({directory, file, {}, 0, false, nullptr});
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_EQ(report->type, DType::kF16);
    EXPECT_EQ(report->params, 8392960);
    EXPECT_TRUE(report->has_tokenizer);
    EXPECT_EQ(report->notes, std::vector<std::string>{});
    EXPECT_EQ(report->bytes, fs::file_size(file));
  }

  testing::TempDir dir;
  const std::string directory = (kRoot / "assets/models/docs-8m").string();
  const std::string file = (dir.path() / "docs-8m.gguf").string();
};

TEST_F(ConvertDocs, HasTheLogitsOfTheDirectory) {
  const auto meta = parse_json(testing::read_file(kRoot / "tests/golden/docs/docs-8m.json"));
  ASSERT_TRUE(meta.has_value());
  const auto ids = meta->at("ids").get<std::vector<std::int32_t>>();
  const auto from = Model::load(directory);
  const auto to = Model::load(file);
  ASSERT_TRUE(from.has_value() && to.has_value());
  const std::vector<float> expected = Runner(*from, 2).logits(ids);
  const std::vector<float> logits = Runner(*to, 2).logits(ids);
  ASSERT_EQ(logits.size(), expected.size());
  // Rows of queries and keys lie in another order, so their products are added in another order.
  EXPECT_LE(testing::relative_error(logits, expected), 1e-5);
  const std::size_t vocab = expected.size() / ids.size();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto row = static_cast<std::ptrdiff_t>(i * vocab);
    const auto end = static_cast<std::ptrdiff_t>((i + 1) * vocab);
    EXPECT_EQ(std::max_element(logits.begin() + row, logits.begin() + end) - logits.begin(),
              std::max_element(expected.begin() + row, expected.begin() + end) - expected.begin());
  }
}

TEST_F(ConvertDocs, HasTheTextSideOfTheDirectory) {
  const auto from = ModelText::load(directory);
  const auto to = ModelText::load(file);
  ASSERT_TRUE(from.has_value() && to.has_value());
  EXPECT_EQ(from->template_sources(), to->template_sources());
  EXPECT_EQ(from->bos_token(), to->bos_token());
  EXPECT_EQ(from->eos_token(), to->eos_token());
  const auto a = from->tokenizer().value();
  const auto b = to->tokenizer().value();
  ASSERT_EQ(a->vocab_size(), b->vocab_size());
  for (std::int32_t id = 0; id < a->vocab_size(); ++id) {
    ASSERT_EQ(a->token_bytes(id), b->token_bytes(id)) << id;
    ASSERT_EQ(a->kind(id), b->kind(id)) << id;
  }
  const auto corpus = parse_json(testing::read_file(kRoot / "tests/golden/tokenizers/corpus.json"));
  ASSERT_TRUE(corpus.has_value());
  for (const auto& line : *corpus) {
    const auto text = line.get<std::string>();
    for (const bool special : {false, true}) {
      EXPECT_EQ(a->encode(text, {special, special}).value(),
                b->encode(text, {special, special}).value())
          << line;
    }
  }
  const auto from_model = Model::load(directory);
  const auto to_model = Model::load(file);
  ASSERT_TRUE(from_model.has_value() && to_model.has_value());
  EXPECT_EQ(end_ids(*from, (*from_model)->config()), end_ids(*to, (*to_model)->config()));
}

}  // namespace
}  // namespace trine
