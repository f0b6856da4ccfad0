// Text from arguments, files and standard input. Errors of everything here: invalid_argument for
// what the user gave, not_found for a file that is not there, cancelled when Ctrl-C came while
// waiting. Thread rule: main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/trine/command.h"
#include "base/error.h"

namespace trine::app {

// All of a file, or of standard input for "-". At most 1 GiB.
Result<std::string> read_file(const std::string& path);

// The one text of a command: the argument at `index`, else --prompt (when the command takes it),
// else --file, else standard input. Two of them at once are refused, and so is waiting for a
// terminal without saying so.
Result<std::string> read_text(const CommandContext& context, std::size_t index);

// The same for a list of ids, where @FILE as the argument names a file.
Result<std::vector<std::int32_t>> read_ids(const CommandContext& context, std::size_t index);

// "1,2 3\n4": ids separated by commas and white space, in brackets or not. `where` names the source
// in errors.
Result<std::vector<std::int32_t>> parse_ids(std::string_view text, std::string_view where);

// IDS or @FILE.
Result<std::vector<std::int32_t>> ids_of_argument(const std::string& argument,
                                                  std::string_view where);

// Calls `line` for every line of a file ("-": standard input) with its number from 1; the line end
// is removed. A last line without a line end counts, an empty line does not. Stops at the first
// error, which gets "FILE:NUMBER: " in front.
Status for_each_line(const std::string& path,
                     const std::function<Status(std::string_view line)>& line);

// Drops one final line end, as shells add it to what they pipe.
// Text from the command line must be UTF-8. Errors: invalid_argument, which names `what`.
Status check_text(std::string_view text, std::string_view what);
std::string without_final_newline(std::string text);

}  // namespace trine::app
