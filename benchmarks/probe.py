"""Time and memory of the in-run probe over the same steps without it; `benchmarks/peers.py` has what others charge.

Budget: a probed step ≤ 1.03 × the same micro-batched step at 32×32 images and on a small transformer, ≤ 1.05 × at
16×16. The ratio to a plain step stands beside it, also with `every=10`, which takes nine of ten steps whole. Each
number is the ratio of the lower quartiles of processor times over interleaved repeats (one thread), with the smallest
and the largest that a fifth of the repeats gives; both steps move the same weights. At 16×16 a step takes a few
milliseconds, and there are more repeats. Memory is the peak of what torch allocates in one step, over the reference's.
A whole run with `every="auto"`, the timed steps included, takes ≤ 1.03 × the plain run, also of a tiny network and in
Lightning without accumulation.
"""

import logging
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from statistics import quantiles
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, TensorDataset

import svag
import svag.lab
from svag.lab.training.run import keep_freed_memory
from svag.noise.batches import split
from svag.noise.cadence import Every

BATCH = 128
RUN, AUTO = 3000, 8
REPEATS, OTHERS, BUDGETS = {32: 150, 16: 400}, 40, {32: 1.03, 16: 1.05}
Step = Callable[[], object]


def conv_net(norm: Callable[[int], nn.Module]) -> nn.Module:
    """Three convolutions."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1, stride=2 if before > 3 else 1), norm(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


NETS: dict[str, Callable[[], nn.Module]] = {
    "BatchNorm": lambda: conv_net(nn.BatchNorm2d),
    "GroupNorm": lambda: conv_net(lambda channels: nn.GroupNorm(8, channels)),
    "no norm": lambda: conv_net(lambda channels: nn.Identity()),
}


class Transformer(nn.Module):
    """Two blocks over 64 characters."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(65, width), nn.Parameter(torch.zeros(64, width))
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 65)

    def forward(self, text: Tensor) -> Tensor:
        """Logits of the next character, by character."""
        logits: Tensor = self.head(self.blocks(self.embed(text) + self.place)).transpose(1, 2)
        return logits


def data(side: int = 32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    if side == 0:
        text = torch.randint(65, (BATCH, 65), generator=generator)
        return text[:, :-1], text[:, 1:]
    return torch.randn(BATCH, 3, side, side, generator=generator), torch.randint(10, (BATCH,), generator=generator)


class Trained:
    """One network with its batch and optimizer, and steps of several kinds that all move these same weights.

    Two networks would lie at different places in memory, which alone can make one of them 5% slower than the other.
    """

    def __init__(self, make: Callable[[], nn.Module], side: int) -> None:
        torch.manual_seed(0)
        self._model, self._batch = make(), data(side)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01, weight_decay=5e-4)

    def _loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(self._model(batch[0]), batch[1])

    def probe(self, every: int = 1) -> svag.NoiseProbe:
        """One at a time."""
        return svag.NoiseProbe(self._model, self._optimizer, batch_size=BATCH, every=every)

    def micro_batched(self, parts: int, probe: svag.NoiseProbe | None = None) -> None:
        """One step in `parts` micro-batches, with or without a probe."""
        self._optimizer.zero_grad()
        for part in split(self._batch, parts):
            (self._loss(part) / parts).backward()
            if probe is not None:
                probe.micro_batch()
        if probe is not None:
            probe.close_step()
        self._optimizer.step()

    def ten(self, parts: int, probe: svag.NoiseProbe | None = None) -> None:
        """Ten steps: plain ones, or with a probe that measures one of them in `parts`."""
        for _ in range(10):
            self._optimizer.zero_grad()
            if probe is None:
                self._loss(self._batch).backward()
            else:
                probe.backward(self._loss, self._batch, parts)
            self._optimizer.step()


