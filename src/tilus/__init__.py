# SPDX-License-Identifier: Apache-2.0
"""A tile language for Hopper GPUs that also runs on a CPU, to learn how fast kernels work."""

import importlib

from tilus import utils
from tilus.autotune import autotune
from tilus.dtypes import (
    bfloat16,
    boolean,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tilus.errors import (
    ArgumentError,
    CompileError,
    DeviceError,
    LanguageError,
    SimulationError,
    TilusError,
)
from tilus.options import option
from tilus.script import Class, Script, watched

__all__ = [
    "ArgumentError",
    "Class",
    "CompileError",
    "DeviceError",
    "LanguageError",
    "Script",
    "SimulationError",
    "TilusError",
    "autotune",
    "bfloat16",
    "boolean",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "option",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "utils",
    "watched",
]


def __getattr__(name: str) -> object:
    """Import the kernels that users call when somebody asks for them: ``import tilus`` is quick."""
    if name == "kernels":
        return importlib.import_module("tilus.kernels")
    raise AttributeError(f"module 'tilus' has no attribute '{name}'")
