#include "eval/ref_cache.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "eval/text_eval.h"
#include "support/fake_model.h"

namespace trine::eval {
namespace {

using ::testing::HasSubstr;

class RefCache : public ::testing::Test {
 protected:
  RefCache() : team_(ThreadTeam::create(1).value()), ops_(*team_) {
    for (std::int32_t i = 0; i < 150; ++i) {
      text_.tokens.push_back(i * 11 % 64);
    }
    text_.num_ids = 64;
    text_.hash = "beef";
    plan_ = plan_windows(text_, 32, 512, 0, 0).value();
    key_ = {.model_hash = "model",
            .settings = "kv=f16",
            .protocol = protocol(text_, plan_),
            .text_hash = text_.hash,
            .num_ids = 64,
            .num_rows = plan_.num_scored(),
            .greedy = "some",
            .type = RefCacheType::kF32};
    path_ =
        std::filesystem::temp_directory_path() /
        ("trine-ref-cache-" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
         ::testing::UnitTest::GetInstance()->current_test_info()->name() +
         std::to_string(::getpid()));
  }

  ~RefCache() override { std::filesystem::remove(path_); }

  std::unique_ptr<ModelSource> model(std::int32_t favoured) {
    testing::FakeModel::Options options;
    options.script = [favoured](std::span<const std::int32_t> history) {
      return history.size() % 3 == 0 ? std::optional(favoured) : std::nullopt;
    };
    return ModelSource::create(std::make_shared<testing::FakeModel>(options), ops_,
                               {.context = 32, .num_ids = 64})
        .value();
  }

  Status write() {
    const auto source = model(3);
    return write_ref_cache(path_, key_, text_, plan_, *source, prompts_, 5,
                           [](std::int64_t) { return true; });
  }

  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::unique_ptr<ThreadTeam> team_;
  ops::Context ops_;
  TokenText text_;
  WindowPlan plan_;
  RefCacheKey key_;
  std::vector<std::vector<std::int32_t>> prompts_ = {{1, 2, 3}, {4, 5}};
  std::string path_;
};

TEST_F(RefCache, ComparesAsTheModelWould) {
  ASSERT_TRUE(write().has_value());
  const auto cached = RefCacheSource::open(path_, key_);
  ASSERT_TRUE(cached.has_value()) << cached.error().message;
  const auto candidate = model(4);
  const auto live = model(3);
  const TextOptions options{.greedy_prompts = 0};
  const auto a = evaluate_text(text_, plan_, *candidate, cached->get(), *team_, options);
  const auto b = evaluate_text(text_, plan_, *candidate, live.get(), *team_, options);
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_GT(a->comparison->kl.mean, 0.1);
  EXPECT_EQ(a->comparison->kl.mean, b->comparison->kl.mean);
  EXPECT_EQ(a->comparison->kl.p999, b->comparison->kl.p999);
  EXPECT_EQ(a->comparison->ppl.value, b->comparison->ppl.value);
  EXPECT_EQ(*(*cached)->continue_greedily(prompts_, 5), *live->continue_greedily(prompts_, 5));
  EXPECT_THAT((*cached)->continue_greedily(prompts_, 6).error().message,
              HasSubstr("2 continuations of 6 tokens"));
}

TEST_F(RefCache, HalvesAreNear) {
  key_.type = RefCacheType::kF16;
  ASSERT_TRUE(write().has_value());
  EXPECT_LT(bytes().size(), static_cast<std::size_t>(plan_.num_scored()) * 64 * 2 + 2048);
  const auto cached = RefCacheSource::open(path_, key_);
  ASSERT_TRUE(cached.has_value());
  const auto live = model(3);
  const auto got = evaluate_text(text_, plan_, *live, cached->get(), *team_, {.greedy_prompts = 0});
  ASSERT_TRUE(got.has_value());
  EXPECT_LT(got->comparison->kl.max, 1e-4);
  EXPECT_NEAR(got->comparison->ppl_change.value, 0.0, 1e-2);
}

TEST_F(RefCache, ServesOnlyWhatItWasMadeFor) {
  ASSERT_TRUE(write().has_value());
  const auto message = [&](const auto& change) {
    RefCacheKey wanted = key_;
    change(wanted);
    const auto opened = RefCacheSource::open(path_, wanted);
    EXPECT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
    return opened.error().message;
  };
  EXPECT_THAT(message([](RefCacheKey& k) { k.model_hash = "x"; }), HasSubstr("model, not x"));
  EXPECT_THAT(message([](RefCacheKey& k) { k.settings = "x"; }), HasSubstr("setting of"));
  EXPECT_THAT(message([](RefCacheKey& k) { k.protocol = "x"; }), HasSubstr("another protocol"));
  EXPECT_THAT(message([](RefCacheKey& k) { k.text_hash = "x"; }), HasSubstr("another text"));
  EXPECT_THAT(message([](RefCacheKey& k) { k.num_ids = 65; }), HasSubstr("64, not 65"));
  EXPECT_THAT(message([](RefCacheKey& k) { k.num_rows = 1; }), HasSubstr("number of rows"));
  EXPECT_THAT(message([](RefCacheKey& k) { k.greedy = "x"; }), HasSubstr("some, not x"));
  EXPECT_THAT(message([](RefCacheKey& k) { k.type = RefCacheType::kF16; }),
              HasSubstr("f32, not f16"));
}

TEST_F(RefCache, DamagedFilesAreRefused) {
  ASSERT_TRUE(write().has_value());
  const std::string good = bytes();
  const auto message = [](const std::string& damaged) {
    const auto parsed = parse_ref_cache(as_byte_span(damaged));
    return parsed.has_value() ? std::string("fine") : parsed.error().message;
  };
  EXPECT_EQ(message(good), "fine");
  EXPECT_THAT(message(""), HasSubstr("magic: 8 bytes needed"));
  EXPECT_THAT(message("x" + good), HasSubstr("not a file of reference logits"));
  EXPECT_THAT(message(good + "1234"), HasSubstr("do not make up its"));
  EXPECT_THAT(message(good.substr(0, good.size() - 1)), HasSubstr("truncated"));
  std::string damaged = good;
  damaged[8] = 9;
  EXPECT_THAT(message(damaged), HasSubstr("version 9"));
  damaged = good;
  damaged[15] = 'x';
  EXPECT_THAT(message(damaged), HasSubstr("header length"));
  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string out = good;
    const std::size_t at = out.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    out.replace(at, from.size(), to);
    return message(out);
  };
  EXPECT_THAT(replaced("\"f32\"", "\"f99\""), HasSubstr("\"type\" is 'f99'"));
  EXPECT_THAT(replaced("\"num_ids\":64", "\"num_ids\":-4"), HasSubstr("\"num_ids\""));
  EXPECT_THAT(replaced("\"num_ids\":64", "\"num_idx\":64"), HasSubstr("\"num_ids\""));
  EXPECT_THAT(replaced("\"num_ids\":64", "\"num_ids\":63"), HasSubstr("do not make up"));
  EXPECT_THAT(replaced("\"settings\":\"kv", "\"settingz\":\"kv"), HasSubstr("\"settings\""));
  EXPECT_THAT(replaced("\"continuations\":[[", "\"continuations\":[-"),
              ::testing::AnyOf(HasSubstr("continuations"), HasSubstr("header")));
}

TEST_F(RefCache, AppearsCompleteOrNotAtAll) {
  const auto source = model(3);
  const Status stopped = write_ref_cache(path_, key_, text_, plan_, *source, prompts_, 5,
                                         [](std::int64_t rows) { return rows < 20; });
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace trine::eval
