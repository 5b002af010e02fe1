# SPDX-License-Identifier: BSD-3-Clause
"""TUTTI_AS_GLOO=1: a program that asks for "gloo" gets groups that go over Tutti.

torch makes every group of Gloo's by one class, ProcessGroupGloo. So what stands under
that name is replaced, and nothing else of how torch makes groups. All names stay:
get_backend() is "gloo", is_gloo_available() is true, and isinstance() takes the
backend for a ProcessGroupGloo. Only the backend's own name() is "tutti".

In C++ names are not enough: DDP's log takes the backend of a group whose default is of
the type GLOO for torch's class, and reads its memory. So there the default is of the
type CUSTOM; ProcessGroup.name() tells "gloo" all the same.
"""

import functools
import inspect
import os
import sys
import threading
import weakref
from datetime import timedelta

# Of Gloo's groups in torch, where nobody says another one.
TIMEOUT = timedelta(minutes=30)

_turned_on = False
_is_said = False
# What TUTTI_SOCKET_IFNAME was set to here.
_interfaces = None
# Groups that were made as Gloo's; and of these, whose default type is another.
_groups = weakref.WeakSet()
_retyped = weakref.WeakSet()
# Of the group that this thread is making: its name and members, once.
_making = threading.local()


def is_asked():
    """A value that is neither 0 nor 1 is refused by the library, with the first group."""
    return os.environ.get("TUTTI_AS_GLOO", "0") not in ("", "0")


def is_on():
    return _turned_on


def goes_over_tutti(backend):
    """Also through the wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    from torch._C._distributed_c10d import Backend

    if not isinstance(backend, Backend):
        return False
    try:
        return backend.name() == "tutti"
    except RuntimeError:  # it has no name
        return False


def was_made_as_gloo(group):
    return group in _groups


def note_part(parent, part):
    """A part of a group, which torch's C++ has made."""
    for groups in (_groups, _retyped):
        if parent in groups:
            groups.add(part)


class _Named(type):
    """What ProcessGroupGloo has beside its constructor (Options, create_device) is torch's."""

    def __instancecheck__(cls, thing):
        if isinstance(thing, cls.theirs):
            return True
        return goes_over_tutti(thing) and not hasattr(thing, "wrapped_pg")

    def __subclasscheck__(cls, kind):
        return type.__subclasscheck__(cls, kind) or issubclass(kind, cls.theirs)

    def __getattr__(cls, name):
        return getattr(cls.theirs, name)


def _take_interfaces():
    """GLOO_SOCKET_IFNAME has whole names. A program may set it until its first group."""
    global _interfaces
    gloo = os.environ.get("GLOO_SOCKET_IFNAME")
    if gloo and os.environ.get("TUTTI_SOCKET_IFNAME") in (None, _interfaces):
        _interfaces = os.environ["TUTTI_SOCKET_IFNAME"] = "=" + gloo


def _say_once(rank):
    """In the log of rank 0 of the first group. A spawned process is told by its parent's."""
    global _is_said
    if _is_said or rank != 0 or os.environ.get("TUTTI_LOG") == "error":
        return
    _is_said = True
    text = 'tutti: groups of the backend "gloo" go over Tutti (TUTTI_AS_GLOO)'
    if _interfaces is not None:
        text += f", on the interfaces of GLOO_SOCKET_IFNAME: {_interfaces[1:]}"
    print(text, file=sys.stderr, flush=True)


def _make(create, store, rank, size, timeout):
    from torch.distributed import distributed_c10d as c10d

    _take_interfaces()
    options = c10d._DistributedBackendOptions()
    options.store, options.group_rank, options.group_size = store, rank, size
    options.timeout = timeout
    options.group_id, options.global_ranks_in_group = _making.__dict__.pop("group", ("", []))
    backend = create(options)
    _say_once(rank)
    return backend


