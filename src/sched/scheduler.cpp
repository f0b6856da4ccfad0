#include "sched/scheduler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "tensor/kv_layout.h"

namespace trine::sched {

namespace {

std::int64_t pages_for(std::int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

struct Sequence {
  std::int32_t length = 0;  // computed
  std::int32_t known = 0;   // prompt and drawn
  bool finished = false;
  bool shares_tail = false;  // of the last, partly filled page with other answers
  std::int32_t planned = 0;  // tokens in the plan
};

}  // namespace

struct Scheduler::Job {
  JobId id = 0;
  JobSpec spec;
  std::int32_t tenant = 0;
  bool running = false;
  bool planned_in = false;  // admitted by the plan
  bool expires = false;     // by the plan
  bool victim = false;      // of the plan
  bool charged = false;     // its prompt, to the tenant
  bool forked = false;      // every unfinished answer has its own sequence
  std::int32_t tail_sharers = 0;
  std::int32_t tail_planned = 0;  // sharers that the plan parts
  std::int32_t num_unfinished = 0;
  std::vector<Sequence> sequences;

  // The answer that reads the prompt for all.
  std::size_t lead() const {
    std::size_t at = 0;
    while (at + 1 < sequences.size() && sequences[at].finished) {
      ++at;
    }
    return at;
  }

  // Where the lead stops for the others: the end of the prompt, unless it is alone.
  std::int32_t target(std::size_t sequence) const {
    return forked || num_unfinished == 1 ? sequences[sequence].known : spec.prompt_tokens;
  }

  bool before(const Job& other) const {
    return spec.priority != other.spec.priority ? spec.priority < other.spec.priority
                                                : id < other.id;
  }
};

Scheduler::Scheduler(const Limits& limits) : limits_(limits) {}

Scheduler::~Scheduler() = default;

std::int64_t Scheduler::longest_course(std::int32_t prompt_tokens, std::int32_t max_tokens,
                                       std::int32_t num_answers) {
  const std::int64_t shared = prompt_tokens / kPageTokens;
  return shared + num_answers * (pages_for(std::int64_t{prompt_tokens} + max_tokens) - shared);
}

std::optional<Refusal> Scheduler::refuse() {
  const Stats now = stats();
  if (now.waiting < limits_.max_waiting && now.waiting_tokens < limits_.max_waiting_tokens) {
    return std::nullopt;
  }
  ++stats_.rejected;
  Refusal refusal{.num_waiting = now.waiting,
                  .max_waiting = limits_.max_waiting,
                  .waiting_tokens = now.waiting_tokens,
                  .max_waiting_tokens = limits_.max_waiting_tokens};
  if (tokens_per_ms_ > 0.0) {
    const double half = static_cast<double>(now.waiting_tokens) / 2;
    refusal.retry_after_s = std::clamp(std::ceil(half / tokens_per_ms_ / 1000.0), 1.0, 3600.0);
  }
  return refusal;
}

void Scheduler::submit(JobId id, const JobSpec& spec) {
  TRINE_CHECK(find(id) == nullptr);
  TRINE_CHECK(longest_course(spec.prompt_tokens, spec.max_tokens, spec.num_answers) <=
              limits_.num_pages);
  auto job = std::make_unique<Job>();
  job->id = id;
  job->spec = spec;
  job->tenant = tenants_.enter(spec.tenant);
  job->spec.tenant = {};  // the caller's text
  job->num_unfinished = spec.num_answers;
  job->sequences.assign(static_cast<std::size_t>(spec.num_answers),
                        Sequence{.known = spec.prompt_tokens});
  const auto at = std::upper_bound(jobs_.begin(), jobs_.end(), job,
                                   [](const auto& a, const auto& b) { return a->before(*b); });
  jobs_.insert(at, std::move(job));
  ++stats_.submitted;
}

Scheduler::Job* Scheduler::find(JobId id) {
  const auto at =
      std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& job) { return job->id == id; });
  return at == jobs_.end() ? nullptr : at->get();
}

