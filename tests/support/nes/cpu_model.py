"""A second implementation of the 6502, in readable Python: one instruction at a time, with RAM and program only.

The compiled CPU is compared with it. Its timing is that of nes-py: see the note at `CYCLES`.
"""

from dataclasses import dataclass, field

# mnemonic, then mode:opcode for every documented opcode
TABLE = """
ADC imm:69 zp:65 zpx:75 abs:6D abx:7D aby:79 inx:61 iny:71
AND imm:29 zp:25 zpx:35 abs:2D abx:3D aby:39 inx:21 iny:31
ASL acc:0A zp:06 zpx:16 abs:0E abx:1E
BCC rel:90
BCS rel:B0
BEQ rel:F0
BIT zp:24 abs:2C
BMI rel:30
BNE rel:D0
BPL rel:10
BRK imp:00
BVC rel:50
BVS rel:70
CLC imp:18
CLD imp:D8
CLI imp:58
CLV imp:B8
CMP imm:C9 zp:C5 zpx:D5 abs:CD abx:DD aby:D9 inx:C1 iny:D1
CPX imm:E0 zp:E4 abs:EC
CPY imm:C0 zp:C4 abs:CC
DEC zp:C6 zpx:D6 abs:CE abx:DE
DEX imp:CA
DEY imp:88
EOR imm:49 zp:45 zpx:55 abs:4D abx:5D aby:59 inx:41 iny:51
INC zp:E6 zpx:F6 abs:EE abx:FE
INX imp:E8
INY imp:C8
JMP abs:4C ind:6C
JSR abs:20
LDA imm:A9 zp:A5 zpx:B5 abs:AD abx:BD aby:B9 inx:A1 iny:B1
LDX imm:A2 zp:A6 zpy:B6 abs:AE aby:BE
LDY imm:A0 zp:A4 zpx:B4 abs:AC abx:BC
LSR acc:4A zp:46 zpx:56 abs:4E abx:5E
NOP imp:EA
ORA imm:09 zp:05 zpx:15 abs:0D abx:1D aby:19 inx:01 iny:11
PHA imp:48
PHP imp:08
PLA imp:68
PLP imp:28
ROL acc:2A zp:26 zpx:36 abs:2E abx:3E
ROR acc:6A zp:66 zpx:76 abs:6E abx:7E
RTI imp:40
RTS imp:60
SBC imm:E9 zp:E5 zpx:F5 abs:ED abx:FD aby:F9 inx:E1 iny:F1
SEC imp:38
SED imp:F8
SEI imp:78
STA zp:85 zpx:95 abs:8D abx:9D aby:99 inx:81 iny:91
STX zp:86 zpy:96 abs:8E
STY zp:84 zpx:94 abs:8C
TAX imp:AA
TAY imp:A8
TSX imp:BA
TXA imp:8A
TXS imp:9A
TYA imp:98
"""
OPCODES: dict[int, tuple[str, str]] = {}
for _line in TABLE.split("\n"):
    _mnemonic, *_forms = _line.split() or [""]
    for _form in _forms:
        _mode, _opcode = _form.split(":")
        OPCODES[int(_opcode, 16)] = (_mnemonic, _mode)

LENGTH = {"imp": 1, "acc": 1, "abs": 3, "abx": 3, "aby": 3, "ind": 3}
STORES = ("STA", "STX", "STY")
MODIFIES = ("ASL", "DEC", "INC", "LSR", "ROL", "ROR")
BRANCHES = {
    "BPL": ("-", "N"),
    "BMI": ("+", "N"),
    "BVC": ("-", "V"),
    "BVS": ("+", "V"),
    "BCC": ("-", "C"),
    "BCS": ("+", "C"),
    "BNE": ("-", "Z"),
    "BEQ": ("+", "Z"),
}
# as in the 6502's manual, but BRK (7 there), and see `Model.step` for branches and read-modify-write
CYCLES = {"BRK": 14, "JMP": 3, "JSR": 6, "PHA": 3, "PHP": 3, "PLA": 4, "PLP": 4, "RTI": 6, "RTS": 6}
MODE_CYCLES = {"imm": 2, "zp": 3, "zpx": 4, "zpy": 4, "abs": 4, "abx": 4, "aby": 4, "inx": 6, "iny": 5}

