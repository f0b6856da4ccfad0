# cmake -DFOLDER=... -DFILES=a,b -DOUT=... -P embed.cmake: a C++ file with the bytes of each file and a hash
# of them, in the form page.cpp expects.
string(REPLACE "," ";" names "${FILES}")
set(arrays "")
set(rows "")
set(number 0)
foreach(name IN LISTS names)
  file(READ "${FOLDER}/${name}" hex HEX)
  file(SHA256 "${FOLDER}/${name}" hash)
  string(SUBSTRING "${hash}" 0 32 hash)
  string(LENGTH "${hex}" length)
  math(EXPR length "${length} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "constexpr std::array<unsigned char, ${length}> kBytes${number} = {${bytes}};\n")
  string(APPEND rows "    {\"${name}\", \"\\\"${hash}\\\"\", kBytes${number}.data(), kBytes${number}.size()},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUT}" "// Made by embed.cmake.
// NOLINTBEGIN
#include \"server/page/page_data.h\"

#include <array>

namespace trine::server::page {
namespace {
${arrays}
constexpr std::array<EmbeddedFile, ${number}> kFiles = {{
${rows}}};
}  // namespace

std::span<const EmbeddedFile> embedded_files() {
  return kFiles;
}

}  // namespace trine::server::page
// NOLINTEND
")
