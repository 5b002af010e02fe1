# SPDX-License-Identifier: BSD-3-Clause
"""Training: DDP, FSDP2 and DTensor come to the same loss as with Gloo, what is
saved can be loaded, and stock layers of torch.distributed work unchanged.
"""

import os
import sys
import tempfile
from functools import partial

import ranks

if not ranks.MISSING:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from torch.nn.parallel import DistributedDataParallel

STEPS = 8


def model():
    """The same on all ranks."""
    torch.manual_seed(7)
    layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8 * 36, 64), nn.ReLU(), nn.Linear(64, 10))


def train(net, rank, steps=STEPS):
    """The losses of some steps on this rank's own data."""
    torch.manual_seed(100 + rank)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        x, y = torch.randn(16, 1, 8, 8), torch.randint(0, 10, (16,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def close(a, b, what):
    assert torch.allclose(a, b, rtol=1e-4, atol=1e-5), f"{what}: {a} and {b}"


def ddp(rank, size):
    """Stock DDP, with buckets small enough that there are several."""
    gloo = dist.new_group(backend="gloo")
    losses = []
    for group in (None, gloo):
        net = DistributedDataParallel(model(), process_group=group, bucket_cap_mb=0.02)
        losses.append(train(net, rank))
        weights = torch.cat([p.detach().flatten() for p in net.parameters()])
        parts = [torch.empty_like(weights) for _ in range(size)]
        dist.all_gather(parts, weights)
        for part in parts:
            assert torch.equal(part, weights), "parameters differ between ranks"
    close(losses[0], losses[1], "losses of DDP")
    views = DistributedDataParallel(model(), gradient_as_bucket_view=True, static_graph=True)
    close(train(views, rank), losses[1], "with bucket views")


def compressed(rank, size):
    """DDP with torch's PowerSGD hook, whose callbacks wait for further calls."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    gloo = dist.new_group(backend="gloo")
    losses = []
    for group in (None, gloo):
        net = DistributedDataParallel(model(), process_group=group)
        state = power.PowerSGDState(group, matrix_approximation_rank=1, start_powerSGD_iter=2)
        net.register_comm_hook(state, power.powerSGD_hook)
        losses.append(train(net, rank))
    close(losses[0], losses[1], "losses with PowerSGD")


def sharded(rank, size):
    """FSDP2, and a checkpoint that is saved and loaded."""
    losses = {}
    for backend in ("tutti", "gloo"):
        group = dist.new_group(backend=backend)
        mesh = dist.device_mesh.DeviceMesh.from_group(group, "cpu")
        net = model()
        for layer in (net[4], net[6]):
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        losses[backend] = train(net, rank)
        if backend == "tutti":
            saved = net
    close(losses["tutti"], losses["gloo"], "losses of FSDP2")
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box)
    state = {"net": saved.state_dict()}
    before = {k: v.full_tensor().clone() for k, v in state["net"].items() if hasattr(v, "full_tensor")}
    dcp.save(state, checkpoint_id=os.path.join(box[0], "one"))
    with torch.no_grad():
        for p in saved.parameters():
            p.zero_()
    state = {"net": saved.state_dict()}
    dcp.load(state, checkpoint_id=os.path.join(box[0], "one"))
    for k, v in before.items():
        assert torch.equal(state["net"][k].full_tensor(), v), k


def dtensors(rank, size):
    """Sharding along one dimension, then another, and products of them."""
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(3)
    a, b = torch.randn(size * 4, 12), torch.randn(12, size * 4)
    x = distribute_tensor(a, mesh, [Shard(0)])
    y = distribute_tensor(b, mesh, [Shard(1)])
    close((x @ y.redistribute(mesh, [Shard(0)])).full_tensor(), a @ b, "a product")
    z = x.redistribute(mesh, [Shard(1)])
    close(z.full_tensor(), a, "another sharding")
    close(x.sum().full_tensor(), a.sum(), "a sum")


def tensor_parallel(rank, size):
    """Training with DTensor: one layer split by columns, the next by rows."""
    losses, weights = {}, {}
    for backend in ("tutti", "gloo"):
        mesh = dist.device_mesh.DeviceMesh.from_group(dist.new_group(backend=backend), "cpu")
        torch.manual_seed(5)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
        parallelize_module(net, mesh, {"1": ColwiseParallel(), "3": RowwiseParallel()})
        assert net[1].weight.to_local().shape == (48 // size, 64), net[1].weight
        losses[backend] = train(net, 0)  # all see the same data
        weights[backend] = net[3].weight.full_tensor().detach()
    assert losses["tutti"][-1] != losses["tutti"][0], "nothing was learnt"
    close(losses["tutti"], losses["gloo"], "losses with DTensor")
    close(weights["tutti"], weights["gloo"], "weights with DTensor")


def every_part(rank, size):
    """All in one job."""
    for part in (ddp, compressed, sharded, dtensors, tensor_parallel):
        try:
            part(rank, size)
        except Exception as error:
            raise AssertionError(f"in {part.__name__}: {type(error).__name__} {error}") from error


TESTS = [(f"DDP, FSDP2, DTensor, {n} ranks", partial(ranks.run, every_part, n)) for n in (2, 4)]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
