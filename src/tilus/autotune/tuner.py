# SPDX-License-Identifier: Apache-2.0
"""Choose a schedule for a call: from the disk if it was measured before, else by measuring."""

from __future__ import annotations

import hashlib
import json
import linecache
from collections.abc import Callable, Mapping
from typing import Any

from tilus import compiler
from tilus.autotune.judge import judge
from tilus.autotune.session import CudaRig, Judge, Rig, Session, Tuning
from tilus.autotune.space import Schedule, candidates
from tilus.emitter import emit
from tilus.errors import LanguageError
from tilus.fingerprint import cuda_hash, package_hash, program_hash
from tilus.frontend import kernel_function
from tilus.launch import Call
from tilus.options import option
from tilus.store import open_store


class Tuner:
    """Chooses among the schedules of the script ``cls`` that have the values ``given``.

    ``last`` tells how the last choice was made; None before the first.
    """

    def __init__(
        self,
        cls: Any,
        given: Mapping[str, Any],
        rig: Callable[[str], Rig] = CudaRig,
        judge: Judge = judge,
    ) -> None:
        self._cls, self._given, self._rig, self._judge = cls, dict(given), rig, judge
        self.last: Tuning | None = None

    def choose(self, call: Call, device: str) -> Schedule:
        """Return the fastest right schedule for a call on ``"cuda:N"``; the arrays stay untouched.

        Where nothing can be timed, on ``"sim"``, whose cycles are a model, and for empty arrays, it
        is the first schedule that the hardware can run. Raises :class:`ArgumentError` where the
        arrays do not fit, :class:`LanguageError` with every reason where no schedule is left.
        """
        # rich takes longer to import than all of tilus, and most programs tune nothing.
        from tilus.autotune.progress import Show  # noqa: PLC0415

        schedules, show = candidates(self._cls, self._given), Show(self._cls.__name__)
        session = Session(self._cls, schedules, call, show, self._judge)
        if device == "sim" or any(0 in array.shape for array in call.arrays.values()):
            self.last = session.first()
        else:
            self.last = self._remembered(session, call, self._rig(device))
        for line in self.last.lines():
            show.say(f"{self._cls.__name__}: {line}")
        return self.last.schedule

    def _remembered(self, session: Session, call: Call, rig: Rig) -> Tuning:
        """Take a stored tuning if it still holds; else tune, and store what comes out."""
        store = open_store(option.current_cache_dir / "tuning")
        key = self._key(call, rig)
        stored = self._recall(store.get(key), call)
        if stored is not None:
            return stored
        tuning = session.measure(rig)
        store.put(key, self._encode(tuning, call))
        return tuning

    def _key(self, call: Call, rig: Rig) -> str:
        """Return the hash of all that a result depends on."""
        file = kernel_function(self._cls).__code__.co_filename
        arrays = {n: [a.shape, a.strides, str(a.dtype)] for n, a in call.arrays.items()}
        parts = {
            "script": self._cls.__qualname__,
            "program": program_hash("".join(linecache.getlines(file))),
            "package": package_hash(),
            "space": repr((self._cls.autotune_space, self._given)),
            "arguments": repr([call.constants, call.scalars, arrays]),
            "device": rig.facts(),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _encode(self, tuning: Tuning, call: Call) -> bytes:
        entry = {
            "schedule": tuning.schedule,
            "total": tuning.total,
            "compiled": tuning.compiled,
            "aside": dict(tuning.aside),
            "ranking": tuning.ranking,
            "seconds": tuning.seconds,
            "cuda": self._cuda(tuning.schedule, call),
        }
        return json.dumps(entry).encode()

    def _recall(self, data: bytes | None, call: Call) -> Tuning | None:
        """Return a stored tuning, unless the compiler makes another kernel of it today."""
        if data is None:
            return None
        entry = json.loads(data)
        try:
            if self._cuda(entry["schedule"], call) != entry["cuda"]:
                return None
        except LanguageError:
            return None
        entry["ranking"] = [(schedule, ms) for schedule, ms in entry["ranking"]]
        return Tuning(origin="stored", **{k: v for k, v in entry.items() if k != "cuda"})

    def _cuda(self, schedule: Schedule, call: Call) -> str:
        return cuda_hash(emit(compiler.lower(self._cls(**schedule), call.constants)))
