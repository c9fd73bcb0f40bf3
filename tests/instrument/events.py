# SPDX-License-Identifier: Apache-2.0
"""Events of a GPU and of the simulator, made comparable."""

from dataclasses import replace

from tilus import timeline
from tilus.simulator.engines import LANES

SIMULATED_LANES = {timeline.SEEN[engine]: LANES[engine] for engine in LANES}
NOTHING_TO_DO = ("global_view", "shared_tensor")
"""What the simulator records and no code is made for."""


def coded(events):
    """Return the simulator's events for which there is code."""
    return [e for e in events if e.what not in NOTHING_TO_DO]


def told(events):
    """Return what events say besides their times, lane by lane."""
    lanes = {}
    for event in events:
        name = SIMULATED_LANES.get(event.lane, event.lane)
        same = replace(event, lane=name, start=0, end=0, issued=None)
        lanes.setdefault(name, []).append(same)
    engines = set(SIMULATED_LANES.values()) & set(lanes)
    return lanes | {name: sorted(lanes[name], key=repr) for name in engines}
