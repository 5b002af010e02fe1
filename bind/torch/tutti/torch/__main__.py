# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program whose groups of the backend "gloo" go over Tutti.

    python -m tutti.torch script.py [argument ...]
    python -m tutti.torch -m module [argument ...]

As TUTTI_AS_GLOO=1 python script.py, which it sets for all that the program starts:
torchrun is `-m tutti.torch -m torch.distributed.run ...`.
"""

import os
import runpy
import sys


def main():
    words = sys.argv[1:]
    is_module = words[:1] == ["-m"]
    words = words[is_module:]
    if not words or words[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    os.environ["TUTTI_AS_GLOO"] = "1"
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1":
        print(
            "tutti: TORCH_DEVICE_BACKEND_AUTOLOAD is off, so processes that this program spawns will not find Tutti",
            file=sys.stderr,
        )
    from tutti import _register

    _register.register()
    sys.argv = words
    if is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
