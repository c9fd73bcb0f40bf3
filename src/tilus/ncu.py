# SPDX-License-Identifier: Apache-2.0
"""What Nsight Compute says of a launch: which metrics to ask for, and its CSV read back.

The names of metrics differ from chip to chip and from release to release, so each quantity has
candidates, and those are asked for that the tool itself lists.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilus.errors import DeviceError

COUNTERS: Mapping[str, tuple[str, ...]] = {
    "duration_ns": ("gpu__time_duration.sum",),
    "sm_hz": ("sm__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second"),
    "tensor_pipe_pct": (
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__pipe_tensor_op_gmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed",
        "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_elapsed",
        "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_elapsed",
    ),
    "dram_read_bytes": ("dram__bytes_read.sum", "dram__bytes_op_read.sum"),
    "dram_write_bytes": ("dram__bytes_write.sum", "dram__bytes_op_write.sum"),
    "l2_bytes": ("lts__t_bytes.sum",),
    "l2_hit_pct": ("lts__t_sector_hit_rate.pct",),
}
"""Quantity -> metrics that tell it, best first. Of the tensor pipe all are asked for."""
LAUNCH: Mapping[str, str] = {
    "threads": "launch__block_size",
    "registers": "launch__registers_per_thread",
    "shared_bytes": "launch__shared_mem_per_block_dynamic",
    "limit_blocks": "launch__occupancy_limit_blocks",
    "limit_registers": "launch__occupancy_limit_registers",
    "limit_shared": "launch__occupancy_limit_shared_mem",
    "limit_warps": "launch__occupancy_limit_warps",
}
"""Facts of the launch, which every release knows."""


@dataclass(frozen=True)
class Launch:
    """One launch as it was profiled: the kernel's name, and its metrics by their own names."""

    kernel: str
    metrics: Mapping[str, float]

    def quantities(self) -> dict[str, float]:
        """Return what COUNTERS and LAUNCH name, and how many blocks an SM holds."""
        found = {
            quantity: self.metrics[metric]
            for quantity, candidates in COUNTERS.items()
            if (metric := next((c for c in candidates if c in self.metrics), None))
        }
        found |= {q: self.metrics[metric] for q, metric in LAUNCH.items() if metric in self.metrics}
        limits = [found.pop(q) for q in LAUNCH if q.startswith("limit_") and q in found]
        return found | ({"blocks_per_sm": min(limits)} if limits else {})


def metrics(listed: str) -> list[str]:
    """Return the metrics to ask for, given what ``ncu --query-metrics`` prints.

    Raises :class:`DeviceError` where a quantity has none.
    """
    bases = set(re.findall(r"^(\w+)", listed, re.MULTILINE))
    wanted = []
    for quantity, candidates in COUNTERS.items():
        there = [c for c in candidates if c.partition(".")[0] in bases]
        if not there:
            tried = ", ".join(candidates)
            raise DeviceError(f"ncu lists no metric for {quantity}\nfound: none of {tried}")
        wanted += there if quantity == "tensor_pipe_pct" else there[:1]
    return [*wanted, *LAUNCH.values()]


def parse(lines: Iterable[str]) -> list[Launch]:
    """Return the launches in what ``ncu --csv --page raw --print-units base`` prints.

    Raises :class:`DeviceError` where there are none, as where counters cannot be read.
    """
    kept = list(lines)
    rows = csv.reader(line for line in kept if line.startswith('"'))
    head, units = next(rows, None), next(rows, None)
    launches = [_launch(dict(zip(head, row, strict=True))) for row in rows] if head else []
    if not launches or units is None:
        said = " | ".join(line.strip() for line in kept if line.startswith("==")) or "nothing"
        raise DeviceError(f"ncu profiled no launch\nfound: {said}")
    return launches


def profile(account: Mapping[str, Any], launches: Sequence[Launch], tool: str) -> dict[str, Any]:
    """Return a profile for people's tables: ``account`` says who launched, in order.

    Raises :class:`DeviceError` where the launches are not one for each of its contenders.
    """
    who = account["launches"]
    if len(who) != len(launches):
        found = ", ".join(launch.kernel for launch in launches)
        raise DeviceError(f"ncu must see one launch of each of {len(who)}\nfound: {found}")
    versions = {
        entry["version"]: {
            "schedule": entry["schedule"],
            "kernel": launch.kernel,
            **launch.quantities(),
            "metrics": dict(launch.metrics),
        }
        for entry, launch in zip(who, launches, strict=True)
    }
    return {**account, "launches": versions, "profiler": tool}


def _launch(row: Mapping[str, str]) -> Launch:
    numbers = {name: text.replace(",", "") for name, text in row.items() if "__" in name}
    known = {name: float(text) for name, text in numbers.items() if _is_number(text)}
    return Launch(row["Kernel Name"], known)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d*)?([eE][-+]?\d+)?", text) is not None
