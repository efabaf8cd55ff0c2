"""The 6502 without its decimal mode, and the frame loop: `run_frame` runs the console for one frame.

Documented opcodes are exact. Where nes-py differs from the real console, this follows nes-py, because games must end up
in the same bytes: the status byte that PHP, BRK and the NMI push has its own bit order (N 0x01, V 0x02, D 0x10, I 0x20,
Z 0x40, C 0x80); a taken branch to another page costs 5 cycles, read-modify-write at an absolute indexed address 8 if it
crosses a page, BRK 14; an instruction takes effect completely in its first cycle. There is no IRQ, because nothing on
the cartridge raises one. A pointer that JMP reads from a register is 0 here.

Most of a program is machine code (machine_code.py), which runs until something that only the interpreter here can do.

During a frame, CPU registers are in local variables of `run_frame`; `state` has their values only between frames.
"""

import numpy as np

from engine.console.compiler.kernels import helper, routine, routine_at
from engine.console.nes import translator
from engine.console.nes.decode import (
    ABSOLUTE_PROGRAM,
    ABSOLUTE_RAM,
    ABSOLUTE_X,
    ABSOLUTE_Y,
    ADC,
    AND,
    ASL,
    ASL_A,
    BPL,
    BRANCH,
    BRK,
    CLC,
    CLD,
    CLI,
    CLV,
    CMP,
    CONTROL,
    CPX,
    CPY,
    DEC,
    DEX,
    DEY,
    EOR,
    FIRST_MODIFY,
    FIRST_STORE,
    IDLE,
    IMMEDIATE,
    IMPLIED,
    INC,
    INDIRECT_X,
    INDIRECT_Y,
    INX,
    INY,
    JMP,
    JMP_INDIRECT,
    JSR,
    LDA,
    LDX,
    LDY,
    LSR,
    LSR_A,
    MACHINE_CODE,
    ORA,
    PHA,
    PHP,
    PLA,
    PLP,
    POLL_WHILE_SET,
    ROL,
    ROL_A,
    ROR_A,
    RTI,
    RTS,
    SBC,
    SEC,
    SED,
    SEI,
    STA,
    STX,
    STY,
    TAX,
    TAY,
    TSX,
    TXA,
    TXS,
    TYA,
    ZERO_PAGE,
    ZERO_PAGE_X,
    ZERO_PAGE_Y,
    pack,
)
from engine.console.nes.layout import (
    BUTTONS,
    CYCLE_PARITY,
    DOTS_DONE,
    DUE,
    FRAME_CYCLES,
    NMI_PENDING,
    PC,
    PICTURE,
    ROM,
    SP,
    SPRITE_ZERO_HIT,
    STATUS,
)
from engine.console.nes.layout import A as REGISTER_A
from engine.console.nes.layout import X as REGISTER_X
from engine.console.nes.layout import Y as REGISTER_Y
from engine.console.nes.machine_code import call_machine_code
from engine.console.nes.ppu import access_io, advance, hit_stable_until, next_nmi_cycle
from engine.console.nes.translator import REGISTERS

NEGATIVE, OVERFLOW, DECIMAL, INTERRUPT, ZERO, CARRY = 0x01, 0x02, 0x10, 0x20, 0x40, 0x80
OTHER_STATUS = 0x3C  # the bits without a variable of their own


@helper
def peek(memory, program, address):
    """The byte at `address`, without side effects; registers read as 0."""
    if address < 0x2000:
        return np.int64(memory[address & 0x7FF])
    if address >= 0x8000:
        return np.int64(program[address & 0x7FFF])
    return np.int64(0)


@helper
def fetch(memory, program, words, pc):
    """The packed word of an instruction that `decode_program` can't decode: in RAM, or at the end of memory."""
    opcode = peek(memory, program, pc)
    low = peek(memory, program, (pc + 1) & 0xFFFF)
    high = peek(memory, program, (pc + 2) & 0xFFFF)
    return pack(np.int64(words[opcode]), pc, low, high)


@helper
def join_status(other, negative, overflow, zero, carry):
    """The status byte in nes-py's bit order."""
    return other | negative >> 7 | overflow | carry << 7 | (ZERO if zero == 0 else 0)


@helper
def skipped_by_poll(state, while_set, word, cycle, limit):
    """Cycles to skip in a loop that waits for the sprite-0 flag, up to the last iteration that sees no change.

    That iteration is executed; its result is the same as that of all skipped ones.
    """
    if state[SPRITE_ZERO_HIT] != while_set:
        return np.int64(0)
    length = 9 + (word >> 29 & 2)
    iterations = (min(limit, hit_stable_until(state)) - cycle) // length
    return max(iterations - 1, 0) * length