// Pages that `count` more tokens take: new ones, and a copy of a shared page that they begin in.
std::int32_t Scheduler::page_cost(const Job& job, std::size_t at, std::int32_t count) const {
  const Sequence& sequence = job.sequences[at];
  const bool copies = sequence.shares_tail && job.tail_sharers - job.tail_planned > 1;
  return static_cast<std::int32_t>(pages_for(std::int64_t{sequence.length} + count) -
                                   pages_for(sequence.length)) +
         (copies && count > 0 ? 1 : 0);
}

// False when a sequence gets no page.
bool Scheduler::plan_items(Job& job, bool decoding, std::int32_t budget) {
  const std::size_t lead = job.lead();
  for (std::size_t at = 0; at < job.sequences.size(); ++at) {
    Sequence& sequence = job.sequences[at];
    if (sequence.finished || (!job.forked && at != lead)) {
      continue;
    }
    const std::int32_t unread = job.target(at) - sequence.length;
    const bool is_decoding = unread == 1 && sequence.known > job.spec.prompt_tokens;
    std::int32_t count = std::min(unread, budget - plan_.num_tokens);
    if (is_decoding != decoding || count <= 0) {
      continue;
    }
    while (count > 0 && page_cost(job, at, count) > pages_left_) {
      // Down to the end of the page before.
      const std::int32_t end = sequence.length + count;
      count -= end % kPageTokens == 0 ? kPageTokens : end % kPageTokens;
    }
    if (count <= 0) {
      return false;
    }
    pages_left_ -= page_cost(job, at, count);
    job.tail_planned += sequence.shares_tail ? 1 : 0;
    sequence.planned = count;
    plan_.items.push_back({.job = job.id,
                           .sequence = static_cast<std::int32_t>(at),
                           .first = sequence.length,
                           .count = count,
                           .wants_logits = sequence.length + count == sequence.known,
                           .decoding = decoding});
    plan_.num_tokens += count;
    plan_.num_decoding += decoding ? 1 : 0;
  }
  return true;
}

// The last in order gives way, unless it is the only one at work.
void Scheduler::plan_victim() {
  Job* victim = nullptr;
  std::int32_t at_work = 0;
  for (const auto& job : jobs_) {
    if (job->running && !job->expires) {
      victim = job.get();
      ++at_work;
    }
  }
  if (at_work > 1) {
    victim->victim = true;
    plan_.preempted.push_back(victim->id);
  }
}

// Pages to compute all that is known and one token more.
std::int64_t Scheduler::outstanding(const Job& job) const {
  const std::size_t lead = job.lead();
  const std::int64_t shared = job.forked ? 0 : job.spec.prompt_tokens / kPageTokens;
  std::int64_t pages = 0;
  for (std::size_t at = 0; at < job.sequences.size(); ++at) {
    const Sequence& sequence = job.sequences[at];
    if (!sequence.finished) {
      pages += pages_for(std::int64_t{sequence.known} + 1) -
               (job.forked || at == lead ? pages_for(sequence.length) : shared);
    }
  }
  return pages;
}

Scheduler::Job* Scheduler::next_waiting() {
  Job* best = nullptr;
  const auto served = [&](const Job& job) {
    return tenants_.served(job.tenant) + charged_[static_cast<std::size_t>(job.tenant)];
  };
  for (const auto& job : jobs_) {
    if (job->running || job->planned_in || job->expires) {
      continue;
    }
    if (best == nullptr ||
        (job->spec.priority == best->spec.priority && served(*job) < served(*best))) {
      best = job.get();  // jobs come by priority and arrival
    }
  }
  return best;
}

