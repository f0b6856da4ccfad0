// Bytes of a connection: never a crash, and the same requests however the bytes are cut. The first
// byte chooses the cut.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fuzz_support.h"
#include "server/http/guard.h"
#include "server/http/parser.h"

namespace {

using trine::server::http::ParserLimits;
using trine::server::http::Request;
using trine::server::http::RequestParser;

// What was read, as one text.
std::string read_all(const std::string& bytes, std::size_t step) {
  RequestParser parser(ParserLimits{.max_header_bytes = 512, .max_body_bytes = 256});
  std::string out;
  std::string input;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    input += bytes.substr(at, step);
    while (parser.feed(input) == RequestParser::State::kDone) {
      const Request request = parser.take();
      trine::require(request.body.size() <= 256);
      trine::require(request.path == "*" || request.path.starts_with('/'));
      out += request.target + '\n' + request.path + '\n' + request.authority + '\n' + request.body;
      for (const auto& header : request.headers) {
        out += header.name + ':' + header.value + '\n';
      }
      (void)trine::server::http::Guard({}).check_site(request);
    }
    if (parser.state() == RequestParser::State::kError) {
      return out + "error";  // which error may depend on how much of a long line was seen
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) {
    return 0;
  }
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = read_all(bytes, bytes.size());
  const std::string cut = read_all(bytes, 1 + data[0] % 32);
  trine::require(whole == cut);
  return 0;
}
