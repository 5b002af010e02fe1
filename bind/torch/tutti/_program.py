# SPDX-License-Identifier: BSD-3-Clause
"""The program `tutti`, which lies in this package."""

from __future__ import annotations

import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OWN = os.path.join(HERE, "_bin", "tutti")


def path() -> str:
    """The program of this package; where it has none, the system's."""
    found = OWN if os.access(OWN, os.X_OK) else shutil.which("tutti")
    if not found:
        raise FileNotFoundError("the program tutti is neither in this package nor in PATH")
    return found


def main() -> None:
    """The command `tutti` of the package: becomes the program."""
    if not os.access(OWN, os.X_OK):
        sys.exit(f"tutti: there is no program {OWN}: this package was installed without it")
    os.execv(OWN, ["tutti", *sys.argv[1:]])


if __name__ == "__main__":
    main()
