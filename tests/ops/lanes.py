# SPDX-License-Identifier: Apache-2.0
"""Runs the lines that one instruction wrote as CUDA, lane by lane, by the rules of the PTX ISA.

Written from the ISA's text and tables alone ("ldmatrix", "stmatrix", "Matrix Fragments for
mma.m16n8k16"), element by element: it shares nothing with the layouts it checks but the CUDA.
"""

from __future__ import annotations

import itertools
import re

import numpy as np

from tilus.emitter import emit
from tilus.ir import Instruction, Kernel, walk


def written_by(kernel: Kernel, op: str, nth: int = 0) -> list[str]:
    """Return the lines that the nth instruction ``op`` of a kernel wrote."""
    lines = [line.strip() for line in emit(kernel).splitlines()]
    begins = [i for i, line in enumerate(lines) if re.match(rf"// \S+:\d+  {op}$", line)]
    rest = lines[begins[nth] + 1 :]
    end = next(i for i, line in enumerate(rest) if line.startswith(("//", "__sync", "}")))
    return rest[:end]


def instruction(kernel: Kernel, op: str, nth: int = 0) -> Instruction:
    """Return the nth instruction ``op`` of a kernel."""
    statements = walk(kernel.function.body)
    found = [s for s in statements if isinstance(s, Instruction) and type(s).__name__ == op]
    return found[nth]


class Lanes:
    """``threads`` lanes with their registers, and one shared memory."""

    def __init__(self, threads: int, nbytes: int = 0, begin: int = 0) -> None:
        self.threads = threads
        self.memory = np.full(nbytes, 0xAA, np.uint8)
        self.registers: dict[str, np.ndarray] = {}
        self.names = {"smem": 0, "thread_number": begin + np.arange(threads)}
        self.accesses: list[tuple[str, np.ndarray]] = []

    def run(self, lines: list[str]) -> None:
        """Carry out lines: declarations, loops of one statement, calls."""
        loops: list[tuple[str, int]] = []
        for line in lines:
            if line.startswith("#pragma"):
                continue
            if loop := re.match(r"for \(int (\w+) = 0; \w+ < (\d+); \+\+\w+\)\s*(.*)", line):
                loops.append((loop[1], int(loop[2])))
                line = loop[3]
            if line:
                self._repeat(loops, line)
                loops = []

    def _repeat(self, loops: list[tuple[str, int]], line: str) -> None:
        for turn in itertools.product(*(range(count) for _, count in loops)):
            self.names |= dict(zip((name for name, _ in loops), turn, strict=True))
            self._statement(line)

    def _statement(self, line: str) -> None:
        if declared := re.fullmatch(r"(half_t|float|int|signed char) (\w+)\[(\d+)\];", line):
            if declared[2] not in self.registers:
                dtype = {"half_t": np.float16, "float": np.float32, "int": np.int32}
                shape = self.threads, int(declared[3])
                self.registers[declared[2]] = np.zeros(shape, dtype.get(declared[1], np.int8))
        elif const := re.fullmatch(r"const unsigned (\w+) = (.*);", line):
            self.names[const[1]] = self._value(const[2])
        elif copy := re.fullmatch(r"(\w+)\[(\w+)\] = (?:(\w+)\[(\w+)\]|0);", line):
            i = self.names[copy[2]]
            self.registers[copy[1]][:, i] = self.registers[copy[3]][:, i] if copy[3] else 0
        elif call := re.fullmatch(r"(\w+)\((.*)\);", line):
            self._call(call[1], call[2].split(", "))
        else:
            raise AssertionError(f"not understood: {line}")

    def _value(self, text: str) -> np.ndarray:
        text = text.replace("threadIdx.x", "thread_number").replace("/", "//")
        text = re.sub(r"\b(\d+)u\b", r"\1", text)
        return np.broadcast_to(eval(text, {}, dict(self.names)), self.threads)

    def _array(self, text: str) -> np.ndarray:
        """Return a view of the registers from ``name + number`` on."""
        name, _, start = text.partition(" + ")
        first = int(self._value(start)[0]) if start else 0
        return self.registers[name][:, first:]

    def _call(self, function: str, arguments: list[str]) -> None:
        if function.startswith("mma"):
            mma(*(self._array(text) for text in arguments))
            return
        registers, address = self._array(arguments[0]), self._value(arguments[1])
        self.accesses.append((function, address))
        kind, *form = function.split("_")
        if form[0] == "matrices":
            self._matrices(kind, int(form[1]), form[-1] == "trans", registers, address)
        else:
            self._plain(kind, int(form[0]), registers, address)

    def _plain(self, kind: str, nbytes: int, registers: np.ndarray, address: np.ndarray) -> None:
        count = nbytes // registers.itemsize
        for t, at in enumerate(address):
            assert at % nbytes == 0, f"{kind} of {nbytes} bytes at {at}"
            place = self.memory[at : at + nbytes].view(registers.dtype)
            if kind == "load":
                registers[t, :count] = place
            else:
                place[...] = registers[t, :count]

    def _matrices(
        self, kind: str, count: int, trans: bool, registers: np.ndarray, address: np.ndarray
    ) -> None:
        """PTX ISA, "ldmatrix": the threads 8i to 8i+7 of a warp name the rows of matrix i. Thread l
        gets elements 2 * (l % 4) and the next of row l / 4; with .trans of the transposed."""
        for warp in range(0, self.threads, 32):
            for i, lane in itertools.product(range(count), range(32)):
                for half in (0, 1):
                    row, column = lane // 4, 2 * (lane % 4) + half
                    if trans:
                        row, column = column, row
                    at = address[warp + 8 * i + row]
                    assert at % 16 == 0
                    place = self.memory[at + 2 * column : at + 2 * column + 2].view(registers.dtype)
                    if kind == "load":
                        registers[warp + lane, 2 * i + half] = place[0]
                    else:
                        place[0] = registers[warp + lane, 2 * i + half]


def mma(d: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": .f16, .f32."""
    for warp in range(0, len(d), 32):
        x, y, z = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
        for lane in range(32):
            group, inner = lane >> 2, lane % 4
            for i in range(8):
                row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
                column = inner * 2 + (i & 1) + (8 if i >= 4 else 0)
                x[row, column] = a[warp + lane, i]
            for i in range(4):
                y[inner * 2 + (i & 1) + (8 if i >= 2 else 0), group] = b[warp + lane, i]
            for i in range(4):
                z[group + (8 if i >= 2 else 0), inner * 2 + (i & 1)] = d[warp + lane, i]
        z += x @ y
        for lane in range(32):
            group, inner = lane >> 2, lane % 4
            for i in range(4):
                d[warp + lane, i] = z[group + (8 if i >= 2 else 0), inner * 2 + (i & 1)]


def wavefronts(nbytes: int, address: np.ndarray) -> int:
    """Return how many turns shared memory takes for one warp's access, of 4-byte words in 32 banks.

    Accesses of 8 bytes go by half warps, those of 16 by quarters, a matrix at a time.
    """
    lanes = max(1, nbytes // 4)
    turns = 0
    for part in address.reshape(lanes, -1):
        words = {int(at) // 4 + i for at in part for i in range(lanes)}
        turns += max(np.bincount([w % 32 for w in words]))
    return turns
