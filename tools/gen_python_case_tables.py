#!/usr/bin/env python3
"""Writes src/text/jinja/unicode_tables.h: what Python's str methods know about characters beyond the general category.

Run with a Python whose unicodedata is 14.0 (3.11), the version of the system's utf8proc, so that both agree:
    python3 tools/gen_python_case_tables.py > src/text/jinja/unicode_tables.h
The facts are Unicode character data (Unicode licence, permissive).
"""
import unicodedata

category = unicodedata.category


def ranges(predicate):
    out, start = [], None
    for c in range(0x110001):
        hit = c < 0x110000 and not 0xD800 <= c < 0xE000 and predicate(chr(c))
        if hit and start is None:
            start = c
        if not hit and start is not None:
            out.append((start, c - 1))
            start = None
    return out


def print_table(kind, name, comment, rows):
    print(f"// {comment}")
    print(f"inline constexpr {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        if len(line) + len(row) > 98:
            print(line)
            line = "   "
        line += " " + row
    print(line)
    print("};\n")


def print_ranges(name, comment, predicate):
    print_table("CodeRange", name, comment, [f"{{{a:#x}, {b:#x}}}," for a, b in ranges(predicate)])


def print_maps(name, comment, method):
    rows = []
    for c in range(0x110000):
        mapped = method(chr(c))
        if len(mapped) > 1:
            padded = [ord(x) for x in mapped] + [0] * (3 - len(mapped))
            rows.append(f"{{{c:#x}, {{{', '.join(f'{x:#x}' for x in padded)}}}}},")
    print_table("SpecialCase", name, comment, rows)


assert unicodedata.unidata_version == "14.0.0"
print("""// Made by tools/gen_python_case_tables.py from Unicode 14 character data; do not edit.
// clang-format off
#pragma once

namespace trine::text::jinja {

struct CodeRange {
  char32_t first;
  char32_t last;
};

struct SpecialCase {
  char32_t c;
  char32_t mapped[3];
};
""")
print_ranges("kOtherDigits", "isdigit() outside category Nd.", lambda c: c.isdigit() and category(c) != "Nd")
print_ranges("kOtherNumeric", "isnumeric() outside Nd, Nl, No.",
             lambda c: c.isnumeric() and category(c) not in ("Nd", "Nl", "No"))
print_ranges("kOtherLower", "islower() outside Ll.", lambda c: c.islower() and category(c) != "Ll")
print_ranges("kOtherUpper", "isupper() outside Lu.", lambda c: c.isupper() and category(c) != "Lu")
print_maps("kSpecialUpper", "upper() to more than one character.", str.upper)
print_maps("kSpecialTitle", "title() of one character to more than one.", str.title)
print("}  // namespace trine::text::jinja")
