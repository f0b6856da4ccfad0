// The scheduler in a world of real pages: every plan is carried out on page tables of its own, as
// the engine does, with random arrivals, ends and deadlines. The scheduler counts pages in numbers
// alone, so a page too few shows as a refused reserve(), and lost tokens as a wrong length.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "kv/kv_cache.h"
#include "kv/prefix_index.h"
#include "sched/scheduler.h"

namespace trine::sched {
namespace {

constexpr std::int32_t kPoolPages = 12;
constexpr std::int32_t kMaxSequences = 6;
constexpr KvGeometry kGeometry{
    .num_layers = 1, .num_kv_heads = 1, .head_dim_k = 1, .head_dim_v = 1, .dtype = DType::kF32};

struct Answer {
  std::vector<std::int32_t> tokens;
  KvSequence kv;
  bool finished = false;
};

struct Client {
  std::string tenant;
  std::int32_t priority = 0;
  std::int32_t prompt = 0;
  std::int32_t max_tokens = 0;
  bool running = false;
  bool forked = false;
  std::vector<Answer> answers;

  std::size_t lead() const {
    std::size_t at = 0;
    while (answers[at].finished) {
      ++at;
    }
    return at;
  }

  std::int64_t num_unfinished() const {
    return std::count_if(answers.begin(), answers.end(),
                         [](const Answer& answer) { return !answer.finished; });
  }
};

class World : public PrefixOracle {
 public:
  explicit World(bool caches)
      : pool_(*PagePool::create(kGeometry, kPoolPages)),
        index_(*pool_, {.key = {1, 2}}),
        scheduler_({.num_pages = kPoolPages, .max_sequences = kMaxSequences, .max_waiting = 8}),
        caches_(caches) {}

  std::int32_t cached_tokens(JobId job) const override {
    const Client& client = clients_.at(job);
    const auto& tokens = client.answers[client.lead()].tokens;
    return index_.peek({client.tenant, ""}, std::span(tokens).first(tokens.size() - 1));
  }

  void submit(Client client, std::int32_t num_answers, std::optional<double> deadline_ms) {
    if (Scheduler::longest_course(client.prompt, client.max_tokens, num_answers) > kPoolPages ||
        scheduler_.refuse()) {
      return;
    }
    for (std::int32_t i = 0; i < num_answers; ++i) {
      client.answers.push_back(
          {std::vector<std::int32_t>(static_cast<std::size_t>(client.prompt), 5),
           KvSequence(*pool_)});
    }
    const JobId id = next_id_++;
    scheduler_.submit(id, {.tenant = client.tenant,
                           .priority = client.priority,
                           .deadline_ms = deadline_ms,
                           .prompt_tokens = client.prompt,
                           .max_tokens = client.max_tokens,
                           .num_answers = num_answers});
    clients_.emplace(id, std::move(client));
  }

  void step(std::int32_t budget) {
    const std::int32_t pages = pool_->num_free() + index_.num_evictable();
    (void)scheduler_.plan(now_ms_, budget, pages, caches_ ? this : nullptr);
    // A plan thrown away leaves no trace.
    const Plan plan = scheduler_.plan(now_ms_, budget, pages, caches_ ? this : nullptr);
    RC_ASSERT(plan.num_tokens <= budget);
    check_order(plan);
    for (const Plan::Admission& admission : plan.admitted) {
      admit(admission);
    }
    std::set<std::pair<JobId, std::int32_t>> drawn;
    for (const Plan::Item& item : plan.items) {
      compute(item);
      if (item.wants_logits) {
        drawn.emplace(item.job, item.sequence);
      }
    }
    const bool progress = !plan.items.empty() || !plan.preempted.empty() || !plan.expired.empty();
    RC_ASSERT(progress || scheduler_.idle());
    scheduler_.commit(1.0);
    std::set<JobId> fresh;  // the prompt was read: every answer draws
    for (const auto& [id, sequence] : drawn) {
      Client& client = clients_.at(id);
      if (client.answers[static_cast<std::size_t>(sequence)].tokens.size() ==
              static_cast<std::size_t>(client.prompt) &&
          !client.forked) {
        fresh.insert(id);
      }
    }
    fork();
    for (const JobId id : plan.preempted) {
      preempt(clients_.at(id));
    }
    for (const auto& [id, sequence] : drawn) {
      if (fresh.count(id) == 0) {
        draw(id, sequence);
      }
    }
    for (const JobId id : fresh) {
      const auto count = clients_.at(id).answers.size();
      for (std::size_t i = 0; i < count; ++i) {
        draw(id, static_cast<std::int32_t>(i));
      }
    }
    for (const JobId id : plan.expired) {
      end(id);
    }
    now_ms_ += 1.0;
    check();
  }