_SIGNATURE = f"int64[1], uint8[1], uint16[1], {ROM}, int64, int64"
frame_function = routine_at(_SIGNATURE)
"""In kernels, `run_frame` from its address."""


@routine(_SIGNATURE)
def run_frame(state, memory, canvas, rom, buttons, draw):
    """Run one lane for one frame of 29,781 CPU cycles with `buttons` held.

    state: int64 [STATE_WORDS]. memory: uint8 [MEMORY_BYTES]. canvas: uint16 [CANVAS_SIZE]. rom: from `make_rom`.
    buttons: nes-py's bits, right 0x80 to A 0x01. draw: DRAW_NOTHING, or `draw_rows` of DRAW_COLORS or one of `DRAW` to
    draw those lines on the canvas; its other lines are undefined afterwards.
    """
    program, decoded, words, tiles, masks, machine_code = rom
    registers = np.empty(REGISTERS, np.int64)
    state[BUTTONS] = buttons
    pc = state[PC]
    a = state[REGISTER_A]
    x = state[REGISTER_X]
    y = state[REGISTER_Y]
    sp = state[SP]
    status = state[STATUS]
    # N is bit 7 of `negative`, Z is `zero == 0`: most instructions set both to their result
    negative = (status & NEGATIVE) << 7
    zero = ~status & ZERO
    overflow = status & OVERFLOW
    carry = status >> 7
    other = status & OTHER_STATUS
    cycle = state[DUE]
    limit = min(next_nmi_cycle(state), FRAME_CYCLES + 1)

    while True:
        if cycle >= limit:
            if limit > FRAME_CYCLES:
                break
            advance(state, memory, canvas, tiles, masks, 3 * limit, draw)
            if state[NMI_PENDING]:
                state[NMI_PENDING] = 0
                memory[0x100 | sp] = pc >> 8
                memory[0x100 | (sp - 1) & 0xFF] = pc & 0xFF
                memory[0x100 | (sp - 2) & 0xFF] = INTERRUPT | join_status(other, negative, overflow, zero, carry)
                sp = (sp - 3) & 0xFF
                other |= INTERRUPT
                pc = np.int64(program[0x7FFA]) | np.int64(program[0x7FFB]) << 8
                cycle += 7
            limit = min(next_nmi_cycle(state), FRAME_CYCLES + 1)
            continue

        word = np.int64(decoded[pc & 0xFFFF])  # masked: an index that may be negative costs a check
        if word < 0:
            registers[translator.A] = a
            registers[translator.X] = x
            registers[translator.Y] = y
            registers[translator.SP] = sp
            registers[translator.NEGATIVE] = negative
            registers[translator.ZERO] = zero
            registers[translator.OVERFLOW] = overflow
            registers[translator.CARRY] = carry
            registers[translator.CYCLE] = cycle
            registers[translator.PC] = pc
            call_machine_code(machine_code, memory, program, registers, limit)
            a = registers[translator.A]
            x = registers[translator.X]
            y = registers[translator.Y]
            sp = registers[translator.SP]
            negative = registers[translator.NEGATIVE]
            zero = registers[translator.ZERO]
            overflow = registers[translator.OVERFLOW]
            carry = registers[translator.CARRY]
            cycle = registers[translator.CYCLE]
            pc = registers[translator.PC]
            if cycle >= limit:
                continue
            word = np.int64(decoded[pc & 0xFFFF]) & ~np.int64(MACHINE_CODE)
        if word == 0:
            word = fetch(memory, program, words, pc)
        operand = word & 0xFFFF
        operation = (word >> 16) & 63
        mode = (word >> 22) & 15
        begin = cycle
        cycle += (word >> 26) & 15

        if mode == IMPLIED:
            pc = (pc + 1) & 0xFFFF
            if operation == ASL_A:
                carry = a >> 7
                a = (a << 1) & 0xFF
                negative = zero = a
            elif operation == LSR_A:
                carry = a & 1
                a >>= 1
                negative = zero = a
            elif operation == ROL_A:
                a = a << 1 | carry
                carry = a >> 8
                a &= 0xFF
                negative = zero = a
            elif operation == ROR_A:
                a |= carry << 8
                carry = a & 1
                a >>= 1
                negative = zero = a
            elif operation == TAX:
                x = a
                negative = zero = x
            elif operation == TXA:
                a = x
                negative = zero = a
            elif operation == TAY:
                y = a
                negative = zero = y
            elif operation == TYA:
                a = y
                negative = zero = a
            elif operation == TSX:
                x = sp
                negative = zero = x
            elif operation == TXS:
                sp = x
            elif operation == INX:
                x = (x + 1) & 0xFF
                negative = zero = x
            elif operation == INY:
                y = (y + 1) & 0xFF
                negative = zero = y
            elif operation == DEX:
                x = (x - 1) & 0xFF
                negative = zero = x
            elif operation == DEY:
                y = (y - 1) & 0xFF
                negative = zero = y
            elif operation == CLC:
                carry = 0
            elif operation == SEC:
                carry = 1
            elif operation == CLI:
                other &= ~INTERRUPT
            elif operation == SEI:
                other |= INTERRUPT
            elif operation == CLD:
                other &= ~DECIMAL
            elif operation == SED:
                other |= DECIMAL
            elif operation == CLV:
                overflow = 0
            elif operation == PHA:
                memory[0x100 | sp] = a
                sp = (sp - 1) & 0xFF
            elif operation == PLA:
                sp = (sp + 1) & 0xFF
                a = np.int64(memory[0x100 | sp])
                negative = zero = a
            elif operation == PHP:
                memory[0x100 | sp] = join_status(other, negative, overflow, zero, carry)
                sp = (sp - 1) & 0xFF
            elif operation == PLP:
                sp = (sp + 1) & 0xFF
                status = np.int64(memory[0x100 | sp])
                negative = (status & NEGATIVE) << 7
                zero = ~status & ZERO
                overflow = status & OVERFLOW
                carry = status >> 7
                other = status & OTHER_STATUS
            continue

        if mode == BRANCH:
            # The flags in the order of the branch opcodes, of which each pair tests one for clear, then for set.
            flags = negative >> 7 & 1 | overflow | carry << 2 | np.int64(zero == 0) << 3
            test = operation - BPL
            taken = (flags >> (test >> 1) ^ test ^ 1) & 1
            if taken:
                pc = operand
                cycle += 1 + (word >> 29 & 2)  # to another page: two more in nes-py, one on the 6502
            else:
                pc = (pc + 2) & 0xFFFF
            continue

        if mode == CONTROL:
            if operation == JMP:
                pc = operand
            elif operation == JSR:
                pc = (pc + 2) & 0xFFFF
                memory[0x100 | sp] = pc >> 8
                memory[0x100 | (sp - 1) & 0xFF] = pc & 0xFF
                sp = (sp - 2) & 0xFF
                pc = operand
            elif operation == RTS:
                pc = np.int64(memory[0x100 | (sp + 1) & 0xFF]) | np.int64(memory[0x100 | (sp + 2) & 0xFF]) << 8
                pc = (pc + 1) & 0xFFFF
                sp = (sp + 2) & 0xFF
            elif operation == IDLE:
                cycle += (limit - begin - 1) // 3 * 3
            elif operation == JMP_INDIRECT:
                # the 6502 does not carry into the high byte of the pointer
                beyond = (operand & 0xFF00) | ((operand + 1) & 0xFF)
                low = peek(memory, program, operand)
                pc = low | peek(memory, program, beyond) << 8
            elif operation == RTI:
                status = np.int64(memory[0x100 | (sp + 1) & 0xFF])
                negative = (status & NEGATIVE) << 7
                zero = ~status & ZERO
                overflow = status & OVERFLOW
                carry = status >> 7
                other = status & OTHER_STATUS
                pc = np.int64(memory[0x100 | (sp + 2) & 0xFF]) | np.int64(memory[0x100 | (sp + 3) & 0xFF]) << 8
                sp = (sp + 3) & 0xFF
            elif operation == BRK:
                pc = (pc + 2) & 0xFFFF
                memory[0x100 | sp] = pc >> 8
                memory[0x100 | (sp - 1) & 0xFF] = pc & 0xFF
                # The bits at which the real console has its B flag.
                status = join_status(other, negative, overflow, zero, carry) | INTERRUPT | DECIMAL
                memory[0x100 | (sp - 2) & 0xFF] = status
                sp = (sp - 3) & 0xFF
                other |= INTERRUPT
                pc = np.int64(program[0x7FFE]) | np.int64(program[0x7FFF]) << 8
            else:
                advance(state, memory, canvas, tiles, masks, 3 * begin, draw)
                skipped = skipped_by_poll(state, operation == POLL_WHILE_SET, word, begin, limit)
                cycle += skipped
                begin += skipped
                a = access_io(
                    state, memory, canvas, program, tiles, masks, operand, np.int64(0), operand, begin, draw
                )  # fmt: skip
                negative = zero = a
                pc = (pc + 3) & 0xFFFF
            continue

        # All other operations access an address; `value` is the byte there if it can be read without side effects.
        if mode == IMMEDIATE:
            value = operand
            address = (pc + 1) & 0xFFFF
            pc = (pc + 2) & 0xFFFF
        elif mode == ZERO_PAGE:
            address = operand
            value = np.int64(memory[address & 0x7FF])
            pc = (pc + 2) & 0xFFFF
        elif mode == ABSOLUTE_RAM:
            address = operand
            value = np.int64(memory[address & 0x7FF])
            pc = (pc + 3) & 0xFFFF
        elif mode == ABSOLUTE_PROGRAM:
            address = 0x8000
            value = operand
            pc = (pc + 3) & 0xFFFF
        elif mode == ZERO_PAGE_X:
            address = (operand + x) & 0xFF
            value = np.int64(memory[address])
            pc = (pc + 2) & 0xFFFF
        elif mode == ZERO_PAGE_Y:
            address = (operand + y) & 0xFF
            value = np.int64(memory[address])
            pc = (pc + 2) & 0xFFFF
        else:
            if mode == ABSOLUTE_X:
                address = (operand + x) & 0xFFFF
                cycle += (word >> 30) & ((operand & 0xFF) + x) >> 8
                pc = (pc + 3) & 0xFFFF
            elif mode == ABSOLUTE_Y:
                address = (operand + y) & 0xFFFF
                cycle += (word >> 30) & ((operand & 0xFF) + y) >> 8
                pc = (pc + 3) & 0xFFFF
            elif mode == INDIRECT_Y:
                low = np.int64(memory[operand & 0xFF])
                address = ((low | np.int64(memory[(operand + 1) & 0xFF]) << 8) + y) & 0xFFFF
                cycle += (word >> 30) & (low + y) >> 8
                pc = (pc + 2) & 0xFFFF
            elif mode == INDIRECT_X:
                low = np.int64(memory[(operand + x) & 0xFF])
                address = low | np.int64(memory[(operand + x + 1) & 0xFF]) << 8
                pc = (pc + 2) & 0xFFFF
            else:
                address = operand
                pc = (pc + 3) & 0xFFFF
            if address < 0x2000:
                value = np.int64(memory[address & 0x7FF])
            elif address >= 0x8000:
                value = np.int64(program[address & 0x7FFF])
            elif operation < FIRST_STORE:
                value = access_io(
                    state, memory, canvas, program, tiles, masks, address, np.int64(0), operand, begin, draw
                )  # fmt: skip
            else:
                value = 0

        if operation < FIRST_MODIFY:
            if operation == LDA:
                a = value
                negative = zero = value
            elif operation == LDX:
                x = value
                negative = zero = value
            elif operation == LDY:
                y = value
                negative = zero = value
            elif operation == ADC:
                total = a + value + carry
                overflow = ((a ^ total) & (value ^ total) & 0x80) >> 6
                carry = total >> 8
                a = total & 0xFF
                negative = zero = a
            elif operation == SBC:
                total = a + (value ^ 0xFF) + carry
                overflow = ((a ^ total) & (value ^ 0xFF ^ total) & 0x80) >> 6
                carry = total >> 8
                a = total & 0xFF
                negative = zero = a
            elif operation == AND:
                a &= value
                negative = zero = a
            elif operation == ORA:
                a |= value
                negative = zero = a
            elif operation == EOR:
                a ^= value
                negative = zero = a
            elif operation == CMP:
                carry = ((a - value) >> 8) + 1
                negative = zero = (a - value) & 0xFF
            elif operation == CPX:
                carry = ((x - value) >> 8) + 1
                negative = zero = (x - value) & 0xFF
            elif operation == CPY:
                carry = ((y - value) >> 8) + 1
                negative = zero = (y - value) & 0xFF
            else:
                zero = a & value
                overflow = value >> 5 & 2
                negative = value
            continue

        if operation < FIRST_STORE:
            if operation == INC:
                value = (value + 1) & 0xFF
            elif operation == DEC:
                value = (value - 1) & 0xFF
            elif operation == ASL:
                carry = value >> 7
                value = (value << 1) & 0xFF
            elif operation == ROL:
                value = value << 1 | carry
                carry = value >> 8
                value &= 0xFF
            elif operation == LSR:
                carry = value & 1
                value >>= 1
            else:
                value |= carry << 8
                carry = value & 1
                value >>= 1
            negative = zero = value
        elif operation == STA:
            value = a
        elif operation == STX:
            value = x
        elif operation == STY:
            value = y
        else:
            continue
        if address < 0x2000:
            memory[address & 0x7FF] = value
        elif address < 0x8000:
            cycle += access_io(
                state, memory, canvas, program, tiles, masks, address, np.int64(1), value, begin, draw
            )  # fmt: skip

    advance(state, memory, canvas, tiles, masks, 3 * FRAME_CYCLES, draw)
    state[PICTURE] = 1
    state[DOTS_DONE] = 0
    state[DUE] = cycle - FRAME_CYCLES
    state[CYCLE_PARITY] ^= FRAME_CYCLES & 1
    state[PC] = pc
    state[REGISTER_A] = a
    state[REGISTER_X] = x
    state[REGISTER_Y] = y
    state[SP] = sp
    state[STATUS] = join_status(other, negative, overflow, zero, carry)
