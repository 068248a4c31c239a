"""Reads what cuobjdump prints about kernels: instructions (SASS), resources, and the loops between the instructions."""
import re
from dataclasses import dataclass, field

FUNCTION = re.compile(r"^\s*Function : (\S+)")
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P[0-9T]+)\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);")
RESOURCES = re.compile(r"^\s*Function (\S+?):?\s*$")
USAGE = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")
INFO_SECTION = re.compile(r"^\.nv\.info\.(\S+)")
MAX_THREADS = re.compile(r"Value:\s+0x([0-9a-f]+) 0x([0-9a-f]+) 0x([0-9a-f]+)")
ADDRESS = re.compile(r"\b0x([0-9a-f]+)\b")

# Opcodes that touch global memory with a width of their own, and those that touch shared memory.
GLOBAL_LOADS = ("LDG", "LD", "LDGSTS")
GLOBAL_STORES = ("STG", "ST")
SHARED = ("LDS", "STS", "LDSM")
LOCAL = ("LDL", "STL")
WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
# Shared memory that the system keeps of each block on sm_90; part of what cuobjdump and the driver count.
SYSTEM_SHARED_BYTES = 1024


@dataclass
class Instruction:
    address: int
    predicate: str  # "" if it always runs
    opcode: str     # with modifiers, as in LDG.E.128
    operands: str

    @property
    def name(self):
        return self.opcode.split(".")[0]

    @property
    def width(self):
        """Bytes that one thread moves."""
        for modifier in self.opcode.split(".")[1:]:
            if modifier in WIDTHS:
                return WIDTHS[modifier]
        return 4

    @property
    def target(self):
        addresses = ADDRESS.findall(self.operands)
        return int(addresses[-1], 16) if addresses else None


@dataclass
class Kernel:
    symbol: str
    instructions: list = field(default_factory=list)
    registers: int = 0
    shared_bytes: int = 0  # static
    local_bytes: int = 0   # local memory and stack, a thread
    max_threads: int = 0   # of __launch_bounds__; 0 if it has none


def parse_sass(text, kernels):
    """`cuobjdump -sass`. Adds to `kernels`, a dict by symbol."""
    kernel = None
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            # Two object files may hold the same instantiation: the last text read stands.
            kernel = kernels.setdefault(match[1], Kernel(match[1]))
            kernel.instructions = []
        elif kernel is not None and (match := INSTRUCTION.match(line)):
            kernel.instructions.append(Instruction(int(match[1], 16), match[2] or "", match[3], match[4].strip()))


def parse_resources(text, kernels):
    """`cuobjdump -res-usage`."""
    symbol = None
    for line in text.splitlines():
        if match := RESOURCES.match(line):
            symbol = match[1]
        elif symbol in kernels and (usage := dict(USAGE.findall(line))):
            kernel = kernels[symbol]
            kernel.registers = int(usage["REG"])
            kernel.shared_bytes = max(0, int(usage["SHARED"]) - SYSTEM_SHARED_BYTES)
            kernel.local_bytes = int(usage["LOCAL"]) + int(usage["STACK"])
            symbol = None


def parse_launch_bounds(text, kernels):
    """`cuobjdump -elf`."""
    symbol, wanted = None, False
    for line in text.splitlines():
        if match := INFO_SECTION.match(line):
            symbol = match[1]
        elif "Attribute:" in line:
            wanted = "EIATTR_MAX_THREADS" in line
        elif wanted and symbol in kernels and (match := MAX_THREADS.search(line)):
            x, y, z = (int(value, 16) for value in match.groups())
            kernels[symbol].max_threads = x * y * z
            wanted = False


def successors(instructions):
    """For each instruction the indices of those that may follow it."""
    index_of = {instruction.address: index for index, instruction in enumerate(instructions)}
    meeting_points = {}
    for instruction in instructions:
        if instruction.name == "BSSY":
            meeting_points.setdefault(instruction.operands.split(",")[0], set()).add(instruction.target)
    result = []
    for index, instruction in enumerate(instructions):
        always = instruction.predicate in ("", "PT", "UPT")
        following = {index + 1} if index + 1 < len(instructions) else set()
        if instruction.name in ("BRA", "JMP"):
            target = {index_of[instruction.target]} if instruction.target in index_of else set()
            # "BRA P0, 0x100" and "BRA.DIV UR4, 0x100" carry their condition as an operand.
            always = always and instruction.operands.startswith("0x")
            result.append(target if always else target | following)
        elif instruction.name in ("EXIT", "RET"):
            result.append(set() if always else following)
        elif instruction.name == "BSYNC":
            points = meeting_points.get(instruction.operands, set())
            next_address = instructions[index + 1].address if following else None
            jumps = set() if next_address in points else {index_of[p] for p in points if p in index_of}
            result.append(jumps or following)
        else:
            result.append(following)
    return result


def reverse_postorder(edges):
    order, seen, stack = [], {0}, [(0, iter(sorted(edges[0])))]
    while stack:
        node, rest = stack[-1]
        for following in rest:
            if following not in seen:
                seen.add(following)
                stack.append((following, iter(sorted(edges[following]))))
                break
        else:
            order.append(node)
            stack.pop()
    return order[::-1]


def dominator_tree(edges, order, predecessors):
    """Immediate dominators, after Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001)."""
    rank = {node: position for position, node in enumerate(order)}
    parent = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            best = None
            for predecessor in predecessors[node]:
                if predecessor not in parent:
                    continue
                other = best if best is not None else predecessor
                while other != predecessor:
                    while rank[predecessor] > rank[other]:
                        predecessor = parent[predecessor]
                    while rank[other] > rank[predecessor]:
                        other = parent[other]
                best = other
            if parent.get(node) != best:
                parent[node], changed = best, True
    return parent


def loops(instructions):
    """Innermost natural loops, each a sorted list of instruction indices."""
    if not instructions:
        return []
    edges = successors(instructions)
    order = reverse_postorder(edges)
    predecessors = {node: [] for node in order}
    for node in order:
        for following in edges[node]:
            predecessors[following].append(node)
    parent = dominator_tree(edges, order, predecessors)

    def dominates(above, node):
        while node != above and node != parent[node]:
            node = parent[node]
        return node == above

    bodies = {}
    for node in order:
        for head in edges[node]:
            # The trap behind a kernel's end jumps to itself.
            if head == node or not dominates(head, node):
                continue
            body, open_nodes = {head}, [node]
            while open_nodes:
                current = open_nodes.pop()
                if current not in body:
                    body.add(current)
                    open_nodes += predecessors[current]
            bodies[head] = bodies.get(head, set()) | body
    return [sorted(body) for body in bodies.values() if not any(other < body for other in bodies.values())]
