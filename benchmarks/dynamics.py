"""The budgets of the steppers, as ratios within one run: `python benchmarks/dynamics.py`.

Every number is the ratio of a step to the reference step, measured as in `benchmarks/probe.py`: lower quartiles of
processor times over interleaved repeats of one thread, with the smallest and the largest that a fifth of the repeats
gives. Both steps move the same weights, on the same batches. Nothing is asserted.
"""

import math
from functools import partial
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import svag
import svag.lab
from probe import OTHERS, show
from svag.lab.training.run import keep_freed_memory

Batch = tuple[Tensor, Tensor]
REPEATS = 200  # where there is a budget


def network(batch_norm: bool) -> nn.Sequential:
    torch.manual_seed(0)

    def norm(channels: int) -> nn.Module:
        return nn.BatchNorm2d(channels) if batch_norm else nn.GroupNorm(4, channels)

    def block(inner: int, outer: int) -> list[nn.Module]:
        return [nn.Conv2d(inner, outer, 3, padding=1, bias=False), norm(outer), nn.ReLU()]

    return nn.Sequential(
        *block(3, 16), *block(16, 16), nn.AvgPool2d(2), *block(16, 32), nn.Flatten(), nn.Linear(2048, 10)
    )


def images(size: int, seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 3, 16, 16, generator=generator), torch.randint(10, (size,), generator=generator)


class Bench:
    """A network with a step of SGD, or of Adam, to compare with."""

    def __init__(self, batch_norm: bool, adam: bool = False) -> None:
        self.model, self._adam = network(batch_norm), adam
        self.optimizer = self.another_optimizer()

    def another_optimizer(self) -> torch.optim.Optimizer:
        """For the same weights: nobody may step the one of an open svag context."""
        if self._adam:  # fused, the fastest form to be compared with
            return torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        return torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def loss(self, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def losses(self, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1], reduction="none")

    def plain(self, *batches: Batch) -> None:
        """One step for each batch."""
        for batch in batches:
            self.optimizer.zero_grad()
            torch.autograd.backward(self.loss(batch))
            self.optimizer.step()


def stepper(bench: Bench, **settings: Any) -> svag.SVAG:
    """SVAG with an optimizer of its own: its context stays open, as in a run, while the reference steps too."""
    return svag.SVAG(bench.model, bench.another_optimizer(), ell=4, **settings)


def svag_table(batch_norm: bool, adam: bool = False) -> None:
    bench, first, second = Bench(batch_norm, adam), images(128, 0), images(128, 1)
    reference = partial(bench.plain, first, second)
    norm, of = "BatchNorm" if batch_norm else "GroupNorm", "an Adam" if adam else "an SGD"
    print(f"\nSVAG over {of} step of the same batch ({norm}, B=128)")
    with stepper(bench) as sim:
        substep = partial(sim.substep, bench.loss, first, second)
        show("sub-step", substep, reference, 2.02, REPEATS, gradients=2, memory_budget=1.1)
    with stepper(bench, track_noise=True) as sim:
        show("sub-step, track_noise", partial(sim.substep, bench.loss, first, second), reference, gradients=2)
    if not batch_norm:
        with stepper(bench, chunks=4) as sim:
            show("sub-step, chunks=4", partial(sim.substep, bench.loss, first, second), reference, gradients=2)
    with stepper(bench) as sim:
        four = partial(sim.step, bench.loss, repeat((first, second)))
        show("effective step, 8 gradients", four, partial(bench.plain, *[first, second] * 4), gradients=8)
    show("naive: both graphs held", partial(both_graphs, bench, first, second), reference, gradients=2)


def both_graphs(bench: Bench, first: Batch, second: Batch) -> None:
    """The usual way: the combined loss, then one backward pass through two graphs."""
    a, b = svag.theory.svag_weights(4)
    bench.optimizer.zero_grad()
    torch.autograd.backward(a * bench.loss(first) + b * bench.loss(second))
    bench.optimizer.step()


def split_table() -> None:
    bench = Bench(batch_norm=False)
    print("\nsplit SVAG (two batches of B/2) over an SGD step at B (GroupNorm)")
    for size in (32, 64, 128, 256, 512):
        whole, first, second = images(size, 0), images(size // 2, 1), images(size // 2, 2)
        with stepper(bench, split=2) as sim:
            substep = partial(sim.substep, bench.loss, first, second)
            show(f"B={size}", substep, partial(bench.plain, whole), 1.05 if size >= 256 else None, REPEATS // 2)


def ngd_table() -> None:
    bench, n = Bench(batch_norm=False), 512
    chunks = [images(128, seed) for seed in range(n // 128)]

    def gd() -> None:
        bench.optimizer.zero_grad()
        for chunk in chunks:
            torch.autograd.backward(bench.loss(chunk), torch.tensor(128 / n))
        bench.optimizer.step()

    def one_loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(bench.model, parameters, x[None]), y[None])

    per_example = vmap(grad(one_loss), in_dims=(None, 0, 0))

    def per_example_gradients() -> None:
        parameters = dict(bench.model.named_parameters())
        detached = {name: p.detach() for name, p in parameters.items()}
        total = {name: torch.zeros_like(p) for name, p in detached.items()}
        for x, y in chunks:
            weights = 1 / n + torch.randn(len(x)) / math.sqrt(n * 32)
            for name, g in per_example(detached, x, y).items():
                total[name] += torch.tensordot(weights, g, dims=1)
        for name, p in parameters.items():
            p.grad = total[name]
        bench.optimizer.step()

    ngd = svag.NoisyGD(bench.model, bench.optimizer, batch_size=32, dataset_size=n, generator=torch.Generator())
    print("\nnoisy gradient descent over a GD pass (GroupNorm, n=512 in chunks of 128)")
    show("NGD step", partial(ngd.step, bench.losses, chunks), gd, 1.03, REPEATS)
    show("naive: per-example gradients", per_example_gradients, gd)


if __name__ == "__main__":
    torch.set_num_threads(1)
    keep_freed_memory()
    print(f"torch {torch.__version__}, processor time of one thread, {REPEATS} repeats, {OTHERS} without a budget")
    svag_table(batch_norm=True)
    svag_table(batch_norm=False)
    svag_table(batch_norm=False, adam=True)
    split_table()
    ngd_table()
