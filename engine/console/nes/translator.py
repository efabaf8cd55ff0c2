"""Translates a program from 6502 instructions to LLVM's language (LLVM IR), block by block.

Interpreting costs most at the jump to each instruction's code, which the processor can't predict. A basic block that is
translated has no such jumps, its operands are constants, and a flag that the block overwrites is never computed.

Semantics are exactly those of the interpreter (cpu.py). What is rare or has side effects is left to it: accesses to
registers, instructions that read or write the whole status byte, and loops that wait. A block also returns to it if the
frame could end, or an interrupt could begin, before the block's last instruction.

Blocks that jump to each other are one function, and RTS returns to the loop of `run`, which looks up the function of
the next address.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from engine.console.nes import decode
from engine.console.nes.decode import PROGRAM_START, Code, Instruction, successors

# Words of the array in which the interpreter passes its registers
A, X, Y, SP, NEGATIVE, ZERO, OVERFLOW, CARRY, CYCLE, PC = range(10)
REGISTERS = 10
RUN, NUMBERS = "run", "numbers"  # the symbols of the module that can be seen from outside

_MAX_BLOCKS = 200
"""In one function: LLVM's time per block grows with the size of a function."""
_ARGUMENTS = "ptr %memory, ptr %program, ptr %registers, i64 %limit"
_LEFT_TO_INTERPRETER = frozenset(
    (
        decode.CLI,
        decode.SEI,
        decode.CLD,
        decode.SED,
        decode.PHP,
        decode.PLP,
        decode.RTI,
        decode.BRK,
        decode.IDLE,
        decode.POLL_WHILE_SET,
        decode.POLL_WHILE_CLEAR,
    )
)
_TRANSFERS = {decode.TAX: (A, X), decode.TXA: (X, A), decode.TAY: (A, Y), decode.TYA: (Y, A), decode.TSX: (SP, X)}
_STEPS = {decode.INX: (X, 1), decode.INY: (Y, 1), decode.DEX: (X, -1), decode.DEY: (Y, -1)}
_FLAGS = {decode.CLC: (CARRY, "0"), decode.SEC: (CARRY, "1"), decode.CLV: (OVERFLOW, "0")}
_LOADS = {decode.LDA: A, decode.LDX: X, decode.LDY: Y}
_STORES = {decode.STA: A, decode.STX: X, decode.STY: Y}
_COMPARISONS = {decode.CMP: A, decode.CPX: X, decode.CPY: Y}
_LOGIC = {decode.AND: "and", decode.ORA: "or", decode.EOR: "xor"}
_SHIFTS_OF_A = {decode.ASL_A: decode.ASL, decode.LSR_A: decode.LSR, decode.ROL_A: decode.ROL, decode.ROR_A: decode.ROR}


def is_translated(instruction: Instruction) -> bool:
    """Return whether an instruction is translated, rather than left to the interpreter."""
    operation, mode, operand = instruction[:3]
    if operation in _LEFT_TO_INTERPRETER or mode == decode.ABSOLUTE:  # what is left of ABSOLUTE is a register
        return False
    if mode in (decode.ABSOLUTE_X, decode.ABSOLUTE_Y):
        modifies = decode.FIRST_MODIFY <= operation < decode.FIRST_STORE
        return operand + 255 < 0x2000 or (0x8000 <= operand <= 0xFFFF - 255 and not modifies)
    return operation != decode.JMP_INDIRECT or operand < 0x1FFF


def find_blocks(code: Code) -> dict[int, list[int]]:
    """The addresses of the instructions of each block, by its first one; a block ends before what is not translated."""
    leaders = set(code.leaders)
    for address, instruction in code.instructions.items():
        if not is_translated(instruction):
            leaders.update(successors(address, instruction))
    blocks = {}
    for leader in sorted(leaders):
        block, address = [], leader
        while address in code.instructions and is_translated(code.instructions[address]):
            block.append(address)
            instruction = code.instructions[address]
            address += instruction.length
            if address in leaders or instruction.mode in (decode.BRANCH, decode.CONTROL):
                break
        if block:
            blocks[leader] = block
    return blocks


