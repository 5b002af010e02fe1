# SPDX-License-Identifier: BSD-3-Clause
"""What makes torch find the Tutti of the tree by itself, as it finds one that pip has
installed: the entry points of bind/torch, in a directory for PYTHONPATH.
"""

import os
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.join(os.path.dirname(os.path.dirname(HERE)), "bind", "torch", "pyproject.toml")


def announce(directory):
    """Writes them below `directory`; returns the environment for programs."""
    with open(PROJECT, "rb") as file:
        project = tomllib.load(file)["project"]
    place = os.path.join(directory, "tutti-0.dist-info")
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "METADATA"), "w") as file:
        file.write(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    with open(os.path.join(place, "entry_points.txt"), "w") as file:
        for group, entries in project["entry-points"].items():
            file.write(f"[{group}]\n" + "".join(f"{name} = {what}\n" for name, what in entries.items()))
    env = {name: value for name, value in os.environ.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    # multiprocessing's children have no other way to it.
    paths = [directory, *filter(None, [env.get("PYTHONPATH")])]
    return dict(env, PYTHONPATH=os.pathsep.join(paths), OMP_NUM_THREADS="1",
                TORCH_FR_DUMP_TEMP_FILE=os.path.join(directory, "calls_"))
