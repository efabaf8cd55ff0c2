"""Tiny cartridges in machine code, for what Super Mario Bros never does."""

from __future__ import annotations

TILE_BYTES = 8192


def cartridge_file(code: bytes, *, nmi: int = 0, header: bytes = bytes(9)) -> bytes:
    """An iNES file of 32 KiB whose program begins at $8000 with `code`; its tiles are empty.

    nmi: offset in `code` of the routine that each vertical blank calls; it is only called once the code turns it on.
    header: bytes 7 to 15.
    """
    program = bytearray(32768)
    program[: len(code)] = code
    for vector, offset in ((0x7FFA, nmi), (0x7FFC, 0), (0x7FFE, 0)):
        program[vector : vector + 2] = (0x8000 + offset).to_bytes(2, "little")
    return bytes([*b"NES\x1a", 2, 1, 1]) + header + bytes(program) + bytes(TILE_BYTES)
