# SPDX-License-Identifier: Apache-2.0
"""What happens in a step of :mod:`ladder.moments`, in sentences: the cause, then its effect.

A sentence about a role is written once for both numbers, ``{Who} {go|goes} on``, so that roles that
do the same at once share it. Backticks mark what is code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from ladder.moments import EXPECT, Act, Run, Step, pauses
from ring import FULL
from simulated import STAGE, bulk, reading
from tilus import timeline
from tilus.ir import BarrierState, Event

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PRONOUNS = {"Who": ("they", "it"), "their": ("their", "its")}


def tell(run: Run, step: Step) -> list[str]:
    """Return what happens in a step, a paragraph for each who does something."""
    if step is run.steps[0]:
        firsts = ((lane, _first(run, lane, step.time)) for lane in run.roles)
        return [*_opening(run), *_joined(firsts)]
    alone = len(step.acts) == 1
    told = [*_joined((a.lane, [*_act(run, a)]) for a in step.acts if alone or not a.begins)]
    return [*told, "The block ends."] if step is run.steps[-1] else told


def _joined(told: Iterable[tuple[str, list[str]]]) -> Iterator[str]:
    """Yield a paragraph for each run of lanes that do the same; a subject has a pronoun only right
    behind its name."""
    for sentences, same in groupby(told, key=lambda pair: pair[1]):
        lanes = [lane for lane, _ in same]
        before = ["", *sentences]
        said = (
            _said(text, lanes, last.startswith("{Who}"))
            for last, text in zip(before, sentences, strict=False)
        )
        if sentences:
            yield " ".join(said)


def _said(sentence: str, lanes: list[str], again: bool = False) -> str:
    """Put a subject, by name or ``again`` by its pronoun, and the forms of verbs into a text."""
    many = len(lanes) > 1 or lanes[0].startswith("warps")

    def chosen(match: re.Match[str]) -> str:
        if match[1] == "Who" and not again:
            return _list(lanes)
        plural, singular = PRONOUNS.get(match[1]) or match[1].split("|")
        return plural if many else singular

    text = re.sub(r"\{(.*?)\}", chosen, sentence)
    return text[:1].upper() + text[1:]


def _list(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _number(number: int) -> str:
    return NUMBERS[number] if number < len(NUMBERS) else str(number)


def _name(run: Run, event: Event) -> str:
    """Return the event's barrier as the pages name it."""
    return f"`{run.name(event.barrier or '')}`"


def lacks(state: BarrierState) -> str:
    """Say what the phase of a barrier still needs."""
    arrivals = f"{state.arrivals} arrival" + ("s" if state.arrivals != 1 else "")
    parts = [arrivals] if state.arrivals else []
    return _list([*parts, f"{state.bytes} bytes"] if state.bytes else parts or ["nothing"])


def _opening(run: Run) -> Iterator[str]:
    kinds = list(run.kinds.values())
    each = "a barrier" if len(kinds) == 1 else f"{_number(len(kinds))} barriers"
    depth = _number(run.depth).capitalize()
    yield f"The block begins. {depth} stages are empty, and each has {each}, {_list(kinds)}."


def _first(run: Run, lane: str, time: float) -> list[str]:
    event = run.current(lane, time)
    if event is None or event.kind != "wait" or not run.blocked(event):
        return []
    return ["{Who} {wait|waits} for " + _goal(run, event, time) + "."]


# ---- what engines do ----------------------------------------------------------------------------


def _act(run: Run, act: Act) -> Iterator[str]:
    if act.lane not in timeline.ENGINES:
        yield from _role(run, act)
    elif act.begins:
        (e,) = act.events
        yield f"The tensor cores begin the product of tile {e.tile}, from stage {e.stage}."
    elif act.events[0].kind == "copy":
        yield from _landing(run, act.events[0])
    elif act.events[0].kind == "store":
        yield from _left(run, act.events[0])
    else:
        yield from _product(run, act.events[0])


def _landing(run: Run, copy: Event) -> Iterator[str]:
    what = f"`{copy.what.replace('->', '→')}` of tile {copy.tile}"
    yield f"The copy {what} lands in stage {copy.stage}: {copy.amount:.0f} bytes."
    if copy.barrier:
        yield from _effect(run, copy, copy.end, "bytes")


def _product(run: Run, product: Event) -> Iterator[str]:
    whose = f" by {product.issuer}" if len(run.computers) > 1 else ""
    yield f"The product of tile {product.tile}{whose} has ended."
    waits = [e for e in run.events if e.what == "wait_group" and run.awaited(e) is product]
    yield _may_go([e.lane for e in waits if e.start < product.end])
    later = [e for e in run.products if e.tile == product.tile and e.end > product.end]
    if later:
        others = _list(dict.fromkeys(e.issuer or e.lane for e in later))
        yield f"Stage {product.stage} is still being read for {others}."
    else:
        yield f"Stage {product.stage} has been read, and stays taken until it is given back."


