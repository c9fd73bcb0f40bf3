# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ text in, machine code for Hopper out. Needs neither a GPU nor a driver.

NVRTC is spoken to through ``cuda.bindings``: ``cuda.core`` hands out no PTX without a driver, and
takes three times as long to import. What ptxas says about a kernel is judged here, and judged
again when the code comes from the cache.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilus.errors import CompileError, DeviceError
from tilus.options import option
from tilus.store import open_store

#: No GPU is asked for its target: wgmma and setmaxnreg, which we generate, exist on this one alone.
TARGET = "sm_90a"
#: NVRTC has a cache of its own where there is a driver; what comes from there has no ptxas log.
#: Generated code has unused variables (177): not every loop needs its index.
#: It names no texture and nothing of the runtime library either: without their declarations the
#: same code is made 10 to 20 ms sooner.
FLAGS = (
    f"--gpu-architecture={TARGET}",
    "--minimal",
    "--std=c++17",
    "--ptxas-options=-v",
    "--no-cache",
    "--diag-suppress=177",
)

INSTALL_NVRTC = 'pip install "nvidia-cuda-nvrtc==13.0.*"'
INSTALL_CUDA_PYTHON = 'pip install "cuda-bindings==13.*" "cuda-core>=1.2,<2"'

#: Words of ptxas' notes that mean: this is not the kernel its author wrote. The numbers of the
#: notes (C7507, C7510, C7519, ...) move from version to version and are not looked at.
REFUSED = {
    "serialized": "WGMMA instructions wait for each other, and the tensor core idles",
    "injected": "a WGMMA fence or wait was missing where registers are touched",
    "ignored": "setmaxnreg has no effect, so thread groups lack the registers they ask for",
    "performance loss": "something costs speed that the kernel does not say",
}


@dataclass(frozen=True)
class Cubin:
    """Machine code of one kernel, with what the compiler said about it.

    ``registers`` a thread at entry; ``shared_bytes`` of static shared memory a block; ``nvrtc`` the
    compiler's full version.
    """

    code: bytes
    ptx: str
    log: str
    registers: int
    shared_bytes: int
    nvrtc: str


@dataclass(frozen=True)
class _Output:
    """What one run of NVRTC left behind; ``code`` is empty if it failed."""

    code: bytes
    ptx: str
    log: str


def compile(source: str, *, name: str, strict: bool = True) -> Cubin:
    """Compile CUDA C++ ``source`` for sm_90a, or take the result of an earlier run from the cache.

    Raise CompileError, naming the kernel ``name``, if NVRTC fails or if the code serialises WGMMA,
    ignores setmaxnreg, spills registers or uses a stack, which are let pass unless ``strict``;
    DeviceError if NVRTC is missing. Many threads and processes may call it at once.
    """
    version = nvrtc_version()
    key = hashlib.sha256("\0".join((source, version, *FLAGS)).encode()).hexdigest()
    store = open_store(option.current_cache_dir / "cubin")
    output = _decode(store.get(key))
    if output is None:
        output = _run(source, FLAGS)
        if not output.code:
            raise CompileError(_failure(name, output))
        store.put(key, _encode(output))
    return _judge(name, output, version) if strict else _cubin(output, version)


@functools.cache
def nvrtc_version() -> str:
    """Return NVRTC's full version, such as ``13.0.88``; raise DeviceError if it is missing."""
    ptx = _run("", FLAGS[:2]).ptx  # nvrtcVersion() lacks the last number, all PTX carries it
    found = re.search(r"release [\d.]+, V([\d.]+)", ptx)
    if found is None:
        raise DeviceError(f"NVRTC names no version in the PTX it makes. Try: {INSTALL_NVRTC}")
    return found[1]


def _run(source: str, flags: tuple[str, ...]) -> _Output:
    nvrtc = _library()
    options = [flag.encode() for flag in flags]
    # Messages carry this file name; it is constant, so that equal input gives equal output.
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, None, None))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        ptx = _read(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
        code = _read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program) if not status else b""
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return _Output(code, _text(ptx), _text(log) or status.name)


