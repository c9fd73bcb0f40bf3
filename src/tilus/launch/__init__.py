# SPDX-License-Identifier: Apache-2.0
"""From a call ``kernel(m, n, k, a, b, c)`` to a launch: bind, check, compile once, run."""

from typing import TYPE_CHECKING

from tilus.later import exports

if TYPE_CHECKING:
    from tilus.launch.arguments import Call, bind
    from tilus.launch.backends import Cuda, Prepared, Program, Run, Simulator, backend
    from tilus.launch.known import Known
    from tilus.launch.launcher import Launcher

__all__ = [
    "Call",
    "Cuda",
    "Known",
    "Launcher",
    "Prepared",
    "Program",
    "Run",
    "Simulator",
    "backend",
    "bind",
]

BACKENDS = ("Cuda", "Prepared", "Program", "Run", "Simulator", "backend")

__getattr__ = exports(
    __name__,
    {
        **dict.fromkeys(("Call", "bind"), "tilus.launch.arguments"),
        **dict.fromkeys(BACKENDS, "tilus.launch.backends"),
        "Known": "tilus.launch.known",
        "Launcher": "tilus.launch.launcher",
    },
)
