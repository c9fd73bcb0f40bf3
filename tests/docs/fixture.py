# SPDX-License-Identifier: Apache-2.0
"""A made-up record, in the form of a real one, for tests of the pages. It measures nothing."""

from __future__ import annotations

from typing import Any

from tilus.records import SCHEMA_VERSION, Record, ratio

NOTHING = "0" * 64
SCHEDULE = {"num_stages": 4, "block_m": 128, "block_n": 128, "block_k": 64}
SIZES = ((8192, 8192, 8192, 2.0), (4096, 4096, 4096, 0.25), (1000, 904, 520, 0.0078125))


def environment() -> dict[str, Any]:
    """Return a machine that does not exist."""
    absent = dict.fromkeys(
        ("form", "compute_capability", "sms", "power_limit_w", "driver", "nvrtc")
    )
    names = {"device": "cuda", "gpu": "FIXTURE GPU", "python": "0", "host": "fixture", "cublas": {}}
    return {"date": "1999-12-31T00:00:00Z", **absent, **names}


def rows() -> list[dict[str, Any]]:
    """Return measurements of V3 that takes 1.25 times as long as cuBLAS, in three processes."""
    made = []
    for m, n, k, ms in SIZES:
        for regime in ("burst", "sustained"):
            for process in range(3):
                shared = {"m": m, "n": n, "k": k, "regime": regime, "process": process}
                shared |= {"dtype": "float16", "acc_dtype": "float32", "verified": True}
                base = [ms, ms * 1.01, ms * 0.99]
                own = [1.25 * x for x in base]
                made.append(shared | _row("v3", own, base, SCHEDULE))
                made.append(shared | _row("cublas", base, base, None))
    return made


def _row(version: str, own: list[float], base: list[float], schedule: Any) -> dict[str, Any]:
    timed = {"latency_ms": own, "vs_cublas": ratio(base, own)}
    return {"version": version, "schedule": schedule, **timed}


def record() -> Record:
    """Return the record; its hashes match no kernel."""
    kernel = {"file": "examples/hopper_matmul/matmul_v3.py", "class": "MatmulWGMMAV3"}
    generated = {
        "sha256": NOTHING,
        "schedule": SCHEDULE,
        "arguments": {"n_size": 128, "k_size": 128},
    }
    return Record(
        {
            "schema": SCHEMA_VERSION,
            "environment": environment(),
            "method": {"inputs": "none", "timer": "none", "burst": {}, "sustained": {}},
            "sources": {
                "kernels": {"v3": kernel | {"sha256": NOTHING, "generated": [generated]}},
                "measuring": {"src/tilus/verify.py": NOTHING},
            },
            "measurements": rows(),
        }
    )
