"""Time and memory of the in-run probe over the same steps without it; `benchmarks/peers.py` has what others charge.

Budget: a probed step ≤ 1.03 × the same micro-batched step at 32×32 images and on a small transformer, ≤ 1.05 × at
16×16. The ratio to a plain step stands beside it, also with `every=10`, which takes nine of ten steps whole. Each
number is the median over interleaved repeats of the ratio of processor times to its reference (one thread), with their
middle half. At 16×16 a step takes a few milliseconds, and there are more repeats. Memory is the peak of what torch
allocates in one step, over the reference's.
"""

import time
import warnings
from collections.abc import Callable
from functools import partial
from statistics import median, quantiles

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import svag
from svag.noise.batches import split

BATCH = 128
REPEATS, OTHERS, BUDGETS = {32: 101, 16: 251}, 41, {32: 1.03, 16: 1.05}
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


def micro_batched(make: Callable[[], nn.Module], parts: int, probed: bool, side: int = 32) -> Step:
    """One SGD step in `parts` micro-batches, with or without the probe; `side` 0 is text."""
    torch.manual_seed(0)
    model, batch = make(), data(side)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, weight_decay=5e-4)
    probe = svag.NoiseProbe(model, optimizer, batch_size=BATCH) if probed else None

    def step() -> None:
        optimizer.zero_grad()
        for x, y in split(batch, parts):
            (nn.functional.cross_entropy(model(x), y) / parts).backward()
            if probe is not None:
                probe.micro_batch()
        if probe is not None:
            probe.close_step()
        optimizer.step()

    return step


def steps_of_ten(make: Callable[[], nn.Module], parts: int | None, side: int = 32) -> Step:
    """Ten SGD steps: plain ones, or with a probe that measures one of them in `parts`."""
    torch.manual_seed(0)
    model, batch = make(), data(side)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, weight_decay=5e-4)
    probe = None if parts is None else svag.NoiseProbe(model, optimizer, batch_size=BATCH, every=10)

    def loss_fn(examples: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(examples[0]), examples[1])

    def step() -> None:
        for _ in range(10):
            optimizer.zero_grad()
            if probe is None or parts is None:
                loss_fn(batch).backward()
            else:
                probe.backward(loss_fn, batch, parts)
            optimizer.step()

    return step


def plain(make: Callable[[], nn.Module], side: int = 32) -> Step:
    return micro_batched(make, 1, probed=False, side=side)


def seconds(step: Step, count: int = 1) -> float:
    start = time.process_time()
    for _ in range(count):
        step()
    return (time.process_time() - start) / count


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


def compare(step: Step, reference: Step, repeats: int) -> tuple[float, float, float, float]:
    """Median and middle half of the time ratio, and the ratio of peak memories."""
    seconds(step), seconds(reference)
    ratios = []
    for number in range(repeats):  # whoever goes first finds colder caches: take turns
        if number % 2:
            ratios.append(seconds(step) / seconds(reference))
        else:
            ratios.append(1 / (seconds(reference) / seconds(step)))
    low, _, high = quantiles(ratios, n=4)
    return median(ratios), low, high, peak_memory(step) / peak_memory(reference)


def show(
    name: str, step: Callable[[], Step], reference: Step, budget: float | None = None, repeats: int = OTHERS
) -> None:
    ratio, low, high, memory = compare(step(), reference, repeats)
    verdict = "" if budget is None else f"  budget {budget}: {'met' if ratio <= budget else 'MISSED'}"
    print(f"  {name:30} time ×{ratio:.3f} [{low:.3f}, {high:.3f}]  peak memory ×{memory:.2f}{verdict}", flush=True)


def against_ourselves(make: Callable[[], nn.Module], side: int) -> None:
    """The probe over the same micro-batched step, over a plain one, and with every=10."""
    for parts in (2, 4, 8):
        step = partial(micro_batched, make, parts, probed=True, side=side)
        reference = micro_batched(make, parts, probed=False, side=side)
        show(f"{parts} parts", step, reference, BUDGETS.get(side, 1.03), REPEATS.get(side, REPEATS[32]))
        show(f"{parts} parts, over a plain step", step, plain(make, side))
    show("4 parts, every=10, over plain", partial(steps_of_ten, make, 4, side), steps_of_ten(make, None, side))


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    counts = f"{REPEATS[32]} repeats, {REPEATS[16]} at 16×16, {OTHERS} without a budget"
    print(f"3-conv net and transformer, batch {BATCH}, one thread, {counts}")
    print("transformer, two blocks of width 64, 64 characters: probed step over the same micro-batched step")
    against_ourselves(Transformer, 0)
    for name, make in NETS.items():
        # at 16×16 a part is so little work that its overhead shows: print it too
        for side in (32, 16):
            print(f"{name}: probed step over the same micro-batched step, {side}×{side} images")
            against_ourselves(make, side)


if __name__ == "__main__":
    main()