def _left(run: Run, store: Event) -> Iterator[str]:
    """Say that a bulk store has read the staging buffer, or that it is over."""
    done = "left the staging buffer" if store.reads else "arrived in C"
    yield f"The results of {store.issuer} have {done}."
    waits = [e for e in run.events if bulk(e) and run.awaited(e) is store]
    held = [e.lane for e in waits if e.start < store.end]
    if held:
        yield _may_go(held, "them")


def _effect(run: Run, event: Event, time: float, cause: str) -> Iterator[str]:
    """Say what a change at ``time`` did to the event's barrier, and who can go on."""
    label, phase, name = event.barrier or "", event.phase or 0, _name(run, event)
    if run.completed(label, phase) > time:
        changes = [s for s in run.states if (s.label, s.time, s.cause) == (label, time, cause)]
        yield f"{name} still lacks {lacks(changes[-1])}."
        return
    yield f"{name} has all that phase {phase} needs and goes to phase {phase + 1}."
    waits = [e for e in run.events if (e.kind, e.barrier, e.phase) == ("wait", label, phase)]
    yield _may_go([e.lane for e in waits if e.start < time])


def _may_go(lanes: list[str], what: str = "it") -> str:
    if not lanes:
        return f"Nobody waits for {what} yet."
    return _said(f"{{Who}}, which {{wait|waits}} for {what}, can go on.", lanes)


# ---- what roles do ------------------------------------------------------------------------------


def _role(run: Run, act: Act) -> Iterator[str]:
    if act.after:
        yield _passed(run, act.after)
    for event in act.events:
        if event.what == EXPECT:
            yield _load(run, event)
        elif event.what == "arrive" and event.barrier:
            yield from _arrival(run, event)
        elif event.what == "proxy_async":
            yield "Each thread fences what it has written, and the group meets."
        elif event.what == "shared_to_global":
            yield "One thread asks for the store."
    yield from _next(run, act)


def _passed(run: Run, wait: Event) -> str:
    """Say why a role goes on."""
    if wait.kind == "store":
        where = "staged {their} results" if wait.what == STAGE else "stored {their} part of C"
        return f"{{Who}} {{have|has}} {where}."
    if wait.what == "sync":
        return "All warps have met."
    if wait.barrier is None:
        return _passed_group(run, wait)
    if run.blocked(wait):
        return "{Who} {go|goes} on: " + f"tile {wait.tile} {_known(run, wait)}."
    passes = f"{{Who}} {{do|does}} not have to wait: {_name(run, wait)}"
    if wait.phase == -1:
        return f"{passes} is fresh, and the phase before its first counts as complete."
    return f"{passes} has already completed phase {wait.phase}."


def _known(run: Run, wait: Event) -> str:
    """Say what a role knows of a tile once it has passed a barrier."""
    return "is there" if run.name(wait.barrier or "").startswith(FULL) else "has been read"


def _away(wait: Event) -> str:
    """Say what results have done when a wait for them is over."""
    return "left the staging buffer" if reading(wait) else "arrived in C"


def _passed_group(run: Run, wait: Event) -> str:
    ended = run.awaited(wait)
    if bulk(wait):
        if run.blocked(wait):
            return f"{{Who}} {{go|goes}} on: {{their}} results have {_away(wait)}."
        return "{Who} {do|does} not have to wait: {their} staging buffer is free."
    if ended and run.blocked(wait):
        return "{Who} {go|goes} on: {their} " + f"product of tile {ended.tile} has ended."
    mine = [e for e in run.products if e.issuer == wait.lane and (e.issued or 0) <= wait.start]
    flying = [
        f"only {{their}} product of tile {e.tile} is in flight" for e in mine if e.end > wait.end
    ]
    return "{Who} {do|does} not have to wait: " + (flying or ["no product is in flight"])[0] + "."


def _load(run: Run, announced: Event) -> str:
    phase = (announced.barrier, announced.phase, "expect")
    (state,) = (s for s in run.states if (s.label, s.phase, s.cause) == phase)
    copies = _number(len([c for c in run.copies if c.tile == announced.tile]))
    more = (
        ": it is the first of the next tile of C" if run.begins_output(announced.tile or 0) else ""
    )
    return (
        f"{{Who}} {{announce|announces}} {state.bytes} bytes at {_name(run, announced)} and "
        f"{{ask|asks}} for the {copies} copies of tile {announced.tile} into stage "
        f"{announced.stage}{more}."
    )


