// Which tokens of which requests a step computes: pure logic on numbers, without tensors, sockets
// or a clock; the engine and the planner's simulator run the same one.
//
// Times are milliseconds of the caller's clock. plan() decides and changes nothing; commit() makes
// it so. Rules:
// - Waiting requests come in by priority (lower value = earlier, as in vLLM), then by the tenant
//   that was served least, then by arrival. The one whose turn it is waits for its room and nobody
//   overtakes it, so long prompts get in.
// - A request is admitted when the pages of what it has now are at hand, beside one page for each
//   sequence at work; not by its longest possible course.
// - Decoding goes first, then prompts, in chunks, within the tokens of a step.
// - When a sequence at work gets no page, the request that is last by (priority, arrival) is
//   preempted: it gives up all its pages at commit, keeps its tokens and waits again, to have them
//   computed anew. The first in that order is never a victim of another, and its longest course
//   fits the pool (submit() checks), so it always ends.
// - n answers share the prompt: sequence 0 reads it, the others fork from it.
// Nothing is allocated per step once the lists have grown. Thread rule: engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "sched/tenants.h"

namespace trine::sched {

using JobId = std::uint64_t;

struct Limits {
  std::int32_t num_pages = 1;       // of the pool
  std::int32_t max_sequences = 64;  // at work at once
  // The queue takes more while fewer wait than this; what comes then may pass it, so that a
  // refusal is never for good.
  std::int32_t max_waiting = 512;             // requests
  std::int64_t max_waiting_tokens = 1 << 20;  // of their prompts together
};

struct JobSpec {
  std::string_view tenant = {};
  std::int32_t priority = 0;
  std::optional<double> deadline_ms = {};  // a point in time: in the queue or at work, it ends then
  std::int32_t prompt_tokens = 1;
  std::int32_t max_tokens = 1;  // per answer
  std::int32_t num_answers = 1;
};

// Why a request was not taken, for a 429 with Retry-After.
struct Refusal {
  std::int32_t num_waiting = 0;
  std::int32_t max_waiting = 0;
  std::int64_t waiting_tokens = 0;
  std::int64_t max_waiting_tokens = 0;
  double retry_after_s =
      1.0;  // at least 1: when the queue should be down to half, from measured speed
};

struct Plan {
  struct Admission {
    JobId job = 0;
    std::int32_t cached_tokens = 0;  // found in the prefix cache, whole pages
  };

  struct Item {
    JobId job = 0;
    std::int32_t sequence = 0;
    std::int32_t first = 0;
    std::int32_t count = 0;
    bool wants_logits = false;  // the last known token is among them
    bool decoding = false;      // one token, which was drawn; counted in num_decoding
  };

  std::vector<Admission> admitted;
  std::vector<JobId> preempted;  // at commit; their items of this step count until then
  std::vector<JobId> expired;    // past the deadline: the caller ends them
  std::vector<Item> items;
  std::int32_t num_tokens = 0;
  std::int32_t num_decoding = 0;
};

struct Stats {
  std::int32_t running = 0;  // requests
  std::int32_t waiting = 0;
  std::int64_t waiting_tokens = 0;
  std::int64_t submitted = 0;
  std::int64_t rejected = 0;
  std::int64_t preempted = 0;
  std::int64_t expired = 0;
  std::int64_t recomputed_tokens = 0;  // lost to preemptions, of each answer; cached ones count
};

// What is known about the beginning of a waiting job's tokens.
class PrefixOracle {
 public:
  virtual ~PrefixOracle() = default;
  // Tokens of the job that need no computing, a multiple of kPageTokens.
  virtual std::int32_t cached_tokens(JobId job) const = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const Limits& limits);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  Scheduler(Scheduler&&) = delete;
  Scheduler& operator=(Scheduler&&) = delete;

  // Room for more? Called before submit(), once for requests that come together; counts a refusal.
  std::optional<Refusal> refuse();
  // The pages of the longest course. The caller refuses what does not fit the pool.
  static std::int64_t longest_course(std::int32_t prompt_tokens, std::int32_t max_tokens,
                                     std::int32_t num_answers);
  void submit(JobId job, const JobSpec& spec);

  // The next step of at most `budget` tokens while `pages` pages are free or can be freed.
  const Plan& plan(double now_ms, std::int32_t budget, std::int32_t pages,
                   const PrefixOracle* prefix);
  // The plan has run in step_ms. Afterwards the caller tells drawn tokens and ends.
  void commit(double step_ms);
  // One more token of an answer is known.
  void add_token(JobId job, std::int32_t sequence);
  // An answer ended. The last one ends the job.
  void finish(JobId job, std::int32_t sequence);

  std::int32_t num_decoding() const;  // sequences of which the next step computes one token

  bool idle() const { return jobs_.empty(); }

  Stats stats() const;
  // Counts agree with the lists; a violation is described.
  Status check_integrity() const;

 private:
  struct Job;

  Job* find(JobId id);
  std::int32_t page_cost(const Job& job, std::size_t sequence, std::int32_t count) const;
  bool plan_items(Job& job, bool decoding, std::int32_t budget);
  void plan_victim();
  void plan_admissions(std::int32_t budget);
  std::int64_t outstanding(const Job& job) const;
  Job* next_waiting();
  void preempt(Job& job);

  Limits limits_;
  Tenants tenants_;
  std::vector<std::unique_ptr<Job>> jobs_;  // by (priority, arrival)
  Plan plan_;
  // Scratch of a plan in the making.
  std::int32_t pages_at_hand_ = 0;
  std::int32_t pages_left_ = 0;
  std::vector<std::int64_t> charged_;  // per tenant, by admissions of this plan
  const PrefixOracle* prefix_ = nullptr;
  // Measured speed, for Retry-After.
  double tokens_per_ms_ = 0.0;
  Stats stats_;
};

}  // namespace trine::sched
