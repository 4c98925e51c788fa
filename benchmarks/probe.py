"""Time and memory of the in-run probe, beside what others charge for per-example gradients, in one process.

Budget: a probed step ≤ 1.05 × the same micro-batched step. Each number is the median over interleaved repeats of the
ratio of processor times to its reference (one thread), with their middle half. Memory is the peak of what torch
allocates in one step, over the reference's. Opacus and BackPACK are optional; `make bench` installs them by

    pip install -c constraints.txt -e '.[bench]'
    pip install -c constraints.txt --no-deps backpack-for-pytorch    # its dependency torchvision is not needed
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

BATCH, REPEATS, BUDGET = 128, 41, 1.05
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


def data(side: int = 32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(BATCH, 3, side, side, generator=generator), torch.randint(10, (BATCH,), generator=generator)


def micro_batched(make: Callable[[], nn.Module], parts: int, probed: bool, side: int = 32) -> Step:
    """One SGD step in `parts` micro-batches, with or without the probe."""
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


def plain(make: Callable[[], nn.Module]) -> Step:
    return micro_batched(make, 1, probed=False)


def torch_func(make: Callable[[], nn.Module]) -> Step:
    """Norms of per-example gradients by vmap(grad), and their mean for the step."""
    model, (x, y) = make(), data()
    weights = {name: p.detach() for name, p in model.named_parameters()}
    buffers = dict(model.named_buffers())

    def loss(parameters: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        logits = torch.func.functional_call(model, (parameters, buffers), (one.unsqueeze(0),))
        return nn.functional.cross_entropy(logits, label.unsqueeze(0))

    per_example = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def step() -> None:
        gradients = per_example(weights, x, y)
        sum(g.flatten(1).square().sum(1) for g in gradients.values())
        for name, gradient in gradients.items():
            weights[name] = weights[name] - 0.01 * gradient.mean(0)

    return step


def opacus(make: Callable[[], nn.Module]) -> Step:
    """Norms of Opacus' per-example gradients."""
    from opacus import GradSampleModule

    model, (x, y) = GradSampleModule(make()), data()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        for parameter in model.parameters():
            parameter.grad_sample.flatten(1).square().sum(1)
            parameter.grad_sample = None
        optimizer.step()

    return step


def backpack(make: Callable[[], nn.Module], extension: str) -> Step:
    """BackPACK's norms of per-example gradients, or their variances."""
    from backpack import backpack as collecting
    from backpack import extend, extensions

    model, (x, y) = extend(make()), data()
    lossfunc = extend(nn.CrossEntropyLoss())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        with collecting(getattr(extensions, extension)()):
            lossfunc(model(x), y).backward()
        optimizer.step()

    return step


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


def compare(step: Step, reference: Step) -> tuple[float, float, float, float]:
    """Median and middle half of the time ratio, and the ratio of peak memories."""
    seconds(step), seconds(reference)
    ratios = []
    for number in range(REPEATS):  # whoever goes first finds colder caches: take turns
        if number % 2:
            ratios.append(seconds(step) / seconds(reference))
        else:
            ratios.append(1 / (seconds(reference) / seconds(step)))
    low, _, high = quantiles(ratios, n=4)
    return median(ratios), low, high, peak_memory(step) / peak_memory(reference)


def show(name: str, step: Callable[[], Step], reference: Step, budget: float | None = None) -> None:
    try:
        ratio, low, high, memory = compare(step(), reference)
    except ImportError as missing:
        print(f"  {name:28} not installed ({missing.name}): pip install '.[bench]'; see the top of this file")
    except Exception as refused:  # what a peer refuses is a result, whatever it raises
        print(f"  {name:28} refused: {str(refused).strip().splitlines()[0][:90]}")
    else:
        verdict = "" if budget is None else f"  budget {budget}: {'met' if ratio <= budget else 'MISSED'}"
        print(f"  {name:28} time ×{ratio:.3f} [{low:.3f}, {high:.3f}]  peak memory ×{memory:.2f}{verdict}")


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"3-conv net, batch {BATCH}, one thread, {REPEATS} interleaved repeats")
    for name, make in NETS.items():
        # at 16×16 a part is so little work that its overhead shows: print it too
        for side in (32, 16):
            print(f"{name}: probed step over the same micro-batched step, {side}×{side} images")
            for parts in (2, 4, 8):
                reference = micro_batched(make, parts, probed=False, side=side)
                step = partial(micro_batched, make, parts, probed=True, side=side)
                show(f"svag, {parts} parts", step, reference, BUDGET)
        print(f"{name}: over a plain SGD step, 32×32 images")
        for parts in (2, 4, 8):
            show(f"svag, {parts} parts", partial(micro_batched, make, parts, probed=True), plain(make))
        show("torch.func per-example", partial(torch_func, make), plain(make))
        show("Opacus per-example", partial(opacus, make), plain(make))
        show("BackPACK BatchL2Grad", partial(backpack, make, "BatchL2Grad"), plain(make))
        show("BackPACK Variance", partial(backpack, make, "Variance"), plain(make))


if __name__ == "__main__":
    main()
