# SPDX-License-Identifier: BSD-3-Clause
"""SharedSampler: batches that workers draw from one counter, each as fast as it is.

    loader = DataLoader(data, batch_sampler=tutti.torch.SharedSampler(len(data), 64))
    for epoch in range(15):
        for x, y in loader:         # who is twice as fast gets twice as many
            ...

With a share of its own (DistributedSampler) a worker that is slow is slow to the end:
with PartialReduce nobody waits for it in between, but all do at the end of training.
"""

import torch
import torch.distributed as dist


class SharedSampler:
    """Lists of indices, for DataLoader's batch_sampler. Each batch of an epoch goes to
    one worker, whoever comes first; an epoch ends for a worker when none is left, and
    its next iteration is the next epoch. All workers shuffle alike, by seed and epoch.

    n_samples   of the data, or the data
    drop_last   leave out a last batch that is smaller
    name        of the counter: two samplers of a job that are in use together have two
    store       of torch.distributed, which all workers have: one request for each
                batch; None: that of the process group

    A batch that a worker has drawn and not trained on when it dies is not drawn again
    in that epoch. Who comes late goes through the epochs that are over in no time.
    """

    def __init__(self, n_samples, batch_size, shuffle=True, seed=0, drop_last=False, name="", store=None):
        n = n_samples if isinstance(n_samples, int) else len(n_samples)
        for what, value in (("n_samples", n), ("batch_size", batch_size)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"tutti.torch.SharedSampler: {what} is a number from 1 on, not {value!r}")
        if store is None:
            if not dist.is_initialized():
                raise ValueError(
                    "tutti.torch.SharedSampler: give a store that all workers have, or call "
                    "init_process_group() first"
                )
            store = dist.distributed_c10d._get_default_store()
        self.n, self.batch_size = n, batch_size
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0
        self._store = dist.PrefixStore(f"tutti sampler {name}", store)

    def __len__(self):
        """Of an epoch, of all workers together."""
        return self.n // self.batch_size if self.drop_last else -(-self.n // self.batch_size)

    def set_epoch(self, epoch):
        """The next iteration's, when training goes on from a checkpoint."""
        self.epoch = epoch

    def _order(self, epoch):
        if not self.shuffle:
            return torch.arange(self.n)
        return torch.randperm(self.n, generator=torch.Generator().manual_seed(self.seed + epoch))

    def __iter__(self):
        epoch, self.epoch = self.epoch, self.epoch + 1
        batches = self._order(epoch).split(self.batch_size)[: len(self)]
        while (number := self._store.add(f"epoch {epoch}", 1) - 1) < len(batches):
            yield batches[number].tolist()
