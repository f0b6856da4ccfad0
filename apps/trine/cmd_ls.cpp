// trine ls: the models of the store.
#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/trine/command.h"
#include "apps/trine/models.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

std::string date_text(std::int64_t unix_s) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm local{};
  if (::localtime_r(&time, &local) == nullptr) {
    return "?";
  }
  return fmt::format("{:%Y-%m-%d %H:%M}", local);
}

void print_table(const std::vector<hub::Manifest>& models) {
  std::vector<std::vector<std::string>> rows = {{"NAME", "FORMAT", "SIZE", "MODIFIED", "SOURCE"}};
  for (const hub::Manifest& model : models) {
    rows.push_back({model.name, model.format, hub::format_bytes(model.total_bytes()),
                    date_text(model.created_unix_s), model.source});
  }
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i + 1 < row.size(); ++i) {
      line += fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    write_out(line + row.back() + "\n");
  }
}

Result<int> run_ls(CommandContext& context) {
  TRINE_TRY_ASSIGN(const hub::Store store, open_store(context.settings()));
  TRINE_TRY_ASSIGN(const hub::Store::Listing listing, store.list());
  if (context.json()) {
    Json models = Json::array();
    for (const hub::Manifest& model : listing.models) {
      models.push_back({{"name", model.name},
                        {"source", model.source},
                        {"revision", model.revision},
                        {"format", model.format},
                        {"bytes", model.total_bytes()},
                        {"modified_unix_s", model.created_unix_s},
                        {"license", model.license.id},
                        {"path", store.entry_path(model).string()}});
    }
    context.print_json({{"home", store.root().string()},
                        {"models", std::move(models)},
                        {"interrupted", listing.interrupted},
                        {"problems", listing.problems}});
    return 0;
  }
  if (listing.models.empty()) {
    context.note(fmt::format("no models in {}; `trine pull smollm2-135m` fetches a small one",
                             store.root().string()));
  } else {
    print_table(listing.models);
  }
  for (const std::string& name : listing.interrupted) {
    context.note(fmt::format("{}: unfinished download; pull it again to resume, or `trine rm {}`",
                             name, name));
  }
  for (const std::string& problem : listing.problems) {
    context.note(fmt::format("skipped: {}", problem));
  }
  return 0;
}

}  // namespace

extern const Command kLsCommand;
const Command kLsCommand = {
    .name = "ls",
    .group = "models",
    .summary = "List the models of the store",
    .options = with_store_options({}),
    .run = run_ls,
};

}  // namespace trine::app
