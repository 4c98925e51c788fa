"""What our probe and its peers cost and read, in one process, on one model and the same batches.

The data set is so small that G = |∇L|² and TrΣ, the trace of the covariance of one example's gradient, are known: every
example is back-propagated by itself. Each tool then sees the same batches, drawn with replacement, at the same weights
(the learning rate is 0), and reads TrΣ/G, the simple noise scale, from the averages of both over all batches.

Time is the processor time of a step with the measurement over that of a plain step, the median over interleaved
repeats with one thread; memory is the peak of what torch allocates in a step, over the plain one's. Opacus and BackPACK
are optional; `make bench` installs them by

    pip install -c constraints.txt -e '.[bench]'
    pip install -c constraints.txt --no-deps backpack-for-pytorch    # its dependency torchvision is not needed
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import cycle
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import svag
import svag.lab
from probe import conv_net, peak_memory, seconds
from svag.lab.data.load import load_text
from svag.noise.batches import split
from svag.theory.estimators import u_statistic

POPULATION, REPEATS, PARTS = 256, 15, 4
Batch = tuple[Tensor, Tensor]
Noise = tuple[float, float]  # G and TrΣ
cross_entropy = nn.functional.cross_entropy


class Block(nn.Module):
    """A transformer block of layers that every tool knows: LayerNorm and Linear."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.before, self.between = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Causal attention, then the perceptron."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.mix(self.before(x)).chunk(3, dim=-1)
        )
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(later, float("-inf")).softmax(dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        moved: Tensor = x + self.down(nn.functional.gelu(self.up(self.between(x))))
        return moved


class Transformer(nn.Module):
    """Two blocks over characters; positions are embedded like characters, since peers do not know bare parameters."""

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(classes, width), nn.Embedding(64, width)
        self.blocks, self.last = nn.Sequential(Block(width, 4), Block(width, 4)), nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, text: Tensor) -> Tensor:
        """Logits by class and character."""
        places = torch.arange(text.shape[1]).expand(text.shape)
        logits: Tensor = self.head(self.last(self.blocks(self.embed(text) + self.place(places)))).transpose(1, 2)
        return logits


class Tool(ABC):
    """A training step at learning rate 0 that measures on the way."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.sums = model, list[tuple[Tensor, Tensor, int]]()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    @abstractmethod
    def step(self, batch: Batch) -> None: ...

    def read(self) -> Noise:
        """G and TrΣ: averages over all batches of the U-statistics of (Σ|g_i|², |Σg_i|²) of n examples."""
        found = [u_statistic(float(sum_sq), float(sq_sum), n) for sum_sq, sq_sum, n in self.sums]
        return (
            sum(one.grad_sq for one in found) / len(found),
            sum(one.noise_trace for one in found) / len(found),
        )


class Plain(Tool):
    def step(self, batch: Batch) -> None:
        self.optimizer.zero_grad()
        cross_entropy(self.model(batch[0]), batch[1]).backward()
        self.optimizer.step()


class Parts(Tool):
    """The batch in parts, without a measurement: what gradient accumulation costs by itself."""

    def step(self, batch: Batch) -> None:
        self.optimizer.zero_grad()
        for x, y in split(batch, PARTS):
            (cross_entropy(self.model(x), y) / PARTS).backward()
        self.optimizer.step()


class Probe(Tool):
    """Ours, which cuts the batch into parts."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.probe: svag.NoiseProbe | None = None

    def step(self, batch: Batch) -> None:
        if self.probe is None:
            self.probe = svag.NoiseProbe(self.model, self.optimizer, batch_size=len(batch[0]))
        self.optimizer.zero_grad()
        self.probe.backward(lambda part: cross_entropy(self.model(part[0]), part[1]), batch, PARTS)
        self.optimizer.step()

    def read(self) -> Noise:
        assert self.probe is not None
        found = self.probe.readings
        return (
            sum(one.grad_sq for one in found) / len(found),
            sum(one.noise_trace * one.batch_size for one in found) / len(found),
        )


