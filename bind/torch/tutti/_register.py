# SPDX-License-Identifier: BSD-3-Clause
"""Makes the backend "tutti" known to torch.distributed.

torch calls register() itself when it is imported (entry point torch.backends), so
it is quick and cannot fail: the extension is loaded with the first process group.
"""


def _create(options, backend_options=None):
    """Called by torch.distributed for each process group."""
    from tutti.torch import _c

    timeout = options.timeout
    if backend_options is not None:
        timeout = getattr(backend_options, "_timeout", timeout)
    return _c.create(options.store, options.group_rank, options.group_size, timeout)


def register():
    """Twice is no mistake."""
    import torch.distributed as dist

    if dist.is_available() and "TUTTI" not in dist.Backend._plugins:
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu"])
