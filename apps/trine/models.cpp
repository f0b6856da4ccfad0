#include "apps/trine/models.h"

namespace trine::app {

std::vector<std::string_view> with_store_options(std::vector<std::string_view> own) {
  own.insert(own.end(), std::begin(kStoreOptions), std::end(kStoreOptions));
  return own;
}

Result<hub::Store> open_store(const options::Settings& settings) {
  return hub::Store::open(settings.maybe_text("home").value_or(""),
                          settings.maybe_text("catalogue").value_or(""));
}

Result<std::string> model_path(const options::Settings& settings, std::string_view model) {
  TRINE_TRY_ASSIGN(const hub::Store store, open_store(settings));
  return store.resolve(model);
}

}  // namespace trine::app
