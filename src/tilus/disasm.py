# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's disassemblers, wherever they are installed: what a cubin really contains."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from tilus.errors import DeviceError


def find_tool(name: str) -> Path | None:
    """Return the path of ``nvdisasm`` or ``cuobjdump``: pip's package first, then PATH."""
    packaged = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin" / name
    on_path = shutil.which(name)
    if packaged.is_file():
        return packaged
    return Path(on_path) if on_path else None


@functools.lru_cache(maxsize=16)
def sass(code: bytes) -> str:
    """Return the machine instructions of a cubin as text, with labels; needs ``nvdisasm``.

    The last ones are remembered: the tool takes half a second to start.
    """
    return _run("nvdisasm", ["-c"], code)


def resources(code: bytes) -> str:
    """Return ``cuobjdump``'s resource usage of a cubin: a line with REG, STACK, SHARED, ... .

    Its LOCAL is 0 also for kernels full of local memory; look at STACK and at the instructions.
    """
    return _run("cuobjdump", ["-res-usage"], code)


def _run(name: str, flags: list[str], code: bytes) -> str:
    tool = find_tool(name)
    if tool is None:
        raise DeviceError(f"{name} must be installed. Mend: pip install nvidia-cuda-{name}")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        done = subprocess.run([tool, *flags, file.name], capture_output=True, text=True)
    if done.returncode:
        raise DeviceError(f"{name} failed on {len(code)} bytes: {done.stderr.strip()}")
    return done.stdout