def seconds(step: Step) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def peak_memory(step: Step) -> int:
    """Largest amount of memory that one step holds at a time, from the allocator's own log."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as log:
        step()
    held = peak = 0
    for event in sorted(log.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def in_turns(step: Step, reference: Step, repeats: int) -> list[tuple[float, float]]:
    """Times of both, taken in turns after one of each to warm up."""
    step()
    reference()
    pairs = []
    for number in range(repeats):  # whoever goes first finds colder caches
        order = (step, reference) if number % 2 else (reference, step)
        times = {action: seconds(action) for action in order}
        pairs.append((times[step], times[reference]))
    return pairs


def ratio(pairs: list[tuple[float, float]]) -> float:
    """Of the lower quartiles: what other programs take from both kinds of step does not get into them."""
    first, second = (quantiles(times, n=4)[0] for times in zip(*pairs, strict=True))
    return float(first / second)


def show(
    name: str,
    step: Step,
    reference: Step,
    budget: float | None = None,
    repeats: int = OTHERS,
    gradients: int = 1,
    memory_budget: float | None = None,
) -> None:
    """One line: time and peak memory over one reference step, as many of which in a row as `step` has gradients.

    A single reference step after a longer one would inherit its warm caches and heap.
    """
    pairs = [(of_step, of_all / gradients) for of_step, of_all in in_turns(step, reference, repeats)]
    found, fifths = ratio(pairs), sorted(ratio(pairs[start::5]) for start in range(5))
    memory = peak_memory(step) / peak_memory(reference)
    spread = f"[{fifths[0]:.3f}, {fifths[-1]:.3f}]"
    print(f"  {name:29} ×{found:.3f} {spread}{verdict(found, budget)}", end="")
    print(f"  memory ×{memory:.2f}{verdict(memory, memory_budget)}", flush=True)


def verdict(found: float, budget: float | None) -> str:
    return "" if budget is None else f" {'met' if found <= budget else 'MISSED'} ({budget})"


def against_ourselves(make: Callable[[], nn.Module], side: int) -> None:
    """The probe over the same micro-batched step, over a plain one, and with every=10."""
    trained = Trained(make, side)
    for parts in (2, 4, 8):
        with trained.probe() as probe:
            step, reference = partial(trained.micro_batched, parts, probe), partial(trained.micro_batched, parts)
            show(f"{parts} parts", step, reference, BUDGETS.get(side, 1.03), REPEATS.get(side, REPEATS[32]))
            show(f"{parts} parts, over a plain step", step, partial(trained.micro_batched, 1))
    with trained.probe(every=10) as probe:
        show("4 parts, every=10, over plain", partial(trained.ten, 4, probe), partial(trained.ten, 4))


def tiny_net() -> nn.Module:
    """Two small convolutions: a step takes a millisecond, and parts of it hardly less."""
    layers = [nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def plain_runs(every: Every | None) -> Step:
    """A run of a tiny network at batch 32, with or without a probe."""
    batch = data(16)[0][:32], data(16)[1][:32]

    def run() -> None:
        torch.manual_seed(0)
        model = tiny_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        probe = None if every is None else svag.NoiseProbe(model, optimizer, batch_size=32, every=every)

        def loss_fn(part: tuple[Tensor, Tensor]) -> Tensor:
            return nn.functional.cross_entropy(model(part[0]), part[1])

        for _ in range(RUN):
            optimizer.zero_grad()
            if probe is None:
                loss_fn(batch).backward()
            else:
                probe.backward(loss_fn, batch)
            optimizer.step()

    return run


def lightning_runs(every: Every | None) -> Step:
    """The same in Lightning, one batch a step."""
    import lightning

    from svag.integrations.lightning import NoiseCallback

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = tiny_net()

        def training_step(self, batch: list[Tensor]) -> Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    x, y = data(16)
    examples: DataLoader[Any] = DataLoader(TensorDataset(x[:32], y[:32]), batch_size=32)

    def run() -> None:
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        torch.manual_seed(0)
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=RUN,
            callbacks=[] if every is None else [NoiseCallback(every=every, verbose=False, population=10**6)],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Module(), examples)

    return run


def automatic() -> None:
    """Whole runs with every="auto", and as the negative control with every=1, over plain ones."""
    kinds = {"tiny network": plain_runs}
    if find_spec("lightning") is not None:
        kinds["tiny network, Lightning"] = lightning_runs
    for name, runs in kinds.items():
        kinds_of_every: list[tuple[Every, int, float | None]] = [("auto", AUTO, 1.03), (1, 3, None)]
        for every, repeats, budget in kinds_of_every:
            pairs = in_turns(runs(every), runs(None), repeats)
            found, each = ratio(pairs), sorted(first / second for first, second in pairs)
            spread = f"[{each[0]:.3f}, {each[-1]:.3f}]"
            print(f"  {name + ', every=' + str(every):35} ×{found:.3f} {spread}{verdict(found, budget)}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    warnings.simplefilter("ignore")
    counts = f"{REPEATS[32]} repeats, {REPEATS[16]} at 16×16, {OTHERS} without a budget"
    print(f"3-conv net and transformer, batch {BATCH}, one thread, {counts}")
    print(f'every="auto": whole runs of {RUN} steps over plain ones')
    automatic()
    print("transformer, two blocks of width 64, 64 characters: probed step over the same micro-batched step")
    against_ourselves(Transformer, 0)
    for name, make in NETS.items():
        # at 16×16 a part is so little work that its overhead shows: print it too
        for side in (32, 16):
            print(f"{name}: probed step over the same micro-batched step, {side}×{side} images")
            against_ourselves(make, side)


if __name__ == "__main__":
    main()
