# SPDX-License-Identifier: Apache-2.0
"""Builds of a kernel that observe themselves on the GPU, and what the host makes of what they say.

A watchdog's build reports a wait that does not end, then traps. A tracing build records what each
role did when. Both are off by default, and then not a byte of the generated CUDA differs.
"""

from tilus.instrument.emitter import Instrumented
from tilus.instrument.record import Clock, Recorded, recorded
from tilus.instrument.sites import Site
from tilus.instrument.watchdog import Hang, hangs

__all__ = ["Clock", "Hang", "Instrumented", "Recorded", "Site", "hangs", "recorded"]
