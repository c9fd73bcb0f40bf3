# SPDX-License-Identifier: Apache-2.0
"""A valid record to spoil."""

KERNEL = "examples/hopper_matmul/matmul_v3.py"
SHA = "0" * 64
SCHEDULE = {"num_stages": 4, "block_m": 128, "block_n": 128, "block_k": 64}


def row(version, latency_ms, vs_cublas, **fields):
    """Return a measurement at 8192 cubed, in bursts."""
    schedule = None if version.startswith("cublas") else SCHEDULE
    return {
        "version": version,
        **dict.fromkeys("mnk", 8192),
        "dtype": "float16",
        "acc_dtype": "float32",
        "regime": "burst",
        "process": 0,
        "latency_ms": latency_ms,
        "vs_cublas": vs_cublas,
        "schedule": schedule,
        "verified": True,
        **fields,
    }


def sample():
    """Return the JSON of a valid record, made anew."""
    environment = {
        "date": "2026-11-30T12:00:00Z",
        "device": "cuda",
        "gpu": "NVIDIA H200",
        "form": "SXM",
        "compute_capability": "9.0",
        "sms": 132,
        "power_limit_w": 700.0,
        "driver": "580.159.04",
        "nvrtc": "13.0.88",
        "cublas": {"cublas": {"library": "torch 2.11.0", "version": "13.0.2"}},
        "python": "3.12.3",
        "host": "Linux x86_64, 16 CPUs",
    }
    generated = [{"schedule": SCHEDULE, "arguments": {"n_size": 8192}, "sha256": SHA}]
    kernel = {"file": KERNEL, "class": "MatmulWGMMAV3", "sha256": SHA, "generated": generated}
    protocol = {"idle_s": 1.0, "launches": 30, "rounds": 3}
    return {
        "schema": 2,
        "environment": environment,
        "method": {"inputs": "normal", "timer": "events", "burst": protocol, "sustained": {}},
        "sources": {
            "kernels": {"v3": kernel},
            "measuring": {"src/tilus/bench.py": SHA},
        },
        "measurements": [
            row("cublas", [1.4, 1.5, 1.6], 1.0),
            row("v3", [2.0, 2.0, 1.6], 0.75),
        ],
    }
