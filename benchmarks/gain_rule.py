"""Time and memory of a step by the gain rule over the same probed step without it.

Budget: a measured step ≤ 1.02 × the probed step. The two share network, batch and probe, and each has an optimizer of
its own. The ratio is that of `benchmarks/probe.py`: lower quartiles of processor times over interleaved repeats (one
thread), with the smallest and the largest that a fifth of the repeats gives. The planned rule, which needs no probe,
stands beside it, over the plain step. On CUDA a measured step also waits for the device, which is not measured here.
"""

import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

import svag
from probe import BATCH, NETS, REPEATS, Transformer, data, show
from svag.lab.training.run import keep_freed_memory

BUDGET, PARTS = 1.02, 4


class Trained:
    """One network and its batch, and two optimizers of its weights: one has the rule."""

    def __init__(self, make: Callable[[], nn.Module], side: int, kind: Callable[..., Optimizer]) -> None:
        torch.manual_seed(0)
        self._model, self._batch = make(), data(side)
        self.ruled, self.plain = (kind(self._model.parameters(), lr=1e-3) for _ in range(2))

    def _loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(self._model(batch[0]), batch[1])

    def probe(self) -> svag.NoiseProbe:
        """Of both optimizers: it only reads the settings of the first."""
        return svag.NoiseProbe(self._model, self.ruled, batch_size=BATCH)

    def step(self, optimizer: Optimizer, probe: svag.NoiseProbe | None = None) -> None:
        """One step, probed or plain."""
        optimizer.zero_grad()
        if probe is None:
            self._loss(self._batch).backward()
        else:
            probe.backward(self._loss, self._batch, PARTS)
        optimizer.step()


def compare(make: Callable[[], nn.Module], side: int, kind: Callable[..., Optimizer]) -> None:
    """The measured and the planned rule over the same step without it."""
    trained, name = Trained(make, side, kind), kind.__name__
    repeats = REPEATS.get(side, REPEATS[32])
    with trained.probe() as probe, svag.GainRule(probe, base_batch_size=BATCH // 16):
        ruled, plain = partial(trained.step, trained.ruled, probe), partial(trained.step, trained.plain, probe)
        show(f"{name}, measured", ruled, plain, BUDGET, repeats)
    plan = svag.GainPlan(BATCH // 16, BATCH, ((0, 4.0),), rule="linear" if kind is SGD else "square_root")
    with svag.GainRule.planned(trained.ruled, plan):
        ruled, plain = partial(trained.step, trained.ruled), partial(trained.step, trained.plain)
        show(f"{name}, planned, over plain", ruled, plain, BUDGET, repeats)


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    warnings.simplefilter("ignore")
    print(f"batch {BATCH} in {PARTS} parts, one thread, {REPEATS[32]} repeats, {REPEATS[16]} at 16×16")
    print("transformer, two blocks of width 64, 64 characters: step by the gain rule over the same step without it")
    for kind in (SGD, AdamW):
        compare(Transformer, 0, kind)
    for side in (32, 16):
        print(f"3-conv net with GroupNorm, {side}×{side} images: step by the gain rule over the same step without it")
        for kind in (SGD, AdamW):
            compare(NETS["GroupNorm"], side, kind)


if __name__ == "__main__":
    main()