def group_blocks(code: Code, blocks: Mapping[int, list[int]]) -> list[list[int]]:
    """Sort blocks into groups, each to become a function: those that jump to each other, at most _MAX_BLOCKS."""
    group_of = {block: [block] for block in blocks}
    for block, addresses in blocks.items():
        last = code.instructions[addresses[-1]]
        if last.operation == decode.JSR:
            continue
        for target in successors(addresses[-1], last):
            if target in blocks:
                ours, other = group_of[block], group_of[target]
                if ours is not other and len(ours) + len(other) <= _MAX_BLOCKS:
                    ours += other
                    group_of.update(dict.fromkeys(other, ours))
    return list({id(group): sorted(group) for group in group_of.values()}.values())


def translate(code: Code) -> str:
    """The LLVM module of a program, with two visible symbols.

    `run(memory, program, registers, limit)` executes blocks from registers[PC] on, until an instruction that is not
    translated, or until registers[CYCLE] comes near `limit`; then the interpreter must execute at least one
    instruction. memory, program: uint8, as in `run_frame`. registers: int64 [REGISTERS].
    `numbers`, uint16 [32768], has the number of the function in which the block of each address is, 0 if none begins
    there.
    """
    blocks = find_blocks(code)
    groups = group_blocks(code, blocks)
    number = {block: index for index, group in enumerate(groups, 1) for block in group}
    lines: list[str] = []
    for index, group in enumerate(groups, 1):
        lines += _function(f"group{index}", code, group, blocks)
    table = ", ".join(f"i16 {number.get(PROGRAM_START + offset, 0)}" for offset in range(0x8000))
    functions = ", ".join(["ptr null", *(f"ptr @group{index}" for index in range(1, len(groups) + 1))])
    lines += [
        f"@{NUMBERS} = constant [32768 x i16] [{table}]",
        f"@functions = internal constant [{len(groups) + 1} x ptr] [{functions}]",
        _RUN,
    ]
    return "\n".join(lines)


_RUN = f"""
define void @{RUN}({_ARGUMENTS}) nounwind {{
  %pc_place = getelementptr i64, ptr %registers, i64 {PC}
  br label %next
next:
  %pc = load i64, ptr %pc_place
  %offset = sub i64 %pc, {PROGRAM_START}
  %inside = icmp ult i64 %offset, 32768
  br i1 %inside, label %look_up, label %leave
look_up:
  %number_place = getelementptr i16, ptr @{NUMBERS}, i64 %offset
  %number = load i16, ptr %number_place
  %found = icmp ne i16 %number, 0
  br i1 %found, label %call, label %leave
call:
  %index = zext i16 %number to i64
  %function_place = getelementptr ptr, ptr @functions, i64 %index
  %function = load ptr, ptr %function_place
  %continue = call i1 %function(ptr %memory, ptr %program, ptr %registers, i64 %limit)
  br i1 %continue, label %next, label %leave
leave:
  ret void
}}
"""


def _function(name: str, code: Code, group: Iterable[int], blocks: Mapping[int, list[int]]) -> list[str]:
    """A function that begins at the block of registers[PC]; it returns whether `run` shall look up the next one."""
    members = set(group)
    function = _Function(members)
    cases = " ".join(f"i64 {block}, label %at{block:x}" for block in sorted(members))
    pc = function.value("load i64, ptr %place9")
    function.emit(f"switch i64 {pc}, label %leave [{cases}]")
    for block in sorted(members):
        function.translate_block([(address, code.instructions[address]) for address in blocks[block]])
    places = [f"  %place{i} = getelementptr i64, ptr %registers, i64 {i}" for i in range(REGISTERS)]
    return [
        f"define internal i1 @{name}({_ARGUMENTS}) nounwind {{",
        *places,
        "  %ignored = alloca i8",
        *function.lines,
        "leave:",
        "  ret i1 0",
        "next:",
        "  ret i1 1",
        "}",
    ]


