# SPDX-License-Identifier: Apache-2.0
"""``python -m tilus``: the command line."""

from tilus.cli import main

if __name__ == "__main__":
    main()
