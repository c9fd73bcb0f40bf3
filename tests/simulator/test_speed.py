# SPDX-License-Identifier: Apache-2.0
"""What a run with all checks on may take: a process of its own, whose memory is its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import math, resource, time
from tests.examples.test_ladder import FULL, VERSIONS, compiler, execute, version

def tile(schedule):
    return math.prod(value for name, value in schedule.items() if name.startswith("block_"))

for name in VERSIONS:
    space = [dict(kernel.schedule) for kernel in version(name)().candidates()]
    for schedule in (FULL[name], min(space, key=tile)):
        kernel = compiler.lower(version(name)(**schedule), {"n_size": 256, "k_size": 256})
        start = time.process_time()
        execute(kernel, 256, 256, 256)
        seconds = time.process_time() - start
        assert seconds < 3, (name, schedule, seconds)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # KiB
"""


def test_256_cubed_of_every_version_takes_three_seconds_of_one_core_and_less_than_a_gigabyte():
    """With the tiles that measure best and with the smallest of the space."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=os.environ | threads | path, cwd=ROOT,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2**20