class TorchFunc(Tool):
    """Per-example gradients by vmap(grad)."""

    def step(self, batch: Batch) -> None:
        weights = {name: parameter.detach() for name, parameter in self.model.named_parameters()}

        def loss(parameters: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
            return cross_entropy(torch.func.functional_call(self.model, parameters, (one[None],)), label[None])

        found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(weights, *batch)
        self.sums.append(per_example_sums(list(found.values())))
        for name, parameter in self.model.named_parameters():
            parameter.grad = found[name].mean(0)
        self.optimizer.step()


class Opacus(Tool):
    def __init__(self, model: nn.Module) -> None:
        from opacus import GradSampleModule

        super().__init__(GradSampleModule(model))

    def step(self, batch: Batch) -> None:
        self.optimizer.zero_grad()
        cross_entropy(self.model(batch[0]), batch[1]).backward()
        samples: list[Any] = list(self.model.parameters())
        self.sums.append(per_example_sums([parameter.grad_sample for parameter in samples]))
        for parameter in samples:
            parameter.grad_sample = None
        self.optimizer.step()


class BackpackNorms(Tool):
    """BackPACK's squared norms of per-example gradients, which it divides by the batch size first."""

    extension = "BatchL2Grad"

    def __init__(self, model: nn.Module) -> None:
        from backpack import backpack, extend, extensions

        super().__init__(extend(model))
        self.loss, self.collecting, self.kind = extend(nn.CrossEntropyLoss()), backpack, extensions

    def step(self, batch: Batch) -> None:
        self.optimizer.zero_grad()
        with self.collecting(getattr(self.kind, self.extension)()):
            self.loss(self.model(batch[0]), batch[1]).backward()
        self.keep(list(self.model.parameters()), len(batch[0]))
        self.optimizer.step()

    def keep(self, parameters: list[Any], size: int) -> None:
        norms, mean_sq = sum(p.batch_l2.sum() for p in parameters), sum(p.grad.square().sum() for p in parameters)
        self.sums.append((norms * size**2, mean_sq * size**2, size))


class BackpackVariance(BackpackNorms):
    """BackPACK's variances of the gradient, as they come: Tr Σ, and G by taking Tr Σ/B from |ḡ|²."""

    extension = "Variance"

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.found: list[tuple[float, float]] = []

    def keep(self, parameters: list[Any], size: int) -> None:
        trace = float(sum(p.variance.sum() for p in parameters))
        self.found.append((float(sum(p.grad.square().sum() for p in parameters)) - trace / size, trace))

    def read(self) -> Noise:
        grads, traces = zip(*self.found, strict=True)
        return sum(grads) / len(grads), sum(traces) / len(traces)


class LayerNormOnly(Tool):
    """Per-example gradients of LayerNorm's scales and shifts alone, from hooks, in the manner of nanoGNS.

    With x̂ the normalised input and δ the gradient of the output, those of example i are Σ_t δ_it x̂_it and Σ_t δ_it.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        layers = [layer for layer in model.modules() if isinstance(layer, nn.LayerNorm)]
        if not layers:
            raise ValueError("this network has no LayerNorm")
        self.rows: list[Tensor] = []
        for layer in layers:
            layer.register_forward_hook(self._remember)

    def _remember(self, layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        if not output.requires_grad:
            return
        assert isinstance(layer, nn.LayerNorm)
        shape, x = layer.normalized_shape, inputs[0].detach()

        def collect(delta: Tensor) -> None:
            normal = nn.functional.layer_norm(x, shape, eps=layer.eps)
            self.rows += [(delta * normal).sum(1), delta.sum(1)]

        output.register_hook(collect)

    def step(self, batch: Batch) -> None:
        self.optimizer.zero_grad()
        self.rows.clear()
        cross_entropy(self.model(batch[0]), batch[1]).backward()
        size = len(batch[0])  # the loss is a mean: an example's own gradient is B times its share
        self.sums.append(per_example_sums([size * rows for rows in self.rows]))
        self.optimizer.step()


def per_example_sums(gradients: list[Tensor]) -> tuple[Tensor, Tensor, int]:
    """Σ|g_i|², |Σg_i|² and their number."""
    sum_sq = torch.stack([g.square().sum() for g in gradients]).sum()
    return sum_sq, torch.stack([g.sum(0).square().sum() for g in gradients]).sum(), len(gradients[0])


def truth(model: nn.Module, data: Batch) -> dict[str, Noise]:
    """G and TrΣ of all parameters and of those of LayerNorm, by back-propagating every example by itself."""
    norms = {
        id(p) for layer in model.modules() if isinstance(layer, nn.LayerNorm) for p in layer.parameters(recurse=False)
    }
    trained = list(model.parameters())
    chosen = {"total": trained, "LayerNorm": [p for p in trained if id(p) in norms]}
    mean = {id(p): torch.zeros_like(p, dtype=torch.float64) for p in trained}
    squares = dict.fromkeys(chosen, 0.0)
    for number in range(POPULATION):
        one = slice(number, number + 1)
        found = torch.autograd.grad(cross_entropy(model(data[0][one]), data[1][one]), trained)
        own = {id(p): g.double() for p, g in zip(trained, found, strict=True)}
        for p in trained:
            mean[id(p)] += own[id(p)] / POPULATION
        for name, some in chosen.items():
            squares[name] += sum(float(own[id(p)].square().sum()) for p in some) / POPULATION
    signal = {name: sum(float(mean[id(p)].square().sum()) for p in some) for name, some in chosen.items()}
    return {name: (signal[name], squares[name] - signal[name]) for name, some in chosen.items() if some}


TOOLS: dict[str, Callable[[nn.Module], Tool]] = {
    f"{PARTS} parts, nothing measured": Parts,
    f"svag.NoiseProbe, {PARTS} parts": Probe,
    "torch.func per-example": TorchFunc,
    "Opacus per-example": Opacus,
    "BackPACK BatchL2Grad": BackpackNorms,
    "BackPACK Variance": BackpackVariance,
    "LayerNorm only (ours)": LayerNormOnly,
}


def table(title: str, make: Callable[[], nn.Module], data: Batch, size: int, trained: int) -> None:
    """All tools after `trained` plain steps of SGD."""
    torch.manual_seed(0)
    model, generator = make(), torch.Generator().manual_seed(1)
    batches = [
        (data[0][rows], data[1][rows]) for rows in torch.randint(POPULATION, (REPEATS + 1, size), generator=generator)
    ]
    warm_up, *batches = batches
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _, (x, y) in zip(range(trained), cycle(batches), strict=False):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    known = truth(model, data)
    shown = ", ".join(f"{name} {trace / signal:.2f}" for name, (signal, trace) in known.items())
    print(f"{title}, batch {size}, after {trained} steps: TrΣ/G by enumeration: {shown}", flush=True)
    tools: dict[str, Tool] = {"plain": Plain(model)}
    for name, kind in TOOLS.items():
        own = make()
        own.load_state_dict(model.state_dict())
        try:
            tool = kind(own)
            tool.step(warm_up)
        except ImportError as missing:
            print(f"  {name:28} not installed ({missing.name}): pip install '.[bench]'; see the top of this file")
        except Exception as refused:  # what a peer refuses is a result, whatever it raises
            print(f"  {name:28} refused: {' '.join(str(refused).split())[:90]}")
        else:
            tools[name] = tool
    compare(tools, batches, known["total"])


def compare(tools: dict[str, Tool], batches: list[Batch], known: Noise) -> None:
    """Time all tools on every batch, each beginning once, then their memory."""
    taken: dict[str, list[float]] = {name: [] for name in tools}
    names = list(tools)
    for number, batch in enumerate(batches):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            taken[name].append(seconds(lambda tool=tools[name], batch=batch: tool.step(batch)))  # type: ignore[misc]
    read = {name: tool.read() for name, tool in tools.items() if not isinstance(tool, Plain | Parts)}
    memory = {name: peak_memory(lambda tool=tool: tool.step(batches[0])) for name, tool in tools.items()}  # type: ignore[misc]
    for name in names[1:]:
        time = median(one / plain for one, plain in zip(taken[name], taken["plain"], strict=True))
        cost = f"time ×{time:5.2f}  peak memory ×{memory[name] / memory['plain']:5.2f}"
        reads = ""
        if name in read:
            signal, trace = read[name]
            shares = f"{trace / known[1]:.3f} of TrΣ, {signal / known[0]:.3f} of G"
            reads = f"  reads TrΣ/G {trace / signal:8.2f}  ({shares})"
        print(f"  {name:28} {cost}{reads}", flush=True)


def images(side: int = 32) -> Batch:
    """Noisy images of ten colours."""
    generator = torch.Generator().manual_seed(0)
    colours, labels = torch.randn(10, 3, 1, 1, generator=generator), torch.arange(POPULATION) % 10
    return colours[labels] + torch.randn(POPULATION, 3, side, side, generator=generator), labels


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    text = load_text("moby-dick", 32, subset=POPULATION)
    for trained in (0, 60):
        table("transformer", lambda: Transformer(text.num_classes), (text.train_x, text.train_y), 64, trained)
    for name, norm in (("GroupNorm", lambda channels: nn.GroupNorm(8, channels)), ("no norm", lambda _: nn.Identity())):
        table(f"3-conv net, {name}", lambda norm=norm: conv_net(norm), images(), 128, 0)  # type: ignore[misc]


if __name__ == "__main__":
    main()
