#include "apps/trine/eval_output.h"

#include <nlohmann/json.hpp>

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kPercent = 100.0;

std::string with_interval(const eval::Figure& figure, double scale, int digits,
                          std::string_view unit) {
  return fmt::format("{:.{}f}{}  [{:.{}f}, {:.{}f}]", figure.value * scale, digits, unit,
                     figure.interval.low * scale, digits, figure.interval.high * scale, digits);
}

Json interval_json(const eval::Interval& interval) {
  return Json::array({interval.low, interval.high});
}

void append_comparison(const eval::TextComparison& c, std::string& out) {
  out += fmt::format("reference PPL     {}\n", with_interval(c.ppl, 1.0, 4, ""));
  out += fmt::format("PPL change        {}\n", with_interval(c.ppl_change, kPercent, 3, " %"));
  out += fmt::format("KL mean           {:.6f}  [{:.6f}, {:.6f}]\n", c.kl.mean, c.kl_interval.low,
                     c.kl_interval.high);
  out += fmt::format("KL median         {:.6f}\n", c.kl.median);
  out += fmt::format("KL p99            {:.6f}\n", c.kl.p99);
  out += fmt::format("KL p99.9          {:.6f}\n", c.kl.p999);
  out += fmt::format("KL max            {:.6f}\n", c.kl.max);
  out += fmt::format("same top-1        {}\n", with_interval(c.top1, kPercent, 2, " %"));
  out += fmt::format("top-5 overlap     {}\n", with_interval(c.top5, kPercent, 2, " %"));
  out += fmt::format("p(token) change   mean {:+.5f}, rms {:.5f}\n", c.dp_mean, c.dp_rms);
  if (!c.greedy.same_tokens.empty()) {
    out += fmt::format("greedy agreement  {:.1f} of {} tokens, {:.0f} % of {} prompts to the end\n",
                       c.greedy.mean(), c.greedy.num_tokens,
                       kPercent * c.greedy.share_same(c.greedy.num_tokens),
                       c.greedy.same_tokens.size());
  }
}

void add_text(const TextReport& text, Json& out) {
  const eval::TextResult& r = text.result;
  out["ppl"] = r.ppl.value;
  out["ppl_interval"] = interval_json(r.ppl.interval);
  if (r.comparison.has_value()) {
    const eval::TextComparison& c = *r.comparison;
    out["ppl_ref"] = c.ppl.value;
    out["ppl_change"] = c.ppl_change.value;
    out["ppl_change_interval"] = interval_json(c.ppl_change.interval);
    out["kl_mean"] = c.kl.mean;
    out["kl_mean_interval"] = interval_json(c.kl_interval);
    out["kl_median"] = c.kl.median;
    out["kl_p99"] = c.kl.p99;
    out["kl_p999"] = c.kl.p999;
    out["kl_max"] = c.kl.max;
    out["kl_by_position"] = c.kl_by_position;
    out["top1"] = c.top1.value;
    out["top1_interval"] = interval_json(c.top1.interval);
    out["top5"] = c.top5.value;
    out["dp_mean"] = c.dp_mean;
    out["dp_rms"] = c.dp_rms;
    if (!c.greedy.same_tokens.empty()) {
      constexpr std::int32_t kShort = 32;
      out["greedy_len"] = c.greedy.mean();
      out["greedy"] = {
          {"protocol", text.greedy_protocol},
          {"tokens", c.greedy.num_tokens},
          {"same_tokens", c.greedy.same_tokens},
          {"same_at_32",
           c.greedy.num_tokens >= kShort ? Json(c.greedy.share_same(kShort)) : Json(nullptr)},
          {"same_to_the_end", c.greedy.share_same(c.greedy.num_tokens)}};
    }
  }
  out["tokens"] = r.tokens;
  out["protocol"] = text.protocol;
}

}  // namespace

std::string eval_text(const EvalReport& report) {
  const EvalSides& sides = *report.sides;
  std::string out = fmt::format("model             {}\n", sides.model.name);
  if (sides.reference.has_value()) {
    out += fmt::format("reference         {}\n", sides.reference->name);
    out += fmt::format("differs in        {}\n", sides.mode());
  }
  if (sides.prefill.has_value()) {
    out += fmt::format("prefill           {}\n", sides.prefill->name);
  }
  if (report.text.has_value()) {
    const eval::TextResult& r = report.text->result;
    out += fmt::format("protocol          {}\n", report.text->protocol);
    out += fmt::format("PPL               {}\n", with_interval(r.ppl, 1.0, 4, ""));
    if (r.comparison.has_value()) {
      append_comparison(*r.comparison, out);
    }
    out += "(measured; KL in nats; 95 % intervals, windows drawn anew)\n";
  }
  return out;
}

Json eval_json(const EvalReport& report) {
  const EvalSides& sides = *report.sides;
  Json out = {{"model", sides.model.name}};
  if (sides.reference.has_value()) {
    out["reference"] = sides.reference->name;
    out["mode"] = sides.mode();
  }
  if (sides.prefill.has_value()) {
    out["prefill"] = sides.prefill->name;
  }
  if (report.text.has_value()) {
    add_text(*report.text, out);
  }
  out["kind"] = "measured";
  return out;
}

}  // namespace trine::app
