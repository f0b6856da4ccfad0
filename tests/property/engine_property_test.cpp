// Random storms of requests on random small pools, with cancellations and steps thrown away: every
// answer is the one its request gets alone and cold, and the books agree at every step.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "unit/engine/harness.h"

namespace trine {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

std::shared_ptr<FakeModel> hash_model() {
  return std::make_shared<FakeModel>(FakeModel::Options{.vocab_size = 32});
}

GenerationRequest random_request() {
  GenerationRequest out{.sampling = {.temperature = 1.2,
                                     .seed = *rc::gen::inRange<std::uint64_t>(0, 3),
                                     .logprobs = 1},
                        .n = *rc::gen::element(1, 1, 1, 2, 3),
                        .max_tokens = *rc::gen::inRange(1, 60),
                        .stop_ids = {1, 2},  // answers of one request end at different times
                        .ignore_eos = true,
                        .tenant = *rc::gen::element<std::string>("a", "b"),
                        .priority = *rc::gen::inRange(0, 2)};
  out.prompt.assign(static_cast<std::size_t>(*rc::gen::inRange(1, 110)), *rc::gen::inRange(0, 2));
  return out;
}

struct Client {
  GenerationRequest request;
  Record record;
  RequestId id = 0;
  bool cancelled = false;
};

void expect_as_alone(const Client& client) {
  const Record alone = generate(hash_model(), client.request, {.prefix_cache = false});
  for (const auto& [index, answer] : client.record.answers) {
    const RecordedAnswer& want = alone.answers.at(index);
    const std::size_t count = answer.tokens.size();
    RC_ASSERT(client.cancelled || count == want.tokens.size());
    RC_ASSERT(count <= want.tokens.size());
    RC_ASSERT(std::equal(answer.tokens.begin(), answer.tokens.end(), want.tokens.begin()));
    RC_ASSERT(std::equal(answer.logprobs.begin(), answer.logprobs.end(), want.logprobs.begin()));
  }
  RC_ASSERT(client.record.answers.size() == static_cast<std::size_t>(client.request.n));
}

RC_GTEST_PROP(EngineProperty, AnAnswerIsTheOneItsRequestGetsAlone, (bool caches)) {
  const auto engine = make_engine(
      hash_model(), {.kv_tokens = *rc::gen::inRange(8, 20) * kPageTokens,
                     .step_tokens = *rc::gen::element(1, 10, 200),
                     .max_sequences = 6,
                     .prefix_cache = caches,
                     .target_itl_ms = *rc::gen::element(std::optional<double>(), std::optional(0.0),
                                                        std::optional(0.5))});
  engine->pool().set_poison(true);
  std::vector<std::unique_ptr<Client>> clients;
  const auto num_ops = *rc::gen::inRange(1, 40);
  for (int i = 0; i < num_ops; ++i) {
    const auto op = *rc::gen::inRange(0, 8);
    if (op < 3) {
      auto client = std::make_unique<Client>();
      client->request = random_request();
      const auto id = engine->submit(client->request, client->record.callback());
      RC_ASSERT(id.has_value() || id.error().code == ErrorCode::kExhausted);
      if (id.has_value()) {
        client->id = *id;
        clients.push_back(std::move(client));
      }
    } else if (op == 3 && !clients.empty()) {
      Client& client = *clients[*rc::gen::inRange<std::size_t>(0, clients.size())];
      client.cancelled = true;
      engine->cancel(client.id);
    } else if (op == 4) {
      engine->schedule();  // thrown away
      engine->run();
    } else {
      engine->step();
    }
    const Status status = engine->check_integrity();
    RC_ASSERT(status.has_value());
  }
  engine->run_to_end();
  const Status status = engine->check_integrity();
  RC_ASSERT(status.has_value());
  for (const auto& client : clients) {
    expect_as_alone(*client);
  }
}

}  // namespace
}  // namespace trine
