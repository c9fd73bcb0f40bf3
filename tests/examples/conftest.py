# SPDX-License-Identifier: Apache-2.0
"""The failure gallery's own modules are not installed: they lie beside its patches."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "failures"))