  void end_one(std::size_t at) {
    if (!clients_.empty()) {
      auto it = clients_.begin();
      std::advance(it, at % clients_.size());
      end(it->first);
    }
  }

  void drain() {
    for (int i = 0; !scheduler_.idle(); ++i) {
      RC_ASSERT(i < 20000);  // everybody gets in and ends
      step(64);
    }
    RC_ASSERT(clients_.empty());
    index_.clear();
    RC_ASSERT(pool_->num_free() == kPoolPages);
  }

 private:
  // Nobody comes in before one of a better priority, nor before an earlier one of the same tenant;
  // who gives way is the last of those at work.
  void check_order(const Plan& plan) const {
    std::set<JobId> in;
    for (const Plan::Admission& admission : plan.admitted) {
      in.insert(admission.job);
    }
    for (const auto& [id, client] : clients_) {
      if (client.running || in.count(id) > 0 ||
          std::count(plan.expired.begin(), plan.expired.end(), id) > 0) {
        continue;
      }
      for (const JobId other : in) {
        const Client& admitted = clients_.at(other);
        RC_ASSERT(admitted.priority <= client.priority);
        RC_ASSERT(admitted.priority < client.priority || admitted.tenant != client.tenant ||
                  other < id);
      }
    }
    RC_ASSERT(plan.preempted.size() <= 1u);
    for (const JobId victim : plan.preempted) {
      for (const auto& [id, client] : clients_) {
        if (client.running && std::count(plan.expired.begin(), plan.expired.end(), id) == 0) {
          const Client& last = clients_.at(victim);
          RC_ASSERT(std::pair(client.priority, id) <= std::pair(last.priority, victim));
        }
      }
    }
  }

  void admit(const Plan::Admission& admission) {
    Client& client = clients_.at(admission.job);
    RC_ASSERT(!client.running);
    client.running = true;
    Answer& lead = client.answers[client.lead()];
    std::vector<PageRef> found;
    (void)index_.find(
        {client.tenant, ""},
        std::span(lead.tokens).first(static_cast<std::size_t>(admission.cached_tokens)), found);
    RC_ASSERT(static_cast<std::int32_t>(found.size()) * kPageTokens == admission.cached_tokens);
    lead.kv.adopt(found);
    std::int64_t sequences = 0;
    for (const auto& [id, other] : clients_) {
      sequences += other.running ? static_cast<std::int64_t>(other.answers.size()) : 0;
    }
    RC_ASSERT(sequences <= kMaxSequences);
  }

  void compute(const Plan::Item& item) {
    Client& client = clients_.at(item.job);
    Answer& answer = client.answers[static_cast<std::size_t>(item.sequence)];
    RC_ASSERT(client.running && !answer.finished);
    RC_ASSERT(item.first == answer.kv.length() && item.count > 0);
    const auto known = static_cast<std::int32_t>(answer.tokens.size());
    RC_ASSERT(item.first + item.count <= known);
    RC_ASSERT(item.wants_logits == (item.first + item.count == known));
    const std::int32_t upto = item.first + item.count;
    while (!answer.kv.reserve(upto).has_value()) {
      RC_ASSERT(index_.evict(1) == 1);
    }
    answer.kv.commit(item.count);
    if (caches_) {
      index_.publish({client.tenant, ""},
                     std::span(answer.tokens).first(static_cast<std::size_t>(upto)),
                     answer.kv.pages());
    }
  }

