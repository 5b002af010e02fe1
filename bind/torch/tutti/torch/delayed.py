# SPDX-License-Identifier: BSD-3-Clause
"""The optimizer's part of overlapping with the next forward pass.

    net = tutti.torch.DataParallel(module, overlap_forward=True)
    optimizer = net.delayed(torch.optim.SGD(net.parameters(), lr=0.1))

backward() returns while buckets are still on the way. step() takes down what the
optimizer would do now (its learning rates and so on), and it is done bucket by
bucket: when the next forward pass reaches a layer of the bucket, else when the
forward pass ends, or somebody asks (state_dict(), net.finish()). So a layer's
forward pass waits for its own gradients only. Every parameter gets exactly the
update that it would have got from step(), bit for bit: optimizers whose updates
look at one parameter at a time (SGD, Adam, ...) are right, LBFGS is not.

zero_grad() waits likewise. Who looks at gradients between backward() and step()
(clip_grad_norm_) calls net.wait() first; who looks at parameters between step()
and the next forward pass calls net.finish().
"""

import torch


def snapshot(groups):
    """The groups' settings as they are now; tensors among them are copied."""
    return [
        {
            k: v.clone() if isinstance(v, torch.Tensor) else v
            for k, v in group.items()
            if k != "params"
        }
        for group in groups
    ]


class DelayedOptimizer(torch.optim.Optimizer):
    """See the file's beginning. Learning-rate schedulers may be given this one."""

    def __init__(self, inner, net):
        if isinstance(inner, torch.optim.LBFGS):
            raise ValueError(
                "tutti.torch: LBFGS looks at all gradients together, so its steps "
                "cannot be delayed"
            )
        self.inner, self.net = inner, net
        self.is_asked = False
        super().__init__(inner.param_groups, inner.defaults)
        self.state = inner.state
        self._applied, self._settings, self._clears = set(), None, None

    @torch.no_grad()
    def step(self, closure=None):
        if closure is not None:
            raise ValueError("tutti.torch: a delayed step cannot take a closure")
        if self.is_asked:
            self.net.finish()
        if not self.net._open:
            self.inner.step()
            return
        self._settings = snapshot(self.inner.param_groups)
        self._applied, self._clears, self.is_asked = set(), None, True
        mine = {id(p) for p in self.net.params}
        self.apply([p for g in self.inner.param_groups for p in g["params"] if id(p) not in mine])

    def apply(self, params):
        """The step that was asked for, on these parameters."""
        if not self.is_asked:
            return
        wanted = {id(p) for p in params} - self._applied
        if not wanted:
            return
        self._applied |= wanted
        groups = self.inner.param_groups
        kept = [dict(group) for group in groups]
        try:
            for group, settings in zip(groups, self._settings):
                group.update(settings)
                group["params"] = [p for p in group["params"] if id(p) in wanted]
            with torch.no_grad():
                self.inner.step()
        finally:
            for group, before in zip(groups, kept):
                group.update(before)
        if self._clears is not None:
            clear([p for p in params if id(p) in wanted], self._clears)

    def settle(self):
        """All buckets are done."""
        self.is_asked = False
        self._settings = None

    def zero_grad(self, set_to_none=True):
        if not self.net._open:
            self.inner.zero_grad(set_to_none)
            return
        if not self.is_asked:
            self.net.wait()
            self.inner.zero_grad(set_to_none)
            return
        self._clears = set_to_none
        params = [p for g in self.inner.param_groups for p in g["params"]]
        clear([p for p in params if id(p) in self._applied], set_to_none)

    def state_dict(self):
        self.net.finish()
        return self.inner.state_dict()

    def load_state_dict(self, state_dict):
        self.net.finish()
        self.inner.load_state_dict(state_dict)
        self.param_groups, self.state = self.inner.param_groups, self.inner.state


def clear(params, set_to_none):
    """As Optimizer.zero_grad()."""
    for p in params:
        if p.grad is None:
            continue
        if set_to_none:
            p.grad = None
        else:
            p.grad.detach().zero_()
