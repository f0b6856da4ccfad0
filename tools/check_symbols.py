#!/usr/bin/env python3
"""check_symbols.py ARCHIVE...: no function of an instruction-set archive may be shared with the program.

A weak or unique symbol in an object file is one of several copies, and the linker keeps any one of them for the
whole program. If that copy was compiled with AVX flags, the program faults on a CPU without AVX, in a place
that has nothing to do with kernels. So the archives of src/kernels/<isa>/ may define only
- local symbols, and
- one table per object: a global read-only object (nm type R, D in position-independent code).

Exit status 1 when an archive holds anything else, or when it holds no table at all.
"""
import subprocess
import sys

WEAK = set("WwVvui")
TABLE = set("RDB")


def check(archive):
    """Returns the breaches of one archive as lines of text."""
    out = subprocess.run(["nm", "--defined-only", "--demangle", archive], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    found, tables, member = [], {}, "?"
    for line in out.splitlines():
        if line.endswith(":"):
            member = line[:-1]
            tables.setdefault(member, 0)
            continue
        parts = line.split(maxsplit=2)
        if len(parts) != 3:
            continue
        kind, name = parts[1], parts[2]
        if kind in WEAK:
            found.append(f"{archive}({member}): weak symbol {name}: make it a template or function of the unnamed "
                         "namespace, always inlined, or move it out of the instruction-set folder")
        elif kind in TABLE:
            tables[member] += 1
        elif kind.isupper():
            found.append(f"{archive}({member}): global symbol {name} (type {kind}): only the table may be visible")
    for name, count in tables.items():
        if count != 1:
            found.append(f"{archive}({name}): {count} tables, exactly one expected")
    if not tables:
        found.append(f"{archive}: no object file in it")
    return found


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    found = [line for archive in sys.argv[1:] for line in check(archive)]
    for line in found:
        print(line)
    print(f"check_symbols: {len(sys.argv) - 1} archives, {len(found)} breaches")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
