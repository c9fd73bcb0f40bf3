# SPDX-License-Identifier: Apache-2.0
"""Kernels for users: call them as functions, and they choose schedules by themselves."""

from tilus.kernels.matmul import Matmul, Ran, matmul
from tilus.kernels.schedules import Schedule

__all__ = ["Matmul", "Ran", "Schedule", "matmul"]
