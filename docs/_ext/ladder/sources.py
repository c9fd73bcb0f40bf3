# SPDX-License-Identifier: Apache-2.0
"""``github``: a link to a file of the repository, or to the copy of it that the site carries.

``:github:`examples/hopper_matmul/matmul_v3.py``` follows the one setting ``source_address`` of
conf.py. While that is empty the file itself is copied into the site.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from sphinx import addnodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxRole

from ladder import found

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class GitHub(SphinxRole):
    """Link to the file named by the role's text, a path from the repository's root."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        path = found.root(self.env) / self.text
        if not path.is_file():
            raise ExtensionError(
                f"{self.get_location()}: no such file in the repository: {self.text}"
            )
        label = nodes.literal(self.text, self.text)
        if address := self.config.source_address:
            return [nodes.reference("", "", label, refuri=f"{address}/{self.text}")], []
        return [
            addnodes.download_reference(
                "", "", label, reftarget=f"/../{self.text}", refdoc=self.env.docname
            )
        ], []


def setup(app: Sphinx) -> None:
    """Register the role and its setting."""
    app.add_config_value("source_address", "", "env", types=(str,))
    app.add_role("github", GitHub())
