# SPDX-License-Identifier: BSD-3-Clause
"""setuptools, with the torch that is installed (PEP 517).

The extension for torch fits the torch that it was built for. pip hides what is installed
when it builds, so that is looked for behind pip's back. Where there is none, the package
is built without an extension, which is compiled when tutti.torch is first imported.
setup.py has the rest.
"""

import importlib.util
import site
import sys

from setuptools.build_meta import *  # noqa: F403


def _find_torch():
    """Makes it one that can be imported, if need be from where Python has its
    packages."""
    if importlib.util.find_spec("torch"):
        return
    for directory in site.getsitepackages():
        before = list(sys.path)
        site.addsitedir(directory)
        if importlib.util.find_spec("torch"):
            return
        sys.path[:] = before


def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_editable = get_requires_for_build_wheel
get_requires_for_build_sdist = get_requires_for_build_wheel


# Each of these may be called in a process of its own.
_find_torch()
