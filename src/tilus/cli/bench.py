# SPDX-License-Identifier: Apache-2.0
"""``tilus bench``: what running an example's file does, for a matmul kernel in any file."""

from __future__ import annotations

from pathlib import Path

import click

from tilus import workload
from tilus.cli import kernels


@click.command("bench", context_settings={"ignore_unknown_options": True})
@kernels.KERNEL
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS]...")
def command(kernel: str, options: tuple[str, ...]) -> None:
    """Check a matmul kernel and, on a Hopper GPU, tune it and measure it against cuBLAS.

    Options are those of the examples: --device, --size M N K, --regime, --json FILE.
    """
    script = kernels.find(kernel)
    version = Path(kernel.partition(":")[0]).stem.removeprefix("matmul_")
    workload.command(script, version).main(list(options), standalone_mode=False)
