# SPDX-License-Identifier: BSD-3-Clause
"""setuptools, with the torch that is installed (PEP 517).

An extension fits the torch that it was built for. pip hides what is installed when it
builds, and would fetch the newest torch for it, gigabytes of another one than the
program has. So that is looked for behind pip's back; only where there is none is one
asked for. setup.py has the rest.
"""

import importlib.util
import site
import sys

from setuptools.build_meta import *  # noqa: F403

ANY_TORCH = ["torch>=2.4"]


def _find_torch():
    """Whether it can be imported, if need be from where Python has its packages."""
    if importlib.util.find_spec("torch"):
        return True
    for directory in site.getsitepackages():
        before = list(sys.path)
        site.addsitedir(directory)
        if importlib.util.find_spec("torch"):
            return True
        sys.path[:] = before
    return False


def get_requires_for_build_wheel(config_settings=None):
    return [] if _find_torch() else ANY_TORCH


get_requires_for_build_editable = get_requires_for_build_wheel


def get_requires_for_build_sdist(config_settings=None):
    return get_requires_for_build_wheel()


# Each of these may be called in a process of its own.
_find_torch()
