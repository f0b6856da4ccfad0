// API keys: read from a file or a variable, kept as hashes, compared in constant time.
//
// Thread rule: built once, then read by any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "server/http/message.h"

namespace trine::server::http {

class KeyRing {
 public:
  // Keys in `text`, one a line; empty lines and lines that begin with # do not count. `where` is
  // for messages, which never show a key. Errors: invalid_argument for a key under 8 or over 512
  // characters or with anything but visible ASCII, and for no key at all.
  Status add(std::string_view text, bool admin, std::string_view where);
  // The same from a file. Errors: also not_found, and invalid_argument when others than the owner
  // and the group can read it or others than the owner write it.
  Status add_file(const std::string& path, bool admin);

  bool has_user_keys() const { return num_user_ > 0; }

  bool has_admin_keys() const { return num_admin_ > 0; }

  std::size_t size() const { return keys_.size(); }

  // Whose key this is. The time does not depend on which key it is nor on how much of it is right:
  // its hash is compared with all.
  std::optional<Principal> find(std::string_view key) const;

 private:
  using Hash = std::array<std::uint8_t, 32>;

  struct Key {
    Hash hash{};
    bool admin = false;
    std::string tenant;
  };

  std::vector<Key> keys_;
  int num_user_ = 0;
  int num_admin_ = 0;
};

}  // namespace trine::server::http
