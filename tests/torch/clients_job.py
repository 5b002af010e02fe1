# SPDX-License-Identifier: BSD-3-Clause
"""Programs over libraries that choose "gloo" themselves; clients_test.py starts them.

    clients_job.py CLIENT DIRECTORY RANKS

By torchrun, but for those in ALONE, which start their ranks. Each rank writes what it
has seen (losses, most of it) to DIRECTORY/RANK.json, and by which backend. Nothing here
names Tutti. Networks and data are small, and made here.
"""

import json
import os
import sys

import torch
import torch.distributed as dist

CPU = torch.device("cpu")
STEPS = 6


def make_net(width=32):
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.Tanh(), torch.nn.Linear(width, 4))


def make_data(n=96):
    made = torch.Generator().manual_seed(4)
    x = torch.randn(n, 8, generator=made)
    return torch.utils.data.TensorDataset(x, (x[:, :4] * 2 > x[:, 4:]).float())


def loss_of(net, batch):
    return torch.nn.functional.binary_cross_entropy_with_logits(net(batch[0]), batch[1])


def tell(directory, seen):
    """Of this rank, while its group is there."""
    by = dist.group.WORLD._get_backend(CPU)
    with open(os.path.join(directory, f"{dist.get_rank()}.json"), "w") as file:
        json.dump({"by": getattr(by, "wrapped_pg", by).name(), "seen": seen}, file)
    dist.barrier()


def train_lightning(directory, size):
    try:
        import lightning.pytorch as pl
        from lightning.pytorch.strategies import DDPStrategy
    except ImportError:
        import pytorch_lightning as pl
        from pytorch_lightning.strategies import DDPStrategy

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.seen = make_net(), []

        def training_step(self, batch, _):
            loss = loss_of(self.net, batch)
            self.log("loss", loss, sync_dist=True)
            self.seen.append(loss.item())
            return loss

        def validation_step(self, batch, _):
            self.log("val", loss_of(self.net, batch), sync_dist=True)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.05)

        def train_dataloader(self):
            return torch.utils.data.DataLoader(make_data(), batch_size=8, shuffle=False)

        val_dataloader = train_dataloader

    net = Net()
    trainer = pl.Trainer(
        accelerator="cpu", devices=size, strategy=DDPStrategy(process_group_backend="gloo"), max_steps=STEPS,
        logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=directory,
        callbacks=[pl.callbacks.ModelCheckpoint(monitor="val", dirpath=os.path.join(directory, "best"))],
    )
    trainer.fit(net)
    tell(directory, net.seen + [float(trainer.callback_metrics["val"])])


def train_accelerate(directory, size):
    from accelerate import Accelerator
    from accelerate.utils import broadcast_object_list, gather_object

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = make_net()
    loader = torch.utils.data.DataLoader(make_data(), batch_size=8)
    net, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=0.05), loader)
    seen = []
    for _ in range(2):
        for batch in loader:
            with accelerator.accumulate(net):
                loss = loss_of(net, batch)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            seen.append(accelerator.gather_for_metrics(loss.detach()).tolist())
    accelerator.save_state(os.path.join(directory, "state"))
    accelerator.wait_for_everyone()  # rank 0 has saved what all load
    accelerator.load_state(os.path.join(directory, "state"))
    words = [f"by {accelerator.process_index}"]
    broadcast_object_list(words)
    padded = accelerator.pad_across_processes(torch.ones(accelerator.process_index + 1), pad_index=7)
    tell(directory, [seen, words, gather_object([accelerator.process_index]), accelerator.gather(padded).tolist()])
    accelerator.end_training()


def train_transformers(directory, size):
    import transformers

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, i):
            words = torch.arange(16).add(i).remainder(48)
            return {"input_ids": words, "labels": words}

    transformers.set_seed(5)
    config = transformers.GPT2Config(vocab_size=48, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    arguments = transformers.TrainingArguments(
        output_dir=os.path.join(directory, "out"), use_cpu=True, ddp_backend="gloo", max_steps=STEPS,
        per_device_train_batch_size=4, logging_steps=1, save_steps=3, report_to=[], disable_tqdm=True, seed=5,
    )
    trainer = transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config), args=arguments, train_dataset=Data(), eval_dataset=Data())
    trainer.train()
    seen = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    tell(directory, [seen, trainer.evaluate()["eval_loss"]])


def ray_worker(config):
    """A rank of Ray Train's."""
    import ray.train.torch

    net = ray.train.torch.prepare_model(make_net())
    loader = ray.train.torch.prepare_data_loader(torch.utils.data.DataLoader(make_data(), batch_size=8))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    seen = []
    for batch in loader:
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    tell(config["directory"], seen)
    ray.train.report({"loss": seen[-1]})


