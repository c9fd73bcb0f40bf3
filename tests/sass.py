# SPDX-License-Identifier: Apache-2.0
"""What the machine code of a matmul kernel must and must not contain."""

from __future__ import annotations

import re
from collections import Counter

from tilus import disasm


def opcodes(code: bytes) -> Counter[str]:
    """Count a cubin's instructions by opcode, without modifiers: HGMMA, UTMALDG, LDL, ..."""
    line = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T\d]+\s+)?([A-Z][A-Z0-9]*)")
    return Counter(line.findall(disasm.sass(code)))


def stack(code: bytes) -> int:
    """Return the largest stack frame of a cubin's functions in bytes."""
    return max(int(size) for size in re.findall(r"STACK:(\d+)", disasm.resources(code)))


def complaints(code: bytes) -> list[str]:
    """Say what keeps a cubin from being a matmul with tensor cores, TMA and no local memory."""
    counts = opcodes(code)
    found = [f"no {opcode}" for opcode in ("HGMMA", "UTMALDG") if not counts[opcode]]
    found += [f"{counts[opcode]} {opcode}" for opcode in ("LDL", "STL") if counts[opcode]]
    return found + ([f"STACK {size}"] if (size := stack(code)) else [])


def loop(code: bytes, inside: str) -> str:
    """Return the text of the smallest loop, which ends with a branch on a condition, that has
    ``inside`` in it."""
    text = disasm.sass(code)
    begins = {at[1]: at.start() for at in re.finditer(r"^(\.L_x_\d+):", text, re.M)}
    branches = re.finditer(r"@!?P\d BRA `\((\.L_x_\d+)\)", text)
    loops = [text[begins[b[1]] : b.end()] for b in branches if begins[b[1]] < b.start()]
    return min((body for body in loops if inside in body), key=len)