# nes-py's order of the status bits
BITS = {"N": 0x01, "V": 0x02, "D": 0x10, "I": 0x20, "Z": 0x40, "C": 0x80}
UNUSED = 0x0C


class TouchesRegister(Exception):
    """The instruction accesses 0x2000..0x7FFF, which this model does not implement."""


@dataclass
class Model:
    """Registers, flags as a dictionary of bools, 2048 bytes of RAM and a program of 32768 bytes."""

    program: bytes
    ram: bytearray
    pc: int
    a: int
    x: int
    y: int
    sp: int
    status: int
    flags: dict[str, bool] = field(init=False)

    def __post_init__(self) -> None:
        self.set_status(self.status)

    def set_status(self, status: int) -> None:
        self.flags = {name: bool(status & bit) for name, bit in BITS.items()}
        self.unused = status & UNUSED

    def get_status(self) -> int:
        return self.unused | sum(bit for name, bit in BITS.items() if self.flags[name])

    def read(self, address: int) -> int:
        address &= 0xFFFF
        if 0x2000 <= address < 0x8000:
            raise TouchesRegister
        return self.ram[address % 0x800] if address < 0x2000 else self.program[address - 0x8000]

    def write(self, address: int, value: int) -> None:
        address &= 0xFFFF
        if 0x2000 <= address < 0x8000:
            raise TouchesRegister
        if address < 0x2000:
            self.ram[address % 0x800] = value

    def read_word(self, address: int) -> int:
        return self.read(address) + 256 * self.read(address + 1)

    def push(self, value: int) -> None:
        self.ram[0x100 + self.sp] = value
        self.sp = (self.sp - 1) % 256

    def pop(self) -> int:
        self.sp = (self.sp + 1) % 256
        return self.ram[0x100 + self.sp]

    def set_nz(self, value: int) -> int:
        self.flags["N"], self.flags["Z"] = value >= 128, value == 0
        return value

    def locate(self, mode: str) -> tuple[int, bool]:
        """Address of the operand, and whether indexing crossed a page."""
        at = self.pc + 1
        if mode == "imm":
            return at & 0xFFFF, False
        if mode in ("zp", "zpx", "zpy"):
            return (self.read(at) + {"zp": 0, "zpx": self.x, "zpy": self.y}[mode]) % 256, False
        if mode == "inx":
            pointer = self.read(at) + self.x
            return self.read(pointer % 256) + 256 * self.read((pointer + 1) % 256), False
        if mode == "iny":
            pointer = self.read(at)
            base, index = self.read(pointer) + 256 * self.read((pointer + 1) % 256), self.y
        else:
            base, index = self.read_word(at), {"abs": 0, "abx": self.x, "aby": self.y}[mode]
        return (base + index) & 0xFFFF, base // 256 != (base + index) // 256

    def step(self) -> int:
        """Execute one documented instruction; returns its cycles."""
        mnemonic, mode = OPCODES[self.read(self.pc)]
        if mnemonic in BRANCHES:
            sign, flag = BRANCHES[mnemonic]
            offset = self.read(self.pc + 1)
            self.pc = (self.pc + 2) & 0xFFFF
            if self.flags[flag] != (sign == "+"):
                return 2
            before, self.pc = self.pc, (self.pc + offset - 256 * (offset > 127)) & 0xFFFF
            return 3 if before // 256 == self.pc // 256 else 5  # 4 on the console
        if mode in ("imp", "acc") or mnemonic in ("JMP", "JSR"):
            following = (self.pc + LENGTH[mode]) & 0xFFFF
            target = self.control(mnemonic, mode)
            self.pc = following if target is None else target & 0xFFFF
            return 5 if mode == "ind" else CYCLES.get(mnemonic, 2)
        address, crossed = self.locate(mode)
        self.pc = (self.pc + LENGTH.get(mode, 2)) & 0xFFFF
        if mnemonic in STORES:
            self.write(address, {"STA": self.a, "STX": self.x, "STY": self.y}[mnemonic])
            return MODE_CYCLES[mode] + (mode in ("abx", "aby", "iny"))
        if mnemonic in MODIFIES:
            self.write(address, self.modify(mnemonic, self.read(address)))
            return MODE_CYCLES[mode] + 2 + (mode == "abx") + crossed  # never the last on the console
        self.combine(mnemonic, self.read(address))
        return MODE_CYCLES[mode] + crossed

    def control(self, mnemonic: str, mode: str) -> int | None:
        """Instructions without an operand in memory, and jumps; returns where a jump goes."""
        flags = self.flags
        if mode == "acc":
            self.a = self.modify(mnemonic, self.a)
        elif mnemonic[:2] in ("CL", "SE"):
            flags[mnemonic[2]] = mnemonic[:2] == "SE"
        elif mnemonic in ("TSX", "TXS"):
            if mnemonic == "TXS":
                self.sp = self.x
            else:
                self.x = self.set_nz(self.sp)
        elif mnemonic[0] == "T":
            source, target = mnemonic[1].lower(), mnemonic[2].lower()
            setattr(self, target, self.set_nz(getattr(self, source)))
        elif mnemonic in ("INX", "INY", "DEX", "DEY"):
            register = mnemonic[2].lower()
            change = 1 if mnemonic[0] == "I" else -1
            setattr(self, register, self.set_nz((getattr(self, register) + change) % 256))
        elif mnemonic == "PHA":
            self.push(self.a)
        elif mnemonic == "PLA":
            self.a = self.set_nz(self.pop())
        elif mnemonic == "PHP":
            self.push(self.get_status())
        elif mnemonic == "PLP":
            self.set_status(self.pop())
        elif mnemonic in ("BRK", "JSR"):
            after = self.pc + 2
            self.push(after // 256 % 256)
            self.push(after % 256)
            if mnemonic == "JSR":
                return self.read_word(self.pc + 1)
            self.push(self.get_status() | 0x30)
            flags["I"] = True
            return self.read_word(0xFFFE)
        elif mnemonic == "RTI":
            self.set_status(self.pop())
            return self.pop() + 256 * self.pop()
        elif mnemonic == "RTS":
            return self.pop() + 256 * self.pop() + 1
        elif mnemonic == "JMP":
            address = self.read_word(self.pc + 1)
            if mode == "abs":
                return address
            return self.read(address) + 256 * self.read(address - address % 256 + (address + 1) % 256)
        else:
            assert mnemonic == "NOP"
        return None

    def modify(self, mnemonic: str, value: int) -> int:
        carry = self.flags["C"]
        if mnemonic in ("INC", "DEC"):
            return self.set_nz((value + (1 if mnemonic == "INC" else -1)) % 256)
        if mnemonic in ("ASL", "ROL"):
            self.flags["C"] = value >= 128
            return self.set_nz((2 * value + (carry and mnemonic == "ROL")) % 256)
        self.flags["C"] = value % 2 == 1
        return self.set_nz(value // 2 + 128 * (carry and mnemonic == "ROR"))

    def combine(self, mnemonic: str, value: int) -> None:
        flags = self.flags
        if mnemonic in ("LDA", "LDX", "LDY"):
            setattr(self, mnemonic[2].lower(), self.set_nz(value))
        elif mnemonic in ("CMP", "CPX", "CPY"):
            register = {"CMP": self.a, "CPX": self.x, "CPY": self.y}[mnemonic]
            flags["C"] = register >= value
            self.set_nz((register - value) % 256)
        elif mnemonic in ("ADC", "SBC"):
            added = value if mnemonic == "ADC" else 255 - value
            total = self.a + added + flags["C"]
            signed = (self.a ^ 128) - 128 + (added ^ 128) - 128 + flags["C"]
            flags["C"], flags["V"] = total > 255, not -128 <= signed <= 127
            self.a = self.set_nz(total % 256)
        elif mnemonic == "BIT":
            flags["N"], flags["V"], flags["Z"] = value >= 128, value // 64 % 2 == 1, value & self.a == 0
        else:
            self.a = self.set_nz({"AND": self.a & value, "ORA": self.a | value, "EOR": self.a ^ value}[mnemonic])