def train_ray(directory, size):
    import ray
    import ray.train.torch

    ray.init(num_cpus=size + 1, include_dashboard=False, log_to_driver=True, _temp_dir=os.environ["TMPDIR"],
             runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"] + os.pathsep + sys.path[0]}})
    trainer = ray.train.torch.TorchTrainer(
        ray_worker, train_loop_config={"directory": directory},
        scaling_config=ray.train.ScalingConfig(num_workers=size, use_gpu=False),
        torch_config=ray.train.torch.TorchConfig(backend="gloo"),
        run_config=ray.train.RunConfig(storage_path=os.path.join(directory, "ray")),
    )
    trainer.fit()
    ray.shutdown()


def train_ignite(directory, size):
    import ignite.distributed as idist
    from ignite.engine import Engine
    from ignite.metrics import Average

    with idist.Parallel(backend="gloo") as parallel:
        def work(rank):
            net = idist.auto_model(make_net())
            optimizer = idist.auto_optim(torch.optim.SGD(net.parameters(), lr=0.5))
            loader = idist.auto_dataloader(make_data(), batch_size=8 * size, shuffle=False)
            seen = []

            def step(engine, batch):
                optimizer.zero_grad()
                loss = loss_of(net, batch)
                loss.backward()
                optimizer.step()
                seen.append(loss.item())
                return loss.item()

            engine = Engine(step)
            Average().attach(engine, "mean")
            engine.run(loader, max_epochs=2)
            gathered = idist.all_gather(f"of {idist.get_rank()}")
            tell(directory, [seen, engine.state.metrics["mean"], gathered, idist.all_reduce(idist.get_rank())])

        parallel.run(work)


def train_deepspeed(directory, size):
    import deepspeed

    deepspeed.init_distributed(dist_backend="gloo")
    net = make_net()
    engine, *_ = deepspeed.initialize(
        model=net, optimizer=torch.optim.AdamW(net.parameters(), lr=0.05),
        config={"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False},
    )
    sampler = torch.utils.data.DistributedSampler(make_data(), shuffle=False)
    seen = []
    for batch in torch.utils.data.DataLoader(make_data(), batch_size=8, sampler=sampler):
        loss = loss_of(engine, batch)
        engine.backward(loss)
        engine.step()
        seen.append(loss.item())
    engine.save_checkpoint(os.path.join(directory, "saved"))
    tell(directory, seen)


def use_vllm(directory, size):
    """The groups of vLLM's that are on CPUs: of all ranks, of tensor parallelism, and
    those that torch.distributed does not know."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state as state
    from vllm.distributed.utils import StatelessProcessGroup, stateless_init_torch_distributed_process_group

    rank = int(os.environ["RANK"])
    with set_current_vllm_config(VllmConfig()):
        state.init_distributed_environment(size, rank, "env://", rank, backend="gloo")
        state.initialize_model_parallel(tensor_model_parallel_size=size, backend="gloo")
    group = state.get_tp_group()
    x = group.all_reduce(torch.full((5,), rank + 1.0)).tolist()
    whole = group.all_gather(torch.full((2,), float(rank))).tolist()
    told = group.broadcast_object({"from": rank} if rank == 0 else None, 0)
    tensors = group.broadcast_tensor_dict({"a": torch.arange(3), "b": 5} if rank == 0 else None, 0)
    group.barrier()
    port = [free_port() if rank == 0 else None]
    dist.broadcast_object_list(port, 0)
    store = StatelessProcessGroup.create("127.0.0.1", port[0], rank, size)
    all_of = store.all_gather_obj(rank)
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)  # a store of its own, which nobody else keeps
    port = [free_port() if rank == 0 else None]
    dist.broadcast_object_list(port, 0)
    apart = stateless_init_torch_distributed_process_group("127.0.0.1", port[0], rank, size, backend="gloo")
    y = torch.full((3,), float(rank))
    dist.all_reduce(y, group=apart)
    by = apart._get_backend(CPU).name() == dist.group.WORLD._get_backend(CPU).name()
    tell(directory, [x, whole, told, tensors["a"].tolist(), tensors["b"], all_of, y.tolist(), by])


def free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def use_tensordict(directory, size):
    from tensordict import TensorDict

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mine = TensorDict({"a": torch.full((2, 3), float(rank)), "b": {"c": torch.arange(2) + rank}}, [2])
    seen = []
    other = TensorDict({"a": torch.zeros(2, 3), "b": {"c": torch.zeros(2, dtype=torch.int64)}}, [2])
    if rank % 2 == 0 and rank + 1 < size:
        mine.send(rank + 1)
    if rank % 2 == 1:
        other.recv(rank - 1)
        seen.append(other["b", "c"].tolist())
    total = mine.clone()
    total.reduce(dst=0, op=dist.ReduceOp.SUM)
    if rank == 0:
        seen.append(total["a"].tolist())
    places = [torch.zeros(2, 3) for _ in range(size)]
    dist.all_gather(places, mine["a"])
    seen.append([place.tolist() for place in places])
    tell(directory, seen)


def use_torchmetrics(directory, size):
    import torchmetrics

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    made = torch.Generator().manual_seed(rank)
    mean = torchmetrics.MeanMetric()
    mean.update(torch.rand(5 + rank, generator=made))
    whole = torchmetrics.CatMetric()  # of another length on each rank
    whole.update(torch.rand(1 + rank, generator=made))
    right = torchmetrics.classification.MulticlassAccuracy(4)
    right.update(torch.rand(9, 4, generator=made), torch.randint(0, 4, (9,), generator=made))
    tell(directory, [mean.compute().item(), whole.compute().tolist(), right.compute().item()])


def train_fairscale(directory, size):
    from fairscale.nn.data_parallel import ShardedDataParallel
    from fairscale.optim.oss import OSS

    dist.init_process_group("gloo")
    net = make_net()
    optimizer = OSS(net.parameters(), torch.optim.SGD, lr=0.5)
    net = ShardedDataParallel(net, optimizer)
    sampler = torch.utils.data.DistributedSampler(make_data(), shuffle=False)
    seen = []
    for batch in torch.utils.data.DataLoader(make_data(), batch_size=8, sampler=sampler):
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    optimizer.consolidate_state_dict()
    tell(directory, seen)


def train_mmengine(directory, size):
    from mmengine import dist as mm
    from mmengine.model import BaseModel
    from mmengine.runner import Runner

    class Net(BaseModel):
        def __init__(self):
            super().__init__()
            self.net, self.seen = make_net(), []

        def forward(self, x, y=None, mode="tensor"):
            loss = loss_of(self.net, (x, y))
            self.seen.append(loss.item())
            return {"loss": loss}

    net = Net()
    dist.init_process_group("gloo")  # mmengine's own way to it, and to DDP, wants a GPU
    runner = Runner(
        net, work_dir=os.path.join(directory, "work"), launcher="pytorch",
        train_dataloader={"batch_size": 8, "dataset": make_data(), "sampler": {"type": "DefaultSampler", "shuffle": False},
                          "num_workers": 0, "collate_fn": {"type": "default_collate"}},
        train_cfg={"by_epoch": True, "max_epochs": 1}, optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.5}},
        cfg={"model_wrapper_cfg": {"type": "MMDistributedDataParallel", "device_ids": None}}, log_level="ERROR",
        default_hooks={"logger": None},
    )
    runner.train()
    tell(directory, [net.seen, mm.collect_results([mm.get_rank()] * 3, 2 * size, "cpu"), mm.get_backend()])


def train_torch(directory, size):
    """torch's own layers over the group: FSDP2, DTensor, FSDP1, checkpoints, ZeRO,
    join, RPC-free pipelines of messages."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (size,))  # makes the group, and asks for no backend
    rank = dist.get_rank()
    data = make_data(STEPS * 8 * size)
    batches = [data[i * 8 : (i + 1) * 8] for i in range(rank, STEPS * size, size)]

    def train(net, optimizer, mine=batches):
        losses = []
        for batch in mine:
            optimizer.zero_grad()
            loss = loss_of(net, batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    net = fully_shard(make_net(), mesh=mesh)
    seen = [train(net, torch.optim.SGD(net.parameters(), lr=0.5))]
    state = {"net": net.state_dict()}
    dcp.save(state, checkpoint_id=os.path.join(directory, "sharded"))
    again = {"net": fully_shard(make_net(), mesh=mesh).state_dict()}
    dcp.load(again, checkpoint_id=os.path.join(directory, "sharded"))
    seen.append(all(torch.equal(a.to_local(), b.to_local()) for a, b in zip(
        state["net"].values(), again["net"].values())))
    handle = dcp.async_save(state, checkpoint_id=os.path.join(directory, "later"))
    handle.result()

    net = FullyShardedDataParallel(make_net(), device_id=CPU)
    seen.append(train(net, torch.optim.SGD(net.parameters(), lr=0.5)))
    net = torch.nn.parallel.DistributedDataParallel(make_net())
    seen.append(train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.5)))
    net = torch.nn.parallel.DistributedDataParallel(make_net())
    with net.join():
        seen.append(train(net, torch.optim.SGD(net.parameters(), lr=0.5), batches[: STEPS - rank]))
    same = [data[i * 8 : (i + 1) * 8] for i in range(STEPS)]
    net = parallelize_module(make_net(12 * size), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    seen.append(train(net, torch.optim.SGD(net.parameters(), lr=0.5), same))
    x = distribute_tensor(torch.arange(24.0).view(8, 3), mesh, [Shard(0)])
    seen.append([x.sum().full_tensor().item(), x.redistribute(mesh, [Shard(1)]).full_tensor().tolist()])
    tell(directory, seen)


# By name: what is imported, and what runs. By torchrun, but for ALONE.
CLIENTS = {
    "torch": ("torch", train_torch),
    "lightning": ("lightning pytorch_lightning", train_lightning),
    "accelerate": ("accelerate", train_accelerate),
    "transformers": ("transformers accelerate", train_transformers),
    "ray": ("ray", train_ray),
    "deepspeed": ("deepspeed", train_deepspeed),
    "ignite": ("ignite", train_ignite),
    "mmengine": ("mmengine", train_mmengine),
    "fairscale": ("fairscale", train_fairscale),
    "torchmetrics": ("torchmetrics", use_torchmetrics),
    "tensordict": ("tensordict", use_tensordict),
    "vllm": ("vllm", use_vllm),
}
ALONE = ("ray",)


def main():
    client, directory, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    CLIENTS[client][1](directory, size)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
