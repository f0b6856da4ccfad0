#include "server/http/keys.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include "base/log.h"

namespace trine::server::http {

namespace {

constexpr std::size_t kLeastKeyBytes = 8;
constexpr std::size_t kMostKeyBytes = 512;
constexpr std::size_t kMostFileBytes = std::size_t{1} << 20;

std::array<std::uint8_t, 32> sha256(std::string_view text) {
  std::array<std::uint8_t, 32> out{};
  ::SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return out;
}

// A name for the key's owner that does not help to find the key.
std::string tenant_of(std::string_view key) {
  std::string salted = "trine tenant:";
  salted += key;
  const auto hash = sha256(salted);
  std::string out;
  for (std::size_t i = 0; i < 12; ++i) {
    out += fmt::format("{:02x}", hash[i]);
  }
  return out;
}

std::string_view trimmed(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = line.find_first_not_of(kBlank);
  return first == std::string_view::npos
             ? std::string_view()
             : line.substr(first, line.find_last_not_of(kBlank) - first + 1);
}

}  // namespace

Status KeyRing::add(std::string_view text, bool admin, std::string_view where) {
  int added = 0;
  int line_number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view key = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (key.empty() || key.starts_with('#')) {
      continue;
    }
    if (key.size() < kLeastKeyBytes || key.size() > kMostKeyBytes) {
      return fail(ErrorCode::kInvalidArgument,
                  "{}, line {}: a key of {} characters, {} to {} needed", where, line_number,
                  key.size(), kLeastKeyBytes, kMostKeyBytes);
    }
    if (std::any_of(key.begin(), key.end(), [](char c) { return c <= ' ' || c > '~'; })) {
      return fail(ErrorCode::kInvalidArgument,
                  "{}, line {}: a key has visible ASCII characters only, without blanks", where,
                  line_number);
    }
    keys_.push_back({.hash = sha256(key), .admin = admin, .tenant = tenant_of(key)});
    ++(admin ? num_admin_ : num_user_);
    ++added;
  }
  if (added == 0) {
    return fail(ErrorCode::kInvalidArgument, "{} has no key in it", where);
  }
  return {};
}

Status KeyRing::add_file(const std::string& path, bool admin) {
  struct stat info {};

  if (::stat(path.c_str(), &info) != 0) {
    return fail(ErrorCode::kNotFound, "key file {}: {}", path, std::strerror(errno));
  }
  if ((info.st_mode & 027U) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                "key file {} has mode {:04o}: others can read or change it; run chmod 600 {}", path,
                info.st_mode & 07777U, path);
  }
  if ((info.st_mode & 040U) != 0) {
    log::warn("key file {} has mode {:04o}: the group can read it; chmod 600 is meant", path,
              info.st_mode & 07777U);
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(kMostFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (!in.is_open() || in.bad()) {
    return fail(ErrorCode::kNotFound, "key file {}: cannot be read", path);
  }
  if (text.size() > kMostFileBytes) {
    return fail(ErrorCode::kInvalidArgument, "key file {}: larger than {} bytes", path,
                kMostFileBytes);
  }
  return add(text, admin, fmt::format("key file {}", path));
}

std::optional<Principal> KeyRing::find(std::string_view key) const {
  const Hash hash = sha256(key);
  const Key* found = nullptr;
  for (const Key& known : keys_) {
    if (::CRYPTO_memcmp(hash.data(), known.hash.data(), hash.size()) == 0) {
      // An admin key wins over the same text as a user key.
      found = found == nullptr || known.admin ? &known : found;
    }
  }
  if (found == nullptr) {
    return std::nullopt;
  }
  return Principal{.admin = found->admin, .tenant = found->tenant};
}

}  // namespace trine::server::http
