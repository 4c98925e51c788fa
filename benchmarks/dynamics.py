"""The budgets of the steppers, as ratios within one run: `python benchmarks/dynamics.py`.

Every number is the ratio of a step to the reference step, of the lower quartiles of processor times over interleaved
repeats of one thread, so that a busy machine does not matter. A step that takes several gradients is compared with as
many reference steps in a row. Memory is the peak of live tensor storage, counted at every operation. Nothing is
asserted.
"""

import math
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import svag
from probe import in_turns, ratio
from svag.lab.run import keep_freed_memory

Batch = tuple[Tensor, Tensor]
Step = Callable[[], object]
REPEATS = 40


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
        self.model = network(batch_norm)
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        if adam:  # fused, the fastest form to be compared with
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)

    def loss(self, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def losses(self, batch: Batch) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1], reduction="none")

    def plain(self, batch: Batch) -> None:
        self.optimizer.zero_grad()
        torch.autograd.backward(self.loss(batch))
        self.optimizer.step()


def ratios(reference: Step, others: dict[str, Step], gradients: dict[str, int] | None = None) -> dict[str, float]:
    """Each step's time over one reference step's, in turns: a step, then as many reference steps as it has gradients.

    A single reference step after a longer one would inherit its warm caches and heap.
    """
    found = {}
    for name, step in others.items():
        count = (gradients or {}).get(name, 1)
        found[name] = ratio(in_turns(step, partial(several, reference, count), REPEATS)) * count
    return found


def several(step: Step, count: int) -> None:
    for _ in range(count):
        step()


class Storage(TorchDispatchMode):
    """Counts the bytes of all tensor storage that operations create, until it is freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._add(leaf.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known.add(key)
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def peak_bytes(step: Step) -> int:
    step()
    storage = Storage()
    with storage:
        step()
    return storage.peak


def show(title: str, found: dict[str, float], budgets: dict[str, float]) -> None:
    print(f"\n{title}")
    for name, value in found.items():
        budget = budgets.get(name)
        verdict = "" if budget is None else f"   budget {budget:.2f}   {'kept' if value <= budget else 'MISSED'}"
        print(f"  {name:<44}{value:6.3f}{verdict}")


def substep(bench: Bench, first: Batch, second: Batch, **settings: Any) -> Step:
    """One SVAG sub-step, its context opened and closed around it so that other steps may take turns."""
    sim = svag.SVAG(bench.model, bench.optimizer, ell=4, **settings)

    def step() -> None:
        with sim:
            sim.substep(bench.loss, first, second)

    return step


def effective_step(bench: Bench, first: Batch, second: Batch) -> Step:
    sim = svag.SVAG(bench.model, bench.optimizer, ell=4)

    def step() -> None:
        with sim:
            sim.step(bench.loss, iter([(first, second)] * 4))

    return step


def both_graphs(bench: Bench, first: Batch, second: Batch) -> Step:
    """The usual way: the combined loss, then one backward pass through two graphs."""
    a, b = svag.svag_weights(4)

    def step() -> None:
        bench.optimizer.zero_grad()
        torch.autograd.backward(a * bench.loss(first) + b * bench.loss(second))
        bench.optimizer.step()

    return step


def svag_tables(batch_norm: bool, adam: bool = False) -> None:
    bench, first, second = Bench(batch_norm, adam), images(128, 0), images(128, 1)
    steps = {
        "sub-step": substep(bench, first, second),
        "sub-step, track_noise": substep(bench, first, second, track_noise=True),
        "effective step, per sub-step": effective_step(bench, first, second),
        "naive: both graphs held": both_graphs(bench, first, second),
    }
    if not batch_norm:
        steps["sub-step, chunks=4"] = substep(bench, first, second, chunks=4)
    of = "an Adam" if adam else "an SGD"
    setting = f"SVAG over {of} step of the same batch ({'BatchNorm' if batch_norm else 'GroupNorm'}, B=128)"

    def reference() -> None:
        bench.plain(first)

    found = ratios(reference, steps, {name: 8 if name.startswith("effective") else 2 for name in steps})
    found["effective step, per sub-step"] /= 4
    show(f"{setting}: time", found, {"sub-step": 2.02})
    base = peak_bytes(reference)
    memory = {name: peak_bytes(step) / base for name, step in steps.items()}
    show(f"{setting}: peak memory", memory, {"sub-step": 1.1})


def split_table() -> None:
    bench, found = Bench(batch_norm=False), {}
    for size in (32, 64, 128, 256, 512):
        whole, first, second = images(size, 0), images(size // 2, 1), images(size // 2, 2)
        split = substep(bench, first, second, split=2)
        found[f"B={size}"] = ratios(partial(bench.plain, whole), {"split": split})["split"]
    show("split SVAG (two batches of B/2) over an SGD step at B: time", found, {"B=256": 1.05, "B=512": 1.05})


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
    found = ratios(
        gd,
        {"NGD step": lambda: ngd.step(bench.losses, chunks), "naive: per-example gradients": per_example_gradients},
    )
    show("noisy gradient descent over a GD pass (GroupNorm, n=512 in chunks of 128): time", found, {"NGD step": 1.03})


if __name__ == "__main__":
    torch.set_num_threads(1)
    keep_freed_memory()
    print(f"torch {torch.__version__}, processor time of one thread, {REPEATS} interleaved repeats")
    svag_tables(batch_norm=True)
    svag_tables(batch_norm=False)
    svag_tables(batch_norm=False, adam=True)
    split_table()
    ngd_table()
