# SPDX-License-Identifier: Apache-2.0
"""What a small example does when it is run: one launch, compared with its ``reference``.

::

    if __name__ == "__main__":
        main(VectorAdd(), n, a, b, c)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import ml_dtypes
import numpy as np

from tilus import runtime
from tilus.autotune.expected import reference_of
from tilus.frontend import kernel_function, parameters
from tilus.script import Script
from tilus.workload import DEVICE, choose, start


def main(kernel: Script, *arguments: Any) -> None:
    """Run ``kernel`` on a GPU or the simulator, and its ``reference`` in NumPy on the same
    arguments, in the same order; exit with a status other than 0 where an array differs."""

    def run(device: str) -> None:
        compare(kernel, arguments, choose(device))

    name = type(kernel).__name__
    start(click.Command(name, params=[DEVICE], callback=run, help=f"Run {name} once."))


def compare(kernel: Script, arguments: Sequence[Any], gpu: runtime.Gpu | None) -> None:
    """Launch a kernel on copies of the arrays among ``arguments`` and compare them with NumPy's."""
    found, wanted = copies(arguments), copies(arguments)
    reference = reference_of(kernel)
    launch(kernel, found, gpu)
    reference(*wanted)
    ran, own = kernel.last_run, parameters(kernel_function(kernel))
    for p, mine, right in zip(own, found, wanted, strict=True):
        if isinstance(mine, np.ndarray):
            judge(p.name, mine, right)
    assert ran is not None
    click.echo(f"ok  {type(kernel).__name__} on {ran.device}, {ran.blocks} blocks")


def copies(arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments, arrays as copies."""
    return [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]


def launch(kernel: Script, arguments: Sequence[Any], gpu: runtime.Gpu | None) -> None:
    """Run a kernel on NumPy arrays, by way of a GPU's memory where there is one."""
    if gpu is None:
        kernel(*arguments)
        return
    there = [
        runtime.DeviceArray.from_numpy(x, gpu.index) if isinstance(x, np.ndarray) else x
        for x in arguments
    ]
    kernel(*there)
    for x, y in zip(arguments, there, strict=True):
        if isinstance(x, np.ndarray):
            x[...] = y.to_numpy()


def judge(name: str, found: np.ndarray, wanted: np.ndarray) -> None:
    """Refuse an array that differs: integers at all, floats by some units in the last place."""
    if found.dtype.kind in "iub":
        good = found == wanted
    else:
        eps = 8 * float(ml_dtypes.finfo(found.dtype).eps)  # type: ignore[no-untyped-call]
        good = np.isclose(found.astype(float), wanted.astype(float), eps, eps, equal_nan=True)
    if not good.all():
        at = tuple(int(i[0]) for i in np.nonzero(~good))
        raise click.ClickException(
            f"{name} differs in {np.count_nonzero(~good)} of {good.size} elements, first at "
            f"{list(at)}: {found[at]} should be {wanted[at]}"
        )
