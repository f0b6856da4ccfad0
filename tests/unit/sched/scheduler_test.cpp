#include "sched/scheduler.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/alloc_counter.h"
#include "tensor/kv_layout.h"

namespace trine::sched {
namespace {

std::vector<JobId> admitted(const Plan& plan) {
  std::vector<JobId> out;
  for (const Plan::Admission& admission : plan.admitted) {
    out.push_back(admission.job);
  }
  return out;
}

// Runs a plan of one-answer jobs: each drawn token is known at once.
void run(Scheduler& scheduler) {
  std::vector<Plan::Item> drawn;
  const Plan& plan = scheduler.plan(0.0, 512, 100, nullptr);
  for (const Plan::Item& item : plan.items) {
    if (item.wants_logits) {
      drawn.push_back(item);
    }
  }
  scheduler.commit(10.0);
  for (const Plan::Item& item : drawn) {
    scheduler.add_token(item.job, item.sequence);
  }
}

TEST(Scheduler, RefusesPastTheQueueLimits) {
  Scheduler scheduler({.num_pages = 100, .max_waiting = 2, .max_waiting_tokens = 100});
  EXPECT_FALSE(scheduler.refuse());
  scheduler.submit(1, {.prompt_tokens = 99});
  EXPECT_FALSE(scheduler.refuse());  // whatever its length: a refusal is never for good
  scheduler.submit(2, {.prompt_tokens = 1});
  const auto by_both = scheduler.refuse();
  ASSERT_TRUE(by_both);
  EXPECT_EQ(by_both->num_waiting, 2);
  EXPECT_EQ(by_both->waiting_tokens, 100);
  EXPECT_GE(by_both->retry_after_s, 1.0);
  scheduler.finish(1, 0);
  EXPECT_FALSE(scheduler.refuse());
  scheduler.submit(3, {.prompt_tokens = 1});
  EXPECT_EQ(scheduler.refuse().value().max_waiting, 2);  // by number alone
  scheduler.finish(3, 0);
  scheduler.finish(2, 0);
  scheduler.submit(4, {.prompt_tokens = 500});
  EXPECT_EQ(scheduler.refuse().value().waiting_tokens, 500);  // by tokens alone
  EXPECT_EQ(scheduler.stats().rejected, 3);
}

TEST(Scheduler, RetryAfterFollowsTheMeasuredSpeed) {
  Scheduler scheduler({.num_pages = 1000, .max_sequences = 1, .max_waiting = 1});
  scheduler.submit(1, {.prompt_tokens = 100, .max_tokens = 9});
  (void)scheduler.plan(0.0, 512, 1000, nullptr);
  scheduler.commit(1000.0);  // 100 tokens per second
  scheduler.submit(2, {.prompt_tokens = 2000});
  EXPECT_DOUBLE_EQ(scheduler.refuse()->retry_after_s, 10.0);
}

TEST(Scheduler, LowerPriorityValuesComeFirst) {
  Scheduler scheduler({.num_pages = 100, .max_sequences = 2});
  scheduler.submit(1, {.priority = 5});
  scheduler.submit(2, {.priority = -1});
  scheduler.submit(3, {});
  EXPECT_EQ(admitted(scheduler.plan(0.0, 512, 100, nullptr)), (std::vector<JobId>{2, 3}));
}

TEST(Scheduler, AFloodOfOneTenantDelaysNobody) {
  Scheduler scheduler({.num_pages = 100, .max_sequences = 2});
  for (JobId id = 1; id <= 10; ++id) {
    scheduler.submit(id, {.tenant = "flood", .prompt_tokens = 50});
  }
  scheduler.submit(11, {.tenant = "quiet", .prompt_tokens = 50});
  EXPECT_EQ(admitted(scheduler.plan(0.0, 512, 100, nullptr)), (std::vector<JobId>{1, 11}));
}

TEST(Scheduler, IdlenessSavesNoCredit) {
  Scheduler scheduler({.num_pages = 100, .max_sequences = 1});
  scheduler.submit(1, {.tenant = "busy", .max_tokens = 60});
  for (int i = 0; i < 50; ++i) {
    run(scheduler);
  }
  // The newcomer starts at 51 like the busy one, not at 0: it gets one turn, not fifty.
  scheduler.submit(2, {.tenant = "busy"});
  scheduler.submit(3, {.tenant = "new", .prompt_tokens = 10});
  scheduler.submit(4, {.tenant = "new"});
  scheduler.finish(1, 0);
  EXPECT_EQ(admitted(scheduler.plan(0.0, 512, 100, nullptr)), (std::vector<JobId>{2}));
  scheduler.commit(1.0);
  scheduler.finish(2, 0);
  scheduler.submit(5, {.tenant = "busy"});
  EXPECT_EQ(admitted(scheduler.plan(0.0, 512, 100, nullptr)), (std::vector<JobId>{3}));
  scheduler.commit(1.0);
  scheduler.finish(3, 0);
  EXPECT_EQ(admitted(scheduler.plan(0.0, 512, 100, nullptr)), (std::vector<JobId>{5}));
}

TEST(Scheduler, NobodyOvertakesTheOneThatWaitsForPages) {
  Scheduler scheduler({.num_pages = 10});
  scheduler.submit(1, {.prompt_tokens = 4 * kPageTokens, .max_tokens = 9});
  run(scheduler);
  scheduler.submit(2, {.prompt_tokens = 7 * kPageTokens});
  scheduler.submit(3, {.prompt_tokens = 1});
  EXPECT_TRUE(scheduler.plan(0.0, 512, 5, nullptr).admitted.empty());
  EXPECT_EQ(admitted(scheduler.plan(0.0, 512, 10, nullptr)), (std::vector<JobId>{2, 3}));
}

TEST(Scheduler, DecodingComesBeforePrompts) {
  Scheduler scheduler({.num_pages = 100});
  scheduler.submit(1, {.prompt_tokens = 4, .max_tokens = 20});
  run(scheduler);
  scheduler.submit(2, {.priority = -1, .prompt_tokens = 100});
  for (int i = 0; i < 3; ++i) {
    const Plan& plan = scheduler.plan(0.0, 8, 100, nullptr);
    ASSERT_EQ(plan.items.size(), 2u);
    EXPECT_EQ(plan.items[0].job, 1u);
    EXPECT_EQ(plan.items[1].count, 7);
    EXPECT_EQ(plan.num_decoding, 1);
    scheduler.commit(1.0);
    scheduler.add_token(1, 0);
  }
}

TEST(Scheduler, DeadlinesHoldInTheQueueAndAtWork) {
  Scheduler scheduler({.num_pages = 100, .max_sequences = 1});
  scheduler.submit(1, {.deadline_ms = 100.0, .max_tokens = 50});
  scheduler.submit(2, {.deadline_ms = 50.0});
  (void)scheduler.plan(0.0, 512, 100, nullptr);
  scheduler.commit(1.0);
  EXPECT_EQ(scheduler.plan(50.0, 512, 100, nullptr).expired, (std::vector<JobId>{2}));
  EXPECT_EQ(scheduler.plan(100.0, 512, 100, nullptr).expired, (std::vector<JobId>{1, 2}));
  EXPECT_TRUE(scheduler.plan(100.0, 512, 100, nullptr).items.empty());
}

TEST(Scheduler, TheLastInOrderGivesWayAndKeepsItsTokens) {
  Scheduler scheduler({.num_pages = 4});
  scheduler.submit(1, {.prompt_tokens = kPageTokens - 1, .max_tokens = 50});
  scheduler.submit(2, {.prompt_tokens = kPageTokens - 1, .max_tokens = 50});
  run(scheduler);
  run(scheduler);  // both pages are full now
  EXPECT_EQ(scheduler.stats().running, 2);
  EXPECT_EQ(scheduler.plan(0.0, 512, 0, nullptr).preempted, (std::vector<JobId>{2}));
  scheduler.commit(1.0);
  EXPECT_EQ(scheduler.stats().preempted, 1);
  EXPECT_EQ(scheduler.stats().recomputed_tokens, kPageTokens);
  const Plan& plan = scheduler.plan(0.0, 512, 3, nullptr);
  ASSERT_EQ(plan.items.size(), 2u);
  EXPECT_EQ(plan.items[1].job, 2u);
  EXPECT_EQ(plan.items[1].count, kPageTokens + 1);  // prompt and the drawn two
  EXPECT_TRUE(scheduler.check_integrity().has_value());
}

TEST(Scheduler, CachedTokensAreNotComputedButTheirPagesArePaidFor) {
  class Cache : public PrefixOracle {
   public:
    std::int32_t cached_tokens(JobId job) const override { return job == 1 ? 2 * kPageTokens : 0; }
  };

  Scheduler scheduler({.num_pages = 10});
  scheduler.submit(1, {.prompt_tokens = 3 * kPageTokens - 1});
  scheduler.submit(2, {.prompt_tokens = kPageTokens - 1});
  const Cache cache;
  // All three pages at hand are the first one's, two of them as cached ones.
  const Plan& tight = scheduler.plan(0.0, 512, 3, &cache);
  ASSERT_EQ(tight.admitted.size(), 1u);
  EXPECT_EQ(tight.admitted[0].cached_tokens, 2 * kPageTokens);
  EXPECT_EQ(tight.items[0].first, 2 * kPageTokens);
  EXPECT_EQ(tight.items[0].count, kPageTokens - 1);
  EXPECT_EQ(scheduler.plan(0.0, 512, 4, &cache).admitted.size(), 1u);  // a page ahead is kept
  EXPECT_EQ(scheduler.plan(0.0, 512, 5, &cache).admitted.size(), 2u);
}

TEST(Scheduler, WarmStepsAllocateNothing) {
  Scheduler scheduler({.num_pages = 100});
  for (JobId id = 1; id <= 4; ++id) {
    scheduler.submit(id, {.tenant = "t", .prompt_tokens = 5, .max_tokens = 100});
  }
  const auto step = [&] {
    const std::size_t count = scheduler.plan(0.0, 512, 100, nullptr).items.size();
    scheduler.commit(1.0);
    for (JobId id = 1; id <= count; ++id) {
      scheduler.add_token(id, 0);
    }
  };
  step();
  const std::int64_t before = test::num_allocations();
  for (int i = 0; i < 50; ++i) {
    step();
  }
  EXPECT_EQ(test::num_allocations() - before, 0);
}

TEST(Tenants, EndlessNamesDoNotPileUp) {
  Tenants tenants;
  for (int i = 0; i < 5000; ++i) {
    tenants.leave(tenants.enter(std::to_string(i)));
  }
  EXPECT_LE(tenants.size(), Tenants::kMostIdle);
}

}  // namespace
}  // namespace trine::sched