def _library() -> Any:
    """Import NVRTC's binding, and make sure that the library behind it loads."""
    try:
        from cuda.bindings import nvrtc  # noqa: PLC0415
    except ImportError as error:
        raise _missing(error, "cuda-bindings 13", INSTALL_CUDA_PYTHON) from None
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:  # cuda.pathfinder's DynamicLibNotFoundError is one
        raise _missing(error, "NVRTC 13.0, the CUDA compiler library", INSTALL_NVRTC) from None
    return nvrtc


def _missing(error: Exception, needed: str, command: str) -> DeviceError:
    found = str(error).partition("\n")[0]
    return DeviceError("no CUDA compiler", found, needed, command)


def _checked(result: tuple[Any, Any]) -> Any:
    status, value = result
    if status:
        raise CompileError(f"NVRTC: {status.name}")
    return value


def _read(size: Callable[[Any], tuple[Any, int]], fill: Callable[..., Any], program: Any) -> bytes:
    status, count = size(program)
    buffer = bytearray(0 if status else count)
    if buffer:
        fill(program, buffer)
    return bytes(buffer)


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace").rstrip("\0\n")


def _judge(name: str, output: _Output, version: str) -> Cubin:
    """Refuse what ptxas' log shows to be slow or wrong; return the rest with its resources."""
    _refuse_notes(name, output)
    _refuse_local_memory(name, output)
    return _cubin(output, version)


def _cubin(output: _Output, version: str) -> Cubin:
    """Return the code with its resources."""
    registers = [int(count) for count in re.findall(r"Used (\d+) registers", output.log)]
    shared = [int(count) for count in re.findall(r"(\d+) bytes smem", output.log)]
    used, static = max(registers, default=0), max(shared, default=0)
    return Cubin(output.code, output.ptx, output.log, used, static, version)


def _refuse_notes(name: str, output: _Output) -> None:
    notes = [line for line in output.log.splitlines() if line.startswith("ptxas")]
    said = [(word, note) for word in REFUSED for note in notes if _says(note, word)]
    if said:
        word = said[0][0]
        quotes = dict.fromkeys(_quote(note, output.ptx) for _, note in said)
        lines = "".join(f"\n    {quote}" for quote in list(quotes)[:5])
        raise CompileError(f"{name}: ptxas says '{word}': {REFUSED[word]}.{lines}")


def _says(note: str, word: str) -> bool:
    # Names go first: a kernel may be called what it likes.
    text = re.sub(r"'[^']*'|properties for \S+", "", note)
    return re.search(rf"\b{word}\b", text, re.IGNORECASE) is not None


def _refuse_local_memory(name: str, output: _Output) -> None:
    log, prints = output.log, "vprintf" in output.ptx  # which takes its arguments on the stack
    sizes = r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    frames = re.findall(sizes, log)
    if not frames:
        raise CompileError(f"{name}: ptxas' log must tell the stack frame and spills, got:\n{log}")
    for stack, stores, loads in frames:
        if (stores, loads) != ("0", "0"):
            found = f"{stores} bytes of spill stores and {loads} of spill loads"
            remedy = "Take smaller tiles, more threads or a larger register budget."
        elif stack != "0" and not prints:
            found = f"{stack} bytes of stack"
            remedy = "Index register tensors by constants only (unrolled loops)."
        else:
            continue
        raise CompileError(f"{name}: values must stay in registers, got {found}. {remedy}")


def _failure(name: str, output: _Output) -> str:
    lines = [_quote(line, output.ptx) for line in output.log.splitlines() if line.strip()]
    log = "\n".join(f"    {line}" for line in lines)
    return f"{name}: NVRTC refused the generated CUDA:\n{log}"


def _quote(note: str, ptx: str) -> str:
    """Add the line of PTX that a note of ptxas names; lines of CUDA NVRTC quotes itself."""
    found = re.match(r"ptxas.*\bline (\d+)\b", note)
    lines = ptx.splitlines()
    if found is None or not 0 < int(found[1]) <= len(lines):
        return note
    return f"{note}\n        PTX {found[1]}: {lines[int(found[1]) - 1].strip()}"


def _encode(output: _Output) -> bytes:
    return json.dumps({"log": output.log, "ptx": output.ptx}).encode() + b"\n" + output.code


def _decode(entry: bytes | None) -> _Output | None:
    if entry is None:
        return None
    head, _, code = entry.partition(b"\n")
    return _Output(code=code, **json.loads(head))
