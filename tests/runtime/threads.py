# SPDX-License-Identifier: Apache-2.0
"""Several threads at the same time."""

import threading


def together(*works):
    """Carry out each in a thread of its own; return when all have ended."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
