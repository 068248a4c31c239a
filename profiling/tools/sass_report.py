#!/usr/bin/env python3
"""What nvcc made of the kernels for sm_90: a row a kernel, read from the program's machine code. Needs no GPU.

usage: sass_report.py [FILE...] [--markdown] [--check] [--all]
FILE: programs, object files or static libraries (default: build/cuda-release/kernels/librigel_kernels.a, every kernel there is).
--check     fails where a memory-bound kernel lacks 16-byte accesses, or any kernel uses local memory
--all       the instantiations for ragged and unaligned rows too
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

import sass
from cuda_binutils import find_binutils

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULT_FILE = ROOT / "build" / "cuda-release" / "kernels" / "librigel_kernels.a"
CACHE = ROOT / "build" / "cuda-binutils"

# A multiprocessor of sm_90 (CUDA C++ Programming Guide, "Compute Capabilities"; allocation units from NVIDIA's occupancy
# calculator).
MAX_WARPS = 64
MAX_BLOCKS = 32
REGISTERS = 65536
REGISTER_UNIT = 256  # a warp's registers are allocated in this unit
WARP_UNIT = 4        # one warp on each of the four partitions
SHARED_BYTES = 228 * 1024
SHARED_UNIT = 128


class MemoryBound(collections.namedtuple("MemoryBound", "loads stores vector_argument", defaults=(None,))):
    """Accesses that must be 16 bytes wide. vector_argument: place of the template argument that tells the instantiation
    for aligned rows from the one for ragged rows, which is exempt."""


MEMORY_BOUND = {
    "rms_norm_kernel": MemoryBound(True, True, 2),
    "head_rms_norm_kernel": MemoryBound(True, True, 2),
    "gate_kernel": MemoryBound(True, True, 2),
    "add_kernel": MemoryBound(True, True, 3),
    "embed_kernel": MemoryBound(True, True, 2),
    "gather_rows_kernel": MemoryBound(True, True),
    "splice_rows_kernel": MemoryBound(True, True),
    "materialize_rows_kernel": MemoryBound(True, True),
    "attend_chunks_kernel": MemoryBound(True, False),  # reads the cache; what it writes is one piece of an answer
    "gemm_kernel": MemoryBound(True, False),           # reads the weights
}


# sinf and cosf reduce arguments above 10^5 with a table of 28 bytes in local memory; a launch computes each angle once.
LOCAL_MEMORY_EXPECTED = {"rotary_angles_kernel"}


def round_up(value, unit):
    return (value + unit - 1) // unit * unit


def occupancy(kernel):
    """Share of a multiprocessor's warps that can be resident; None without launch bounds. Shared memory that is sized at
    the launch is unknown here and left out."""
    if kernel.max_threads == 0:
        return None
    warps = round_up(kernel.max_threads, 32) // 32
    by_registers = MAX_WARPS
    if kernel.registers:
        by_registers = REGISTERS // round_up(kernel.registers * 32, REGISTER_UNIT) // WARP_UNIT * WARP_UNIT
    shared = round_up(kernel.shared_bytes + sass.SYSTEM_SHARED_BYTES, SHARED_UNIT)
    blocks = min(MAX_BLOCKS, MAX_WARPS // warps, by_registers // warps, SHARED_BYTES // shared)
    return blocks * warps / MAX_WARPS


def widths(instructions, names):
    """"16×4 2×1": bytes a thread and access, and how many such instructions; wide first."""
    counts = collections.Counter(i.width for i in instructions if i.name in names)
    return " ".join(f"{width}×{counts[width]}" for width in sorted(counts, reverse=True)) or "-"


def moved_bytes(instructions, names):
    return sum(i.width for i in instructions if i.name in names)


def hot_loop(kernel):
    """The innermost loop that moves most bytes of global memory a pass, then of shared memory; None if there is no loop."""
    bodies = [[kernel.instructions[index] for index in body] for body in sass.loops(kernel.instructions)]
    return max(bodies, default=None, key=lambda body: (
        moved_bytes(body, sass.GLOBAL_LOADS + sass.GLOBAL_STORES), moved_bytes(body, sass.SHARED), len(body)))


def demangle(symbols):
    done = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True)
    return dict(zip(symbols, done.stdout.splitlines()))


def short_name(demangled):
    """"rms_norm_kernel<bf16, 64, true, false>": no return type, parameters or namespaces."""
    depth, end = 0, len(demangled)
    for index, character in enumerate(demangled):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0:
            end = index
            break
    name = demangled[:end]
    name = re.sub(r"^void ", "", name).replace("__nv_bfloat16", "bf16")
    name = re.sub(r"\((?:unsigned )?(?:int|bool)\)(\d+)", r"\1", name)
    name = re.sub(r"\(((?:\w+::)*)(\w+)\)(\d+)", r"\2 \3", name)
    return re.sub(r"\b\w+::", "", name)


def template_arguments(name):
    inside = re.search(r"<(.*)>$", name)
    return [argument.strip() for argument in inside[1].split(",")] if inside else []


def rule_of(name):
    """The MemoryBound rule that a kernel must keep, or None."""
    rule = MEMORY_BOUND.get(name.split("<")[0])
    if rule and rule.vector_argument is not None and template_arguments(name)[rule.vector_argument] in ("false", "0"):
        return None
    return rule


def is_ragged(name):
    return name.split("<")[0] in MEMORY_BOUND and rule_of(name) is None


def complaints(named_kernels):
    """What --check finds; also that the rules still name kernels that exist."""
    found = []
    for name, kernel in named_kernels:
        spills = sum(i.name in sass.LOCAL for i in kernel.instructions)
        if (kernel.local_bytes or spills) and name.split("<")[0] not in LOCAL_MEMORY_EXPECTED:
            found.append(f"{name} uses local memory: {kernel.local_bytes} bytes, {spills} accesses")
        if rule := rule_of(name):
            for wanted, names, what in ((rule.loads, sass.GLOBAL_LOADS, "load"), (rule.stores, sass.GLOBAL_STORES, "store")):
                if wanted and not any(i.name in names and i.width == 16 for i in kernel.instructions):
                    found.append(f"{name} is memory-bound and has no 16-byte {what}")
    present = {name.split("<")[0] for name, _ in named_kernels}
    return found + [f"no kernel is called {name} any more: correct the list of memory-bound kernels"
                    for name in MEMORY_BOUND if name not in present]


def read_kernels(files, binutils):
    environment = dict(os.environ, PATH=f"{binutils}{os.pathsep}{os.environ['PATH']}")
    kernels = {}
    for option, parse in (("-sass", sass.parse_sass), ("-res-usage", sass.parse_resources),
                          ("-elf", sass.parse_launch_bounds)):
        for file in files:
            done = subprocess.run([binutils / "cuobjdump", option, file], env=environment, capture_output=True,
                                  text=True, check=False)
            if done.returncode:
                sys.exit(f"cuobjdump {option} {file}: {done.stderr.strip()}")
            parse(done.stdout, kernels)
    return kernels


HEADER = ("kernel", "registers", "shared bytes", "block", "occupancy", "global loads", "global stores",
          "hot loop: instructions", "global bytes", "shared bytes", "local bytes")


def row(name, kernel):
    share, loop = occupancy(kernel), hot_loop(kernel)
    body = loop if loop is not None else [i for i in kernel.instructions if i.name != "NOP"]
    return (name, str(kernel.registers), str(kernel.shared_bytes), str(kernel.max_threads or "-"),
            "-" if share is None else f"{share:.0%}",
            widths(kernel.instructions, sass.GLOBAL_LOADS), widths(kernel.instructions, sass.GLOBAL_STORES),
            f"{len(body)}" if loop is not None else f"no loop: {len(body)}",
            str(moved_bytes(body, sass.GLOBAL_LOADS + sass.GLOBAL_STORES)), str(moved_bytes(body, sass.SHARED)),
            str(kernel.local_bytes))


def print_table(rows, markdown):
    if markdown:
        print("| " + " | ".join(HEADER) + " |")
        print("|---" + "|---:" * (len(HEADER) - 1) + "|")
        for cells in rows:
            print(f"| `{cells[0]}` | " + " | ".join(cells[1:]) + " |")
        return
    sizes = [max(len(cells[column]) for cells in [HEADER, *rows]) for column in range(len(HEADER))]
    for cells in [HEADER, *rows]:
        print("  ".join(cell.ljust(size) if column == 0 else cell.rjust(size)
                        for column, (cell, size) in enumerate(zip(cells, sizes))).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, default=[DEFAULT_FILE])
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    for file in options.files:
        if not file.exists():
            sys.exit(f"{file} does not exist: build it with scripts/build_cuda.sh")

    kernels = read_kernels(options.files, find_binutils(CACHE))
    if not kernels:
        sys.exit("no kernels for a GPU in " + ", ".join(map(str, options.files)))
    names = demangle(list(kernels))
    named = sorted(((short_name(names[symbol]), kernel) for symbol, kernel in kernels.items()), key=lambda pair: pair[0])
    shown = [(name, kernel) for name, kernel in named if options.all or not is_ragged(name)]
    print_table([row(name, kernel) for name, kernel in shown], options.markdown)
    if not options.check:
        return 0
    found = complaints(named)
    for complaint in found:
        print(f"FAIL {complaint}")
    print(f"{len(named)} kernels, {len(found)} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