def _replace_class(dist, create):
    import torch

    class ProcessGroupGloo(metaclass=_Named):
        theirs = dist.ProcessGroupGloo

        def __new__(cls, store, rank, size, options=None, timeout=None):
            """As torch's: the fourth is its Options, or a timeout."""
            if isinstance(options, timedelta):
                options, timeout = None, options
            if timeout is None:
                timeout = options._timeout if options is not None else TIMEOUT
            return _make(create, store, rank, size, timeout)

    ProcessGroupGloo.__module__ = "torch.distributed.distributed_c10d"
    for module in (dist, dist.distributed_c10d, torch._C._distributed_c10d):
        module.ProcessGroupGloo = ProcessGroupGloo


def _complete_backend():
    """What torch has in the class of Gloo's backend, and programs look for there."""
    from torch._C._distributed_c10d import Backend

    def options(self):
        if not goes_over_tutti(self):
            raise AttributeError(f"{type(self).__name__} has no options")
        from tutti.torch import _c

        return _c.options(getattr(self, "wrapped_pg", self))

    if not hasattr(Backend, "options"):
        Backend.options = property(options)
    if not hasattr(Backend, "_set_default_timeout") and hasattr(Backend, "set_timeout"):
        Backend._set_default_timeout = Backend.set_timeout


def _note_members(c10d):
    """torch tells them to its class when it has made it, and then Tutti's log of calls
    would not know them."""
    theirs = getattr(c10d, "_new_process_group_helper", None)
    if theirs is None:
        return
    signature = inspect.signature(theirs)

    @functools.wraps(theirs)
    def helper(*args, **named):
        given = signature.bind(*args, **named).arguments
        _making.group = (str(given.get("group_name") or ""), list(given.get("global_ranks_in_group") or []))
        try:
            return theirs(*args, **named)
        finally:
            _making.__dict__.pop("group", None)

    c10d._new_process_group_helper = helper


def _keep_type_from_cpp(dist):
    """A group whose default type is GLOO gets CUSTOM for it, see the file's beginning.
    Beside a backend of another type it stays GLOO, which is no default then: a group
    has one backend of each type."""
    kinds = dist.ProcessGroup.BackendType
    changed = ("_register_backend", "_set_default_backend", "name", "_get_backend_name")
    theirs = {name: getattr(dist.ProcessGroup, name) for name in changed if hasattr(dist.ProcessGroup, name)}

    def stand_in(group, device, backend):
        theirs["_register_backend"](group, device, kinds.CUSTOM, backend)
        theirs["_set_default_backend"](group, kinds.CUSTOM)
        _retyped.add(group)

    @functools.wraps(theirs["_register_backend"])
    def register_backend(self, device, backend_type, backend=None):
        theirs["_register_backend"](self, device, backend_type, backend)
        if backend_type == kinds.GLOO and goes_over_tutti(backend):
            _groups.add(self)
            if theirs["name"](self) == "gloo":
                stand_in(self, device, backend)

    @functools.wraps(theirs["_set_default_backend"])
    def set_default_backend(self, backend_type):
        theirs["_set_default_backend"](self, backend_type)
        if backend_type == kinds.GLOO and self in _groups:
            for device in self._device_types:
                if goes_over_tutti(self._get_backend(device)):
                    stand_in(self, device, self._get_backend(device))

    def named(which):
        @functools.wraps(theirs[which])
        def name(self):
            told = theirs[which](self)
            return "gloo" if told == "custom" and self in _retyped else told

        return name

    dist.ProcessGroup._register_backend = register_backend
    dist.ProcessGroup._set_default_backend = set_default_backend
    for which in changed[2:]:
        if which in theirs:
            setattr(dist.ProcessGroup, which, named(which))


def turn_on(dist, create):
    """create(options): a backend of Tutti's (_register.py). For the rest of the process
    and what it forks; the environment tells it to what it spawns. Twice is once."""
    global _turned_on
    if _turned_on or not dist.is_gloo_available():
        return
    _turned_on = True
    _replace_class(dist, create)
    _complete_backend()
    _note_members(dist.distributed_c10d)
    _keep_type_from_cpp(dist)
