"""What the figures cost at the paper's own size: runs, images, floating-point operations, GPU hours.

The operations of each network are counted by torch in a forward and a backward pass of two images. A run takes

    seconds = max(operations / (sustained FLOP/s), updates · (shortest update)),
    operations = images trained on · (operations of an image) + images evaluated · (those of its forward pass),

since with small batches a GPU waits for its orders; a batch of a frozen reading counts as an update. Both speeds are
assumptions, or measured here by `--measure`, with the network of the paper's main figures.
"""

import argparse
import time
from dataclasses import astuple, dataclass, replace
from functools import cache
from math import ceil
from statistics import median

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from svag.lab.networks.build import build_model
from svag.lab.specs.parts import FACTS, FrozenProbe, ModelSpec
from svag.lab.specs.spec import RunSpec, examples_per_step, updates_per_step
from svag.paper.figures import LABELS, figure

TEST_EXAMPLES = {"cifar10": 10_000, "cifar100": 10_000, "svhn": 26_032}


@dataclass(frozen=True)
class Speed:
    """What a GPU does on such networks: sustained TFLOP/s, and milliseconds of the shortest update."""

    tflops: float
    update_ms: float


@dataclass(frozen=True)
class Price:
    """What runs cost: images that are trained on, images that are only looked at, operations, updates, seconds."""

    runs: int = 0
    trained: float = 0.0
    evaluated: float = 0.0
    operations: float = 0.0
    updates: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: "Price") -> "Price":
        return Price(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


@cache
def operations_of_an_image(model: ModelSpec, data: str) -> tuple[float, float]:
    """Floating-point operations of one image: (forward and backward, forward); a multiply-add counts as two."""
    facts = FACTS[data]
    network = network_for(model, data)
    images = torch.zeros(2, facts.channels, facts.pixels, facts.pixels)
    with FlopCounterMode(display=False) as forward:
        scores = network(images)
    with FlopCounterMode(display=False) as backward:
        scores.sum().backward()
    return (forward.get_total_flops() + backward.get_total_flops()) / 2, forward.get_total_flops() / 2


def network_for(model: ModelSpec, data: str) -> nn.Module:
    """The network itself."""
    facts = FACTS[data]
    return build_model(
        model.arch,
        norm=model.norm,
        width=model.width,
        in_channels=facts.channels,
        num_classes=facts.classes,
        scale_invariant=model.scale_invariant,
        image_size=(facts.pixels, facts.pixels),
        generator=torch.Generator().manual_seed(0),
    )


def measured(spec: RunSpec, device: str) -> Speed:
    """The two speeds of a device: from updates of 128 images, and of 2."""
    seconds = {size: seconds_of_an_update(spec, size, device) for size in (128, 2)}
    both, _ = operations_of_an_image(spec.model, spec.data.name)
    speed = Speed(128 * both / seconds[128] / 1e12, 1000 * seconds[2])
    print(
        f"{spec.model.arch} on {device}: {128 / seconds[128]:,.0f} images/s at B = 128, "
        f"that is {speed.tflops:.3g} TFLOP/s; "
        f"{speed.update_ms:.3g} ms for an update at B = 2\n"
    )
    return speed


def seconds_of_an_update(spec: RunSpec, size: int, device: str) -> float:
    """Median time of forward pass, backward pass and update."""
    facts = FACTS[spec.data.name]
    assert isinstance(spec.model, ModelSpec)  # the figures have images
    network = network_for(spec.model, spec.data.name).to(device)
    optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=1e-3)
    images = torch.randn(size, facts.channels, facts.pixels, facts.pixels, device=device)
    labels = torch.zeros(size, dtype=torch.int64, device=device)
    times = []
    for _ in range(15):
        start = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return median(times[5:])


def amounts(spec: RunSpec) -> Price:
    """What the plan alone says that one run costs: images and updates."""
    examples = spec.data.examples or FACTS[spec.data.name].examples
    steps = spec.steps(examples)
    trained, updates = steps * examples_per_step(spec, examples), steps * updates_per_step(spec, examples)
    if isinstance(spec.probe, FrozenProbe):
        read = spec.probe.readings * spec.probe.batches
        trained, updates = trained + read * spec.batch_size, updates + read
    moments = 1 + ceil(steps / spec.evaluate.interval(steps))
    evaluated = moments * (TEST_EXAMPLES[spec.data.name] + (examples if spec.evaluate.train else 0))
    return Price(1, trained, evaluated, updates=updates)


def price(spec: RunSpec, speed: Speed) -> Price:
    """What one run costs."""
    both, forward = operations_of_an_image(spec.model, spec.data.name)
    cost = amounts(spec)
    operations = cost.trained * both + cost.evaluated * forward
    seconds = max(operations / (speed.tflops * 1e12), cost.updates * speed.update_ms / 1000)
    return replace(cost, operations=operations, seconds=seconds)


def total(specs: list[RunSpec], speed: Speed) -> Price:
    """What several runs cost."""
    return sum((price(spec, speed) for spec in specs), Price())


def paper_plans() -> dict[str, list[RunSpec]]:
    """The runs of each figure."""
    return {label: figure(label, "paper").runs() for label, kind in LABELS.items() if kind != "theory"}


def each_once(plans: dict[str, list[RunSpec]]) -> list[RunSpec]:
    """The runs of all figures."""
    return list(dict.fromkeys(spec for specs in plans.values() for spec in specs))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tflops", type=float, default=5.0, help="TFLOP/s that a GPU sustains")
    parser.add_argument("--update-ms", type=float, default=5.0, help="milliseconds of the shortest update")
    parser.add_argument(
        "--measure", action="store_true", help="measure both speeds on the GPU, or the CPU, of this machine"
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    plans = paper_plans()
    speed = Speed(asked.tflops, asked.update_ms)
    if asked.measure:
        speed = measured(plans["fig:svag_accs"][0], "cuda" if torch.cuda.is_available() else "cpu")
    print("| figure | runs | updates, 10⁶ | images trained on, 10⁹ | images evaluated, 10⁹ | EFLOP | GPU hours |")
    print("|---|---|---|---|---|---|---|")
    for label, specs in plans.items():
        print(_row(f"`{label}`", total(specs, speed)))
    once = each_once(plans)
    print(_row("all, shared runs once", total(once, speed)))
    print("\n| network | data | GFLOP of an image, forward and backward | forward |")
    print("|---|---|---|---|")
    for model, data in dict.fromkeys((spec.model, spec.data.name) for spec in once):
        both, forward = operations_of_an_image(model, data)
        name = f"{model.arch}, {model.norm}, width {model.width:g}"
        print(f"| {name} | {data} | {both / 1e9:.3f} | {forward / 1e9:.3f} |")


def _row(name: str, cost: Price) -> str:
    return f"{planned_cells(name, cost)} {cost.operations / 1e18:.2f} | {cost.seconds / 3600:,.0f} |"


def planned_cells(name: str, cost: Price) -> str:
    """The cells of a row that the plan alone says."""
    images = f"{cost.trained / 1e9:.2f} | {cost.evaluated / 1e9:.2f}"
    return f"| {name} | {cost.runs} | {cost.updates / 1e6:.1f} | {images} |"


if __name__ == "__main__":
    main()
