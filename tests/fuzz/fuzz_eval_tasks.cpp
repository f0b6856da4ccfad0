// Any bytes as a file of tasks, of texts, or of a model's provenance give values in range or an
// error; any answer to any task gets a score.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "eval/documents.h"
#include "eval/leakage.h"
#include "eval/provenance.h"
#include "eval/scoring.h"
#include "eval/tasks.h"
#include "fuzz_support.h"
#include "text/unicode.h"

namespace {

using namespace trine;
using namespace trine::eval;

void score_all(const std::vector<Task>& tasks, std::string_view answer) {
  if (text::find_invalid_utf8(answer).has_value()) {
    return;  // the engine's texts are UTF-8
  }
  const LeakageIndex leaks({std::string(answer)});
  for (const Task& task : tasks) {
    require(!task.id.empty() && task.weight > 0.0 && task.line > 0);
    require(task.prompt.empty() != task.messages.empty());
    const std::string asked = asked_text(task);
    const double share = leaks.share(asked);
    require(share >= 0.0 && share <= 1.0);
    (void)switches_language(answer, asked);
    if (task.kind == TaskKind::kChoice) {
      require(task.right_choice < task.choices.size());
      continue;
    }
    const auto score = score_answer(task, answer);
    if (!score.has_value()) {
      require_printable(score.error());
      continue;
    }
    require(score->value >= 0.0 && score->value <= 1.0);
  }
}

void read_tasks(std::string_view text) {
  const std::size_t end = text.find('\0');
  const auto tasks = parse_tasks(text.substr(0, end), "t.jsonl");
  if (!tasks.has_value()) {
    require_printable(tasks.error());
    return;
  }
  score_all(*tasks, end == std::string_view::npos ? std::string_view() : text.substr(end + 1));
}

template <typename T>
void check(const Result<T>& result) {
  if (!result.has_value()) {
    require_printable(result.error());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      read_tasks(text);
      break;
    case 1:
      check(parse_documents(text, "t.jsonl"));
      break;
    default:
      check(parse_calibration_origin(text));
  }
  return 0;
}