class _Function:
    """Writes the blocks of one function. Values are names or numbers of type i64, and stay within 0..255 as registers.

    Registers are loaded at their first use in a block and stored at its end.
    """

    def __init__(self, members: set[int]) -> None:
        self.lines: list[str] = []
        self._members = members
        self._names = itertools.count()
        self._registers: dict[int, str] = {}
        self._changed: set[int] = set()
        self._cycles = 0  # of the instructions of the block so far, not yet added to CYCLE

    def emit(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def value(self, expression: str) -> str:
        name = f"%v{next(self._names)}"
        self.emit(f"{name} = {expression}")
        return name

    def calculate(self, operation: str, left: str, right: str | int) -> str:
        return self.value(f"{operation} i64 {left}, {right}")

    def byte(self, value: str) -> str:
        return self.calculate("and", value, 0xFF)

    def get(self, register: int) -> str:
        if register not in self._registers:
            self._registers[register] = self.value(f"load i64, ptr %place{register}")
        return self._registers[register]

    def set(self, register: int, value: str) -> None:
        self._registers[register] = value
        self._changed.add(register)

    def set_result(self, value: str) -> None:
        """Set the flags of N and Z from a result."""
        self.set(NEGATIVE, value)
        self.set(ZERO, value)

    def translate_block(self, block: list[tuple[int, Instruction]]) -> None:
        start = block[0][0]
        self._registers, self._changed, self._cycles = {}, set(), 0
        self.label(f"at{start:x}")
        # The interpreter checks before each instruction whether `limit` is reached
        before_last = sum(instruction.cycles + instruction.crossing for _, instruction in block[:-1])
        latest = self.calculate("add", self.get(CYCLE), before_last)
        self._check(self.value(f"icmp slt i64 {latest}, %limit"), f"begin{start:x}", start)
        for address, instruction in block:
            self._translate(address, instruction)
        if instruction.mode not in (decode.BRANCH, decode.CONTROL):
            self._store_registers()
            self._jump(address + instruction.length)

    def _check(self, condition: str, label: str, address: int) -> None:
        """Continue at `label` if the condition holds; otherwise leave with the instruction at `address`."""
        self.emit(f"br i1 {condition}, label %{label}, label %leave_{label}")
        self.label(f"leave_{label}")
        self._store_registers()
        self.emit(f"store i64 {address}, ptr %place{PC}")
        self.emit("br label %leave")
        self.label(label)

    def _store_registers(self) -> None:
        for register in sorted(self._changed - {CYCLE}):
            self.emit(f"store i64 {self._registers[register]}, ptr %place{register}")
        if self._cycles or CYCLE in self._changed:
            cycle = self.calculate("add", self.get(CYCLE), self._cycles)
            self.emit(f"store i64 {cycle}, ptr %place{CYCLE}")

    def _jump(self, target: int) -> None:
        if target in self._members:
            self.emit(f"br label %at{target:x}")
        else:
            self._jump_to_value(str(target))

    def _jump_to_value(self, target: str) -> None:
        self.emit(f"store i64 {target}, ptr %place{PC}")
        self.emit("br label %next")

    def _translate(self, address: int, instruction: Instruction) -> None:
        if instruction.mode == decode.IMPLIED:
            self._translate_implied(instruction.operation)
            self._cycles += instruction.cycles
        elif instruction.mode == decode.BRANCH:
            self._translate_branch(address, instruction)
        elif instruction.mode == decode.CONTROL:
            self._translate_jump(address, instruction)
        else:
            self._translate_access(address, instruction)

    def _translate_implied(self, operation: int) -> None:
        if operation in _TRANSFERS:
            source, target = _TRANSFERS[operation]
            self.set(target, self.get(source))
            self.set_result(self.get(source))
        elif operation in _STEPS:
            register, step = _STEPS[operation]
            self.set(register, self.byte(self.calculate("add", self.get(register), step)))
            self.set_result(self.get(register))
        elif operation in _SHIFTS_OF_A:
            self.set(A, self._modified(_SHIFTS_OF_A[operation], self.get(A)))
        elif operation in _FLAGS:
            self.set(*_FLAGS[operation])
        elif operation == decode.TXS:
            self.set(SP, self.get(X))
        elif operation == decode.PHA:
            self._push(self.get(A))
        elif operation == decode.PLA:
            self.set(A, self._pull())
            self.set_result(self.get(A))

    def _push(self, value: str) -> None:
        self._store(self._in_ram(self.calculate("or", self.get(SP), 0x100)), value)
        self.set(SP, self.byte(self.calculate("sub", self.get(SP), 1)))

    def _pull(self) -> str:
        self.set(SP, self.byte(self.calculate("add", self.get(SP), 1)))
        return self._load(self._in_ram(self.calculate("or", self.get(SP), 0x100)))

    def _translate_branch(self, address: int, instruction: Instruction) -> None:
        # The opcodes are pairs: branch if N, V, C, Z is clear, and if it is set
        flag, if_set = divmod(instruction.operation - decode.BPL, 2)
        if flag == 3:  # Z is set if the value is 0
            value, if_set = self.get(ZERO), 1 - if_set
        else:
            value = self.get((NEGATIVE, OVERFLOW, CARRY)[flag])
            if flag == 0:
                value = self.calculate("and", value, 0x80)
        taken = self.value(f"icmp {'ne' if if_set else 'eq'} i64 {value}, 0")
        not_taken_cycle = self.calculate("add", self.get(CYCLE), self._cycles + instruction.cycles)
        more = 3 if instruction.crossing else 1
        taken_cycle = self.calculate("add", not_taken_cycle, more)
        self.set(CYCLE, self.value(f"select i1 {taken}, i64 {taken_cycle}, i64 {not_taken_cycle}"))
        self._cycles = 0
        self._store_registers()
        self.emit(f"br i1 {taken}, label %taken{address:x}, label %not{address:x}")
        self.label(f"taken{address:x}")
        self._jump(instruction.operand)
        self.label(f"not{address:x}")
        self._jump(address + instruction.length)

    def _translate_jump(self, address: int, instruction: Instruction) -> None:
        operation, operand = instruction.operation, instruction.operand
        self._cycles += instruction.cycles
        if operation == decode.JSR:
            last = address + 2
            self._push(str(last >> 8))
            self._push(str(last & 0xFF))
        elif operation == decode.RTS:
            low, high = self._pull(), self._pull()
            target = self.calculate("and", self.calculate("add", self._pair(low, high), 1), 0xFFFF)
        elif operation == decode.JMP_INDIRECT:
            # the 6502 does not carry into the high byte of the pointer
            beyond = operand & 0xFF00 | (operand + 1) & 0xFF
            target = self._pair(*(self._load(self._in_ram(str(place & 0x7FF))) for place in (operand, beyond)))
        self._store_registers()
        if operation in (decode.JSR, decode.JMP):
            self._jump(operand)
        else:
            self._jump_to_value(target)

    def _pair(self, low: str, high: str) -> str:
        return self.calculate("or", low, self.calculate("shl", high, 8))

    def _translate_access(self, address: int, instruction: Instruction) -> None:
        operation = instruction.operation
        reads, writes = operation < decode.FIRST_STORE, decode.FIRST_MODIFY <= operation <= decode.STY
        if instruction.mode in (decode.IMMEDIATE, decode.ABSOLUTE_PROGRAM):
            place, value = "%ignored", str(instruction.operand)
        else:
            place = self._place(address, instruction, writes)
            value = self._load(place) if reads else ""
        self._cycles += instruction.cycles
        if operation < decode.FIRST_MODIFY:
            self._read(operation, value)
        elif operation < decode.FIRST_STORE:
            self._store(place, self._modified(operation, value))
        elif operation in _STORES:
            self._store(place, self.get(_STORES[operation]))

    def _place(self, address: int, instruction: Instruction, writes: bool) -> str:
        """The pointer to what an instruction accesses; to a byte that nobody reads if it writes to the program."""
        mode, operand = instruction.mode, instruction.operand
        if mode in (decode.ZERO_PAGE, decode.ABSOLUTE_RAM):
            return self._in_ram(str(operand & 0x7FF))
        if mode in (decode.ZERO_PAGE_X, decode.ZERO_PAGE_Y):
            index = self.get(X if mode == decode.ZERO_PAGE_X else Y)
            return self._in_ram(self.byte(self.calculate("add", index, operand)))
        if mode in (decode.ABSOLUTE_X, decode.ABSOLUTE_Y):
            index = self.get(X if mode == decode.ABSOLUTE_X else Y)
            if instruction.crossing:
                self._add_cycle_if_crossing(self.calculate("add", index, operand & 0xFF))
            target = self.calculate("add", index, operand)
            if operand < 0x2000:
                return self._in_ram(self.calculate("and", target, 0x7FF))
            return "%ignored" if writes else self._in_program(target)
        if mode == decode.INDIRECT_Y:
            low, high = (self._load(self._in_ram(str(place & 0xFF))) for place in (operand, operand + 1))
            low = self.calculate("add", low, self.get(Y))
            target = self.calculate("add", low, self.calculate("shl", high, 8))
            target = self.calculate("and", target, 0xFFFF)
        else:
            first = self.calculate("add", self.get(X), operand)
            second = self.calculate("add", first, 1)
            target = self._pair(*(self._load(self._in_ram(self.byte(place))) for place in (first, second)))
        above_ram = self.calculate("sub", target, 0x2000)
        self._check(self.value(f"icmp uge i64 {above_ram}, {0x8000 - 0x2000}"), f"access{address:x}", address)
        if instruction.crossing:
            self._add_cycle_if_crossing(low)
        in_ram = self.value(f"icmp ult i64 {target}, {0x2000}")
        ram = self._in_ram(self.calculate("and", target, 0x7FF))
        return self.value(f"select i1 {in_ram}, ptr {ram}, ptr {'%ignored' if writes else self._in_program(target)}")

    def _add_cycle_if_crossing(self, low: str) -> None:
        """Add one cycle if the sum of the low byte of an address and an index exceeds a byte."""
        self.set(CYCLE, self.calculate("add", self.get(CYCLE), self.calculate("lshr", low, 8)))

    def _in_ram(self, index: str) -> str:
        return self.value(f"getelementptr i8, ptr %memory, i64 {index}")

    def _in_program(self, address: str) -> str:
        return self.value(f"getelementptr i8, ptr %program, i64 {self.calculate('and', address, 0x7FFF)}")

    def _load(self, place: str) -> str:
        return self.value(f"zext i8 {self.value(f'load i8, ptr {place}')} to i64")

    def _store(self, place: str, value: str) -> None:
        self.emit(f"store i8 {self.value(f'trunc i64 {value} to i8')}, ptr {place}")

    def _read(self, operation: int, value: str) -> None:
        """An operation that reads a value from memory."""
        if operation in _LOADS:
            self.set(_LOADS[operation], value)
            self.set_result(value)
        elif operation in _COMPARISONS:
            register = self.get(_COMPARISONS[operation])
            self.set(CARRY, self.value(f"zext i1 {self.value(f'icmp uge i64 {register}, {value}')} to i64"))
            self.set_result(self.byte(self.calculate("sub", register, value)))
        elif operation in _LOGIC:
            self.set(A, self.calculate(_LOGIC[operation], self.get(A), value))
            self.set_result(self.get(A))
        elif operation == decode.BIT:
            self.set(ZERO, self.calculate("and", self.get(A), value))
            self.set(OVERFLOW, self.calculate("and", self.calculate("lshr", value, 5), 2))
            self.set(NEGATIVE, value)
        else:
            self._add(self.calculate("xor", value, 0xFF) if operation == decode.SBC else value)

    def _add(self, value: str) -> None:
        a = self.get(A)
        total = self.calculate("add", self.calculate("add", a, value), self.get(CARRY))
        signs = self.calculate("and", self.calculate("xor", a, total), self.calculate("xor", value, total))
        self.set(OVERFLOW, self.calculate("lshr", self.calculate("and", signs, 0x80), 6))
        self.set(CARRY, self.calculate("lshr", total, 8))
        self.set(A, self.byte(total))
        self.set_result(self.get(A))

    def _modified(self, operation: int, value: str) -> str:
        """The result of a read-modify-write operation."""
        if operation in (decode.INC, decode.DEC):
            result = self.byte(self.calculate("add", value, 1 if operation == decode.INC else -1))
        elif operation in (decode.ASL, decode.ROL):
            shifted = self.calculate("shl", value, 1)
            if operation == decode.ROL:
                shifted = self.calculate("or", shifted, self.get(CARRY))
            self.set(CARRY, self.calculate("lshr", value, 7))
            result = self.byte(shifted)
        else:
            shifted = self.calculate("lshr", value, 1)
            if operation == decode.ROR:
                shifted = self.calculate("or", shifted, self.calculate("shl", self.get(CARRY), 7))
            self.set(CARRY, self.calculate("and", value, 1))
            result = shifted
        self.set_result(result)
        return result
