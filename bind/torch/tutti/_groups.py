# SPDX-License-Identifier: BSD-3-Clause
"""What torch's Python does for the groups of its own backends only, for Tutti's too.

Groups of other backends go to torch's functions.
"""

import functools
import weakref

from tutti import _as_gloo


def is_tutti(dist, group):
    """Also a group that was made as Gloo's and goes over Tutti."""
    if dist._rank_not_in_group(group):
        return False
    parts = str(dist.get_backend(group)).split(",")  # "tutti", or "cpu:tutti,cuda:tutti"
    if all(part.split(":")[-1] == "tutti" for part in parts):
        return True
    return _as_gloo.was_made_as_gloo(group or dist.group.WORLD)


def devices():
    """Whose tensors groups take. It must be quick, and start no driver: what this torch
    was built for."""
    import torch

    return ["cpu", "cuda"] if torch.version.cuda else ["cpu"]


def give(group, backend):
    """The backend to a process group, for all devices."""
    import torch
    import torch.distributed as dist

    kind = dist.ProcessGroup.BackendType.CUSTOM
    for device in devices():
        group._register_backend(torch.device(device), kind, backend)
    group._set_default_backend(kind)


def backend_in(group):
    """That of a group, for the CPU where it has one for that."""
    import torch

    cpu = torch.device("cpu")
    types = group._device_types
    return group._get_backend(cpu if cpu in types or not types else types[0])


def group_of(backend, store):
    """A process group with Tutti's backend, which torch.distributed does not know yet."""
    import torch.distributed as dist

    group = dist.ProcessGroup(store, backend.rank(), backend.size())
    give(group, backend)
    return group


def number_groups(dist):
    """ProcessGroup._get_sequence_number_for_group() and _set_..., which torch has for
    a list of backends; the backend itself has them."""
    def replace(name):
        theirs = getattr(dist.ProcessGroup, name)

        @functools.wraps(theirs)
        def number(self):
            is_known = self in dist.distributed_c10d._world.pg_map
            if not _as_gloo.was_made_as_gloo(self) and not (is_known and is_tutti(dist, self)):
                return theirs(self)
            return getattr(backend_in(self), name)()

        setattr(dist.ProcessGroup, name, number)

    for name in ("_get_sequence_number_for_group", "_set_sequence_number_for_group"):
        replace(name)


def _check(split_ranks, size):
    """torch's words, and on all ranks alike."""
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    for ranks in split_ranks:
        if not ranks:
            raise ValueError("the split group cannot be empty")
        if len(ranks) != len(set(ranks)):
            raise ValueError("the split group cannot have duplicate ranks")
        for rank in ranks:
            if not 0 <= rank < size:
                raise ValueError(f"there is no rank {rank} in a group of {size} to split")


# By parent: how often it has been split.
_splits = weakref.WeakKeyDictionary()


def _name_of_part(parent, mine):
    """Its members meet under this name, so it is made of what they all know: torch's
    own counts the groups that a rank has. All ranks of the parent call this."""
    _splits[parent] = _splits.get(parent, 0) + 1
    return f"{parent.group_name}:split:{_splits[parent]}:{'_'.join(map(str, mine))}"


def _split(c10d, parent, split_ranks, timeout, desc):
    """The group of split_ranks that this rank is in, or None; registered as others."""
    _check(split_ranks, parent.size())
    backend = c10d.get_backend(parent)
    if timeout is None:
        timeout = c10d._get_default_timeout(backend)
    c10d._check_valid_timeout(timeout)
    # Who is in none calls as well, as torch's ranks do.
    mine = next((sorted(ranks) for ranks in split_ranks if parent.rank() in ranks), sorted(split_ranks[0]))
    name = _name_of_part(parent, mine)
    group = parent.split_group(mine, timeout=timeout, group_name=name, group_desc=desc)
    if group is None:
        return None
    _as_gloo.note_part(parent, group)
    members = c10d.get_process_group_ranks(parent)
    _register(c10d, group, backend, name, {members[rank]: number for number, rank in enumerate(mine)})
    return group


def _register(c10d, group, backend, name, numbers):
    """What torch.distributed notes of each group that it makes."""
    world, tag = c10d._world, f"ptd:{name}"
    world.pg_map[group] = (backend, group.get_group_store())
    world.pg_names[group] = name
    world.pg_backend_config[group] = str(c10d.BackendConfig(backend))
    c10d._register_process_group(name, group)
    world.pg_group_ranks[group] = numbers
    world.tags_to_pg.setdefault(tag, []).append(group)
    world.pg_to_tag[group] = tag


def extend_split_group(dist):
    """torch.distributed.split_group(), which torch has for devices only: it asks for
    an accelerator and for a device of the job's group."""
    from torch.distributed import distributed_c10d as c10d

    theirs = getattr(c10d, "split_group", None)
    if theirs is None or not hasattr(dist.ProcessGroup, "split_group"):
        return

    @functools.wraps(theirs)
    def split_group(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, **more):
        is_ours = is_tutti(dist, parent_pg) and pg_options is None
        if is_ours and more.get("backend") in (None, dist.get_backend(parent_pg)):
            return _split(c10d, parent_pg or dist.group.WORLD, split_ranks, timeout, group_desc)
        return theirs(parent_pg, split_ranks, timeout, pg_options, group_desc, **more)

    for module in (dist, c10d):
        module.split_group = split_group