void Scheduler::plan_admissions(std::int32_t budget) {
  std::int32_t sequences_left = limits_.max_sequences;
  std::int64_t reserved = 0;
  bool any = false;
  for (const auto& job : jobs_) {
    if (job->running) {
      sequences_left -= job->spec.num_answers;
      any = true;
      reserved += job->expires ? 0 : std::max<std::int64_t>(outstanding(*job), 1);
    }
  }
  // What this plan already gave to them.
  reserved = std::max<std::int64_t>(reserved - (pages_at_hand_ - pages_left_), 0);
  charged_.assign(tenants_.size(), 0);
  while (plan_.num_tokens < budget) {
    Job* job = next_waiting();
    if (job == nullptr || job->spec.num_answers > sequences_left) {
      return;
    }
    const std::int64_t wanted = outstanding(*job);
    if (any && wanted + reserved > pages_left_) {
      return;
    }
    Sequence& lead = job->sequences[job->lead()];
    // At least one token is computed: the fork, or a draw, hangs on it.
    const std::int32_t most = (job->target(job->lead()) - 1) / kPageTokens * kPageTokens;
    const std::int32_t cached =
        prefix_ == nullptr ? 0 : std::min(prefix_->cached_tokens(job->id), most);
    // Cached pages may have been counted among those at hand, so they are paid for.
    pages_left_ -= cached / kPageTokens;
    lead.length = cached;
    const std::size_t items_before = plan_.items.size();
    (void)plan_items(*job, false, budget);
    if (plan_.items.size() == items_before) {
      (void)plan_items(*job, true, budget);
    }
    lead.length = 0;
    if (plan_.items.size() == items_before) {
      pages_left_ += cached / kPageTokens;
      return;
    }
    reserved += std::max<std::int64_t>(
        wanted - pages_for(plan_.items.back().first + plan_.items.back().count), 1);
    any = true;
    job->planned_in = true;
    sequences_left -= job->spec.num_answers;
    charged_[static_cast<std::size_t>(job->tenant)] +=
        job->charged ? 0 : std::max(job->spec.prompt_tokens - cached, 1);
    plan_.admitted.push_back({.job = job->id, .cached_tokens = cached});
  }
}

const Plan& Scheduler::plan(double now_ms, std::int32_t budget, std::int32_t pages,
                            const PrefixOracle* prefix) {
  plan_.admitted.clear();
  plan_.preempted.clear();
  plan_.expired.clear();
  plan_.items.clear();
  plan_.num_tokens = 0;
  plan_.num_decoding = 0;
  pages_at_hand_ = pages;
  pages_left_ = pages;
  prefix_ = prefix;
  for (const auto& job : jobs_) {
    job->planned_in = false;
    job->victim = false;
    job->tail_planned = 0;
    job->expires = job->spec.deadline_ms && now_ms >= *job->spec.deadline_ms;
    for (Sequence& sequence : job->sequences) {
      sequence.planned = 0;
    }
    if (job->expires) {
      plan_.expired.push_back(job->id);
    }
  }
  bool short_of_pages = false;
  for (const bool decoding : {true, false}) {
    for (const auto& job : jobs_) {
      if (job->running && !job->expires) {
        short_of_pages = !plan_items(*job, decoding, budget) || short_of_pages;
      }
    }
  }
  if (short_of_pages) {
    plan_victim();
  } else {
    plan_admissions(budget);
  }
  return plan_;
}

void Scheduler::preempt(Job& job) {
  ++stats_.preempted;
  job.running = false;
  job.forked = false;
  job.tail_sharers = 0;
  for (Sequence& sequence : job.sequences) {
    stats_.recomputed_tokens += sequence.finished ? 0 : sequence.length;
    sequence.length = 0;
    sequence.shares_tail = false;
  }
}

