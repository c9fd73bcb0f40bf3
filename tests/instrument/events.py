# SPDX-License-Identifier: Apache-2.0
"""Events of a GPU and of the simulator, made comparable."""

from dataclasses import replace

from tilus import timeline
from tilus.simulator.engines import LANES

SIMULATED_LANES = {timeline.SEEN[engine]: LANES[engine] for engine in LANES}
NOTHING_TO_DO = ("global_view", "shared_tensor")
"""What the simulator records and no code is made for."""


def coded(events):
    """Return the simulator's events that a GPU has too.

    There is code for them; and of a bulk store threads see one end, of reading or of writing.
    """
    return [e for e in events if e.what not in NOTHING_TO_DO and not _written(e)]


def _written(event):
    """Return whether an event is what a bulk store does after it has read shared memory."""
    return event.lane == LANES["store"] and not event.reads


def told(events):
    """Return what events say besides their times, lane by lane."""
    lanes = {}
    for event in events:
        name = SIMULATED_LANES.get(event.lane, event.lane)
        same = replace(event, lane=name, start=0, end=0, issued=None)
        lanes.setdefault(name, []).append(same)
    engines = set(SIMULATED_LANES.values()) & set(lanes)
    return lanes | {name: sorted(lanes[name], key=repr) for name in engines}
