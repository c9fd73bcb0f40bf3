# SPDX-License-Identifier: Apache-2.0
"""From a kernel to CUDA C++ for NVRTC: readable text without a single include.

Each statement carries its place in the kernel's source as a comment. Instructions write themselves
through the :class:`Emitter`, which implements :class:`tilus.ir.Emitter`.
"""

from tilus.emitter.device import FLOOR
from tilus.emitter.spelling import RESERVED, identifier
from tilus.emitter.statements import Emitter
from tilus.ir import Kernel

__all__ = ["FLOOR", "RESERVED", "Emitter", "emit", "identifier"]


def emit(kernel: Kernel) -> str:
    """Return the CUDA C++ source of ``kernel``; its entry point has the function's name."""
    return Emitter(kernel).source()
