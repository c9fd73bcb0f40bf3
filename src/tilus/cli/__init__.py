# SPDX-License-Identifier: Apache-2.0
"""The command line: ``tilus doctor``, ``compile``, ``simulate``, ``bench``."""

from __future__ import annotations

import sys

import click

from tilus.cli import bench, compile, doctor, simulate
from tilus.errors import TilusError, told


class Commands(click.Group):
    """Shows errors that are the user's to mend as a message, not as a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; exit with 1 on an error of ours, or of what the machine has not got."""
        try:
            return super().invoke(ctx)
        except (TilusError, MemoryError, OSError) as error:
            click.echo(f"{type(error).__name__}: {told(error)}", err=True)
            sys.exit(1)


@click.group(cls=Commands)
@click.version_option(package_name="tilus-hopper-tutorial")
def main() -> None:
    """Compile, simulate and measure kernels for Hopper GPUs; say what this machine has for them."""


for module in (doctor, compile, simulate, bench):
    main.add_command(module.command)
