# SPDX-License-Identifier: Apache-2.0
"""What a run with all checks on may take: a process of its own, whose memory is its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import resource, time
from tests.examples.test_ladder import FULL, VERSIONS, compiler, execute, version
for name in VERSIONS:
    kernel = compiler.lower(version(name)(**FULL[name]), {"n_size": 256, "k_size": 256})
    start = time.process_time()
    execute(kernel, 256, 256, 256)
    seconds = time.process_time() - start
    assert seconds < 3, (name, seconds)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # KiB
"""


def test_256_cubed_of_every_version_takes_three_seconds_of_one_core_and_less_than_a_gigabyte():
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=os.environ | threads | path, cwd=ROOT,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2**20