  void fork() {
    for (auto& [id, client] : clients_) {
      const std::size_t lead = client.lead();
      const std::int32_t length = client.answers[lead].kv.length();
      const bool alone = client.num_unfinished() == 1;
      const auto target =
          alone ? static_cast<std::int32_t>(client.answers[lead].tokens.size()) : client.prompt;
      if (!client.running || client.forked || length < target) {
        continue;
      }
      client.forked = true;
      for (std::size_t i = lead + 1; i < client.answers.size(); ++i) {
        if (!client.answers[i].finished) {
          client.answers[i].kv = client.answers[lead].kv.fork();
        }
      }
    }
  }

  void preempt(Client& client) {
    client.running = false;
    client.forked = false;
    for (Answer& answer : client.answers) {
      answer.kv = KvSequence(*pool_);
    }
  }

  void draw(JobId id, std::int32_t sequence) {
    Client& client = clients_.at(id);
    Answer& answer = client.answers[static_cast<std::size_t>(sequence)];
    answer.tokens.push_back(100 + sequence);
    scheduler_.add_token(id, sequence);
    if (static_cast<std::int32_t>(answer.tokens.size()) == client.prompt + client.max_tokens) {
      finish(id, sequence);
    }
  }

  void finish(JobId id, std::int32_t sequence) {
    Client& client = clients_.at(id);
    Answer& answer = client.answers[static_cast<std::size_t>(sequence)];
    answer.finished = true;
    answer.kv = KvSequence(*pool_);
    const bool last = client.num_unfinished() == 0;
    scheduler_.finish(id, sequence);
    if (last) {
      clients_.erase(id);
    }
  }

  void end(JobId id) {
    const auto count = static_cast<std::int32_t>(clients_.at(id).answers.size());
    for (std::int32_t i = 0; i < count; ++i) {
      const auto at = clients_.find(id);
      if (at != clients_.end() && !at->second.answers[static_cast<std::size_t>(i)].finished) {
        finish(id, i);
      }
    }
  }

  void check() const {
    const Status status = scheduler_.check_integrity();
    RC_ASSERT(status.has_value());
    RC_ASSERT(index_.check_integrity().has_value());
    RC_ASSERT(pool_->check_integrity().has_value());
    const Stats stats = scheduler_.stats();
    RC_ASSERT(stats.running + stats.waiting == static_cast<std::int32_t>(clients_.size()));
    RC_ASSERT(stats.running == std::count_if(clients_.begin(), clients_.end(),
                                             [](const auto& at) { return at.second.running; }));
  }

  std::unique_ptr<PagePool> pool_;
  PrefixIndex index_;
  Scheduler scheduler_;
  std::map<JobId, Client> clients_;
  bool caches_;
  JobId next_id_ = 1;
  double now_ms_ = 0.0;
};

RC_GTEST_PROP(SchedulerProperty, PlansAreCarriedOutOnRealPages, (bool caches)) {
  World world(caches);
  const auto num_ops = *rc::gen::inRange(1, 80);
  for (int i = 0; i < num_ops; ++i) {
    const auto op = *rc::gen::inRange(0, 10);
    if (op < 4) {
      Client client;
      client.tenant = *rc::gen::element<std::string>("a", "b", "c");
      client.priority = *rc::gen::inRange(0, 2);
      client.prompt = *rc::gen::inRange(1, 160);
      client.max_tokens = *rc::gen::inRange(1, 100);
      const auto num_answers = *rc::gen::inRange(1, 5);
      const bool hurries = *rc::gen::inRange(0, 8) == 0;
      world.submit(std::move(client), num_answers,
                   hurries ? std::optional(*rc::gen::inRange(1, 60) * 1.0) : std::nullopt);
    } else if (op == 4) {
      world.end_one(*rc::gen::inRange<std::size_t>(0, 100));
    } else {
      world.step(*rc::gen::element(1, 7, 40, 300));
    }
  }
  world.drain();
}

}  // namespace
}  // namespace trine::sched
