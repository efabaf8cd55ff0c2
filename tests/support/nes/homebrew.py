"""Tiny cartridges in machine code, for what Super Mario Bros never does."""

from __future__ import annotations

TILE_BYTES = 8192


def cartridge_file(code: bytes) -> bytes:
    """An iNES file of 32 KiB whose program begins at $8000 with `code`; its tiles are empty."""
    program = bytearray(32768)
    program[: len(code)] = code
    for vector in (0x7FFA, 0x7FFC, 0x7FFE):  # vertical blank, reset, interrupt
        program[vector : vector + 2] = (0x8000).to_bytes(2, "little")
    return bytes([*b"NES\x1a", 2, 1, 1]) + bytes(9) + bytes(program) + bytes(TILE_BYTES)
