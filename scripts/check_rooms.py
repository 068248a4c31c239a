#!/usr/bin/env python3
"""Checks the house: the direction between rooms, the names of files, their sizes, and that kernels have tests.

The rooms form a chain; a file may include its own room and the rooms below it. See docs/architecture.md.
usage: check_rooms.py [ROOT]      prints one line a violation; exit status 1 if there is any
"""
import pathlib
import re
import sys

CHAIN = ["simt", "tensor", "kernels", "parallel", "graphs", "engine", "text", "model", "worker", "server"]
# Rooms that stand on nothing although others stand below them.
NEEDS_NOTHING = {"text"}
SEES_EVERYTHING = {"tests", "profiling"}
SOURCE = {".h", ".cc", ".cu"}
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common_utils", "misc", "base", "manager"}
MAX_LINES = 600
# Texts that only generated or tabular files may exceed the limit for.
GENERATED = re.compile(r"(^|/)generated/")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def allowed(room):
    """Rooms that a file of `room` may include."""
    if room in SEES_EVERYTHING:
        return set(CHAIN) | {room}
    if room in NEEDS_NOTHING:
        return {room}
    return set(CHAIN[: CHAIN.index(room) + 1])


def sources(root):
    for room in CHAIN + sorted(SEES_EVERYTHING):
        for path in sorted((root / room).rglob("*")):
            if path.suffix in SOURCE:
                yield room, path


def check_includes(root, room, path, lines):
    for number, line in enumerate(lines, 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        target = found.group(1)
        target_room = target.split("/")[0]
        where = f"{path.relative_to(root)}:{number}"
        if "/" not in target:
            yield f'{where}: include "{target}" must be written from the root: "{room}/..."'
        elif target_room not in CHAIN and target_room not in SEES_EVERYTHING:
            yield f'{where}: include "{target}" names no room; other libraries take <...>'
        elif target_room not in allowed(room):
            yield (f"{where}: {room}/ may not include {target_room}/; the chain is " + " <- ".join(CHAIN))
        elif not (root / target).exists():
            yield f'{where}: there is no file "{target}"'


def check_size(root, path, lines):
    name = str(path.relative_to(root))
    if len(lines) > MAX_LINES and not GENERATED.search(name):
        yield f"{name}: {len(lines)} lines; split it by phase (limit {MAX_LINES})"


def check_names(root, path):
    for part in path.relative_to(root).with_suffix("").parts:
        if part.lower() in BANNED_NAMES:
            yield f"{path.relative_to(root)}: '{part}' names no concept"


def check_kernel_tests(root):
    """Each contract header of a kernel (x.h beside x.cu) has tests/kernels/x_test.cc."""
    for source in sorted((root / "kernels").glob("*.cu")):
        name = source.stem
        if (root / "kernels" / f"{name}.h").exists():
            tests = list((root / "tests" / "kernels").glob(f"{name}*_test.cc"))
            family = list((root / "tests" / "kernels").glob(f"{name.split('_')[0]}*_test.cc"))
            if not tests and not family:
                yield f"kernels/{name}.h: no tests/kernels/{name}_test.cc"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    violations = []
    for room, path in sources(root):
        lines = path.read_text(encoding="utf-8").splitlines()
        violations += check_includes(root, room, path, lines)
        violations += check_size(root, path, lines)
        violations += check_names(root, path)
    violations += check_kernel_tests(root)
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