def _arrival(run: Run, event: Event) -> Iterator[str]:
    states = [s for s in run.states if s.label == event.barrier and s.time <= event.start]
    last = [i for i, s in enumerate(states) if s.cause == "arrive"][-1]
    count = states[last - 1].arrivals - states[last].arrivals
    how = "by one thread" if count == 1 else f"with {count} threads"
    yield f"{{Who}} {{arrive|arrives}} at {_name(run, event)}, {how}."
    yield from _effect(run, event, event.start, "arrive")


def _next(run: Run, act: Act) -> Iterator[str]:
    """Say what a role turns to: a product, a wait, the store, or the end."""
    issued = [e.start for e in act.events]
    started = [e.tile for e in run.products if e.issuer == act.lane and e.issued in issued]
    goal = _goal(run, act.then, act.end) if act.then and _has_to_wait(run, act.then) else ""
    if started:
        its_own = goal == f"the product of tile {started[0]} to end"
        goal, more = ("", " and {wait|waits} for it") if its_own else (goal, "")
        yield f"{{Who}} {{start|starts}} the product of tile {started[0]}{more}."
    if goal:
        yield f"{{Who}} {{wait|waits}} for {goal}."
    elif act.then and act.then.kind == "store":
        what = "stage {their} results" if act.then.what == STAGE else "store {their} part of C"
        yield f"{{Who}} {{begin|begins}} to {what}."
    elif act.then is None and run.current(act.lane, run.end) in (act.after, *act.events):
        yield "{Who} {leave|leaves}."


def _has_to_wait(run: Run, event: Event) -> bool:
    return event.what == "sync" or (event.kind == "wait" and run.blocked(event))


def _goal(run: Run, wait: Event, time: float) -> str:
    """Name what a wait is for, with what it still lacks at ``time``."""
    if wait.what == "sync":
        return "all warps of the block to meet"
    if bulk(wait):
        return f"{{their}} results to {'leave the buffer' if reading(wait) else 'arrive in C'}"
    if wait.barrier is None:
        ended = run.awaited(wait)
        return f"the product of tile {ended.tile} to end" if ended else "nothing"
    state = timeline.at(run.states, time)[wait.barrier]
    return f"{_name(run, wait)}, phase {wait.phase}, which lacks {lacks(state)}"


# ---- what each is at ----------------------------------------------------------------------------


def doing(run: Run, lane: str, time: float) -> tuple[str, str]:
    """Return a lane's mood and what it is at: ``wait``, ``ready`` (what it waits for is there),
    ``run``, ``idle`` or ``done``."""
    if lane in timeline.ENGINES:
        return _engine(run, lane, time)
    event = run.current(lane, time)
    if event is None or event.end <= time:
        return ("run", "begins") if event is None else ("done", "has left")
    if not pauses(event, run) or event.kind == "store":
        stores = "stages its results" if event.what == STAGE else "stores its part of C"
        return "run", stores if event.kind == "store" else "runs on"
    if event.kind == "wait" and run.over(event) <= time:
        return "ready", _may_pass(run, event)
    return "wait", f"waits for {_goal(run, event, time)}".format(their="its")


def _may_pass(run: Run, wait: Event) -> str:
    if wait.barrier is None:
        done = f"its results have {_away(wait)}" if bulk(wait) else "the product has ended"
        return f"may go on: {done}" if run.blocked(wait) else "does not have to wait"
    why = "it is fresh" if wait.phase == -1 else f"phase {wait.phase} is over"
    return f"may pass {_name(run, wait)}: {why}"


def _engine(run: Run, lane: str, time: float) -> tuple[str, str]:
    mine = [e for e in run.events if e.lane == lane and (e.issued or 0) <= time < e.end]
    if not mine:
        return "idle", "nothing to do"
    if lane == timeline.ENGINES[0]:
        tiles = _list(f"{tile}" for tile in dict.fromkeys(e.tile for e in mine))
        copies = f"{_number(len(mine))} copies" if len(mine) > 1 else "one copy"
        return "run", f"{copies} under way, tile {tiles}"
    if lane == timeline.ENGINES[2]:
        return "run", _list(dict.fromkeys(_storing(e) for e in mine if e.start <= time))
    now, later = mine[0], f", then {_number(len(mine) - 1)} more" if len(mine) > 1 else ""
    whose = f" for {now.issuer}" if len(run.computers) > 1 else ""
    return "run", f"multiply tile {now.tile}{whose}{later}"


def _storing(store: Event) -> str:
    return f"{'read' if store.reads else 'write to C'} the results of {store.issuer}"
