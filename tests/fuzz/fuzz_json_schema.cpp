// A schema of any bytes compiles or gives an error, and what compiles can be walked within its
// budgets.
#include <cstddef>
#include <cstdint>

#include "grammar/compile.h"
#include "grammar_fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trine::grammar::walk(
      trine::grammar::compile_json_schema({reinterpret_cast<const char*>(data), size}));
  return 0;
}