void Scheduler::commit(double step_ms) {
  for (const Plan::Admission& admission : plan_.admitted) {
    Job* job = find(admission.job);
    TRINE_CHECK(job != nullptr);
    job->running = true;
    job->sequences[job->lead()].length = admission.cached_tokens;
    if (!job->charged) {
      tenants_.charge(job->tenant, std::max(job->spec.prompt_tokens - admission.cached_tokens, 1));
      job->charged = true;
    }
  }
  for (const auto& job : jobs_) {
    const std::size_t lead = job->lead();
    for (Sequence& sequence : job->sequences) {
      if (sequence.planned > 0 && sequence.shares_tail) {
        sequence.shares_tail = false;
        --job->tail_sharers;
      }
      sequence.length += sequence.planned;
      sequence.planned = 0;
    }
    const std::int32_t length = job->sequences[lead].length;
    if (job->running && !job->forked && length == job->target(lead)) {
      job->forked = true;
      const bool shares = length % kPageTokens != 0 && job->num_unfinished > 1;
      for (Sequence& sequence : job->sequences) {
        if (!sequence.finished) {
          sequence.length = length;
          sequence.shares_tail = shares;
          job->tail_sharers += shares ? 1 : 0;
        }
      }
    }
  }
  for (const JobId id : plan_.preempted) {
    preempt(*find(id));
  }
  if (step_ms > 0.0 && plan_.num_tokens > 0) {  // a mean over about ten steps
    const double speed = plan_.num_tokens / step_ms;
    tokens_per_ms_ = tokens_per_ms_ == 0.0 ? speed : 0.9 * tokens_per_ms_ + 0.1 * speed;
  }
  stats_.expired += static_cast<std::int64_t>(plan_.expired.size());
  plan_.admitted.clear();
  plan_.preempted.clear();
  plan_.expired.clear();
  plan_.items.clear();
  plan_.num_tokens = 0;
}

void Scheduler::add_token(JobId id, std::int32_t sequence) {
  Job* job = find(id);
  TRINE_CHECK(job != nullptr);
  ++job->sequences[static_cast<std::size_t>(sequence)].known;
  tenants_.charge(job->tenant, 1);
}

void Scheduler::finish(JobId id, std::int32_t at) {
  Job* job = find(id);
  TRINE_CHECK(job != nullptr);
  Sequence& sequence = job->sequences[static_cast<std::size_t>(at)];
  TRINE_CHECK(!sequence.finished);
  job->tail_sharers -= sequence.shares_tail ? 1 : 0;
  sequence.shares_tail = false;
  sequence.finished = true;
  sequence.planned = 0;
  if (--job->num_unfinished > 0) {
    return;
  }
  tenants_.leave(job->tenant);
  std::erase_if(jobs_, [&](const auto& other) { return other->id == id; });
}

std::int32_t Scheduler::num_decoding() const {
  std::int32_t count = 0;
  for (const auto& job : jobs_) {
    for (const Sequence& sequence : job->sequences) {
      count +=
          job->running && job->forked && !sequence.finished && sequence.known == sequence.length + 1
              ? 1
              : 0;
    }
  }
  return count;
}

Stats Scheduler::stats() const {
  Stats out = stats_;
  for (const auto& job : jobs_) {
    ++(job->running ? out.running : out.waiting);
    out.waiting_tokens += job->running ? 0 : job->spec.prompt_tokens;
  }
  return out;
}

Status Scheduler::check_integrity() const {
  std::vector<std::int32_t> requests(tenants_.size(), 0);
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const Job& job = *jobs_[i];
    if (i > 0 && !jobs_[i - 1]->before(job)) {
      return fail(ErrorCode::kInternal, "scheduler: job {} is out of order", job.id);
    }
    ++requests[static_cast<std::size_t>(job.tenant)];
    std::int32_t unfinished = 0;
    std::int32_t sharers = 0;
    for (const Sequence& sequence : job.sequences) {
      unfinished += sequence.finished ? 0 : 1;
      sharers += sequence.shares_tail ? 1 : 0;
      if (sequence.length > sequence.known || (!job.running && sequence.length > 0)) {
        return fail(ErrorCode::kInternal, "scheduler: job {} has {} of {} tokens computed", job.id,
                    sequence.length, sequence.known);
      }
    }
    if (unfinished != job.num_unfinished || sharers != job.tail_sharers) {
      return fail(ErrorCode::kInternal,
                  "scheduler: job {} counts {} answers and {} sharers, has {} and {}", job.id,
                  job.num_unfinished, job.tail_sharers, unfinished, sharers);
    }
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] != tenants_.num_requests(static_cast<std::int32_t>(i))) {
      return fail(ErrorCode::kInternal, "scheduler: tenant {} counts {} requests, has {}", i,
                  tenants_.num_requests(static_cast<std::int32_t>(i)), requests[i]);
    }
  }
  return {};
}

}  // namespace trine::sched
