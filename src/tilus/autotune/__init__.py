# SPDX-License-Identifier: Apache-2.0
"""Candidates in, the best correct schedule out, the result kept."""

from tilus.autotune.space import autotune, candidates

__all__ = ["autotune", "candidates"]
