"""Noisy gradient descent with exactly SGD's covariance, from one weighted pass over the data (eq:noisy_gd, eq:em).

A weighted pass needs a separate loss for every example; models and data without that are refused.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader, IterableDataset

from svag.dynamics.gradient_pass import Batch, Before, LossFn
from svag.dynamics.refined_step import Clock, RefinedStep, refuse_other_model, refuse_strange_state
from svag.noise.batches import batch_size_of, refuse_swapped, split, tensors_of
from svag.noise.group import Group
from svag.noise.optimizer import sgd_settings, trained_parameters, unwrapped
from svag.noise.parameters import batch_norms
from svag.noise.uninterrupted import Uninterrupted, completed
from svag.theory import domain
from svag.theory.optimizers import WHAT_WORKS
from svag.theory.weights import IndependentSampling, noise_amplitude


class NoisyGD:
    r"""Gradient descent with Gaussian noise of the covariance that SGD has at `batch_size`.

    $$x \leftarrow x - \frac{\eta}{s}\sum_i c_i\nabla L_i(x), \qquad
      c_i = \frac1n + \sqrt{\frac{s}{nB}}\,(z_i - \bar z)\,\Bigl[\sqrt{\tfrac{n-B}{n-1}}\Bigr], \quad z \sim N(0, I_n)$$

    where n is the argument `dataset_size`, B is `batch_size`, s is `refine` and η is the optimizer's own `lr`. The
    bracket belongs to batches drawn without replacement. One backward pass over the data with these weights has the
    mean ∇L and exactly s times the covariance of a batch gradient; no per-example gradient is ever formed.

    >>> x = nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = torch.optim.SGD([x], lr=0.5)
    >>> noise = Generator().manual_seed(0)  # not used here: an infinite batch has no noise
    >>> gd = NoisyGD(nn.ParameterList([x]), optimizer, batch_size=math.inf, dataset_size=2, generator=noise)
    >>> gd.step(lambda batch: batch * x, [torch.tensor([1.0, 3.0])]).item(), x.item()
    (2.0, 0.0)

    Args:
        model: the model; BatchNorm and active Dropout are refused, because an example then has no loss of its own.
        optimizer: a `torch.optim.SGD`; momentum only with `refine=1`.
        batch_size: B of the SGD run; `math.inf` is gradient descent, bit for bit.
        dataset_size: n.
        generator: where the noise comes from; ranks that share a pass need generators in the same state.
        sampling: how the SGD run draws its batches.
        refine: s; 1 is NGD, s > 1 is Euler–Maruyama of the Itô SDE with step η/s: s calls of `step` are then one
            effective step, over which η is held.
        process_group: the ranks that share each pass, such as `torch.distributed.group.WORLD`. Each holds the same
            weights and passes the chunks of its own share of the data, of any size; the examples count in the order of
            the ranks. Every rank draws the noise of all n examples, gradients are added up in one message per step, and
            the loss is that of the whole data set.

    Reference: Li, Malladi, Arora (2021), eq:noisy_gd and eq:em; the weighting of one pass is ours.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        batch_size: float,
        dataset_size: int,
        generator: Generator,
        sampling: IndependentSampling = "without_replacement",
        refine: int = 1,
        process_group: ProcessGroup | None = None,
    ) -> None:
        self.refine = domain.refinement("refine", refine)
        self._amplitude = noise_amplitude(batch_size, dataset_size, sampling=sampling, refine=refine)
        self._n = domain.whole("dataset_size", dataset_size)
        if not isinstance(generator, Generator):
            raise TypeError(
                f"generator must be a torch.Generator, got {domain.shown(generator)}: give Generator().manual_seed(0)"
            )
        if isinstance(model, DistributedDataParallel):
            raise ValueError(
                "noisy gradient descent weighs examples across the whole pass, which DistributedDataParallel would "
                "average: give the model without its wrapper, and process_group"
            )
        optimizer = unwrapped(optimizer)
        sgd = sgd_settings(optimizer, "noisy gradient descent", WHAT_WORKS)
        if refine > 1 and any(settings.momentum for settings in sgd):
            raise ValueError(f"refine={refine} is the SDE of SGD without momentum: set momentum to 0, or refine to 1")
        refuse_layers(model)
        refuse_other_model(model, optimizer)
        self._model = model
        self._generator = generator
        self._group = Group(process_group)
        self._share: range | None = range(self._n) if self._group.size == 1 else None
        # with refine=1 nothing is refined, so every setting of SGD is allowed
        self._refined = RefinedStep(optimizer, self.refine, "overdamped" if refine == 1 else None)
        self.optimizer = optimizer
        self._clock = Clock(self.refine)
        self._guarded = False

    @property
    def effective_step(self) -> int:
        """Effective steps that have ended: calls of `step` over `refine`."""
        return self._clock.effective_step

    @property
    def time(self) -> float:
        """Σ η/s over all calls of `step`, η of the first parameter group."""
        return self._clock.time

    @property
    def boundary(self) -> bool:
        """Whether an effective step has just ended."""
        return self._clock.boundary

    def step(self, losses_fn: LossFn, chunks: Iterable[Batch]) -> Tensor:
        """Take one step from one pass over the data.

        Args:
            losses_fn: the losses of a chunk, one for every example.
            chunks: batches of any size that together hold every example once, in the same order every time; with
                `process_group`, every example of this rank.

        Returns:
            The mean loss over the data, detached. If anything goes wrong before the weights move, everything is
            restored, including the generator. An interrupt that arrives while they move is held until they have moved,
            and the step is counted; the same holds if a step post-hook of the optimizer fails.
        """
        refuse_swapped(losses_fn, chunks)
        generator, clock = self._generator.get_state(), replace(self._clock)
        before = Before(self._model, self.optimizer, weights=False)
        try:
            return self._step(losses_fn, chunks, self._draw())
        except BaseException:

            def undo() -> None:
                if (self._clock.effective_step, self._clock.substep) == (clock.effective_step, clock.substep):
                    before.restore()
                    self._clock = clock
                    self._generator.set_state(generator)
                self.optimizer.zero_grad()

            completed(undo)
            raise

    def state_dict(self) -> dict[str, Any]:
        """Where the run is, its generator included."""
        return {"clock": self._clock.state_dict(), "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        refuse_strange_state(state, self.state_dict())
        generator = state["generator"]
        try:
            Generator(self._generator.device).set_state(generator)  # tried on a copy, to load all or nothing
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                "the saved generator state is from another kind of generator: load another state"
            ) from error
        self._clock.load_state_dict(state["clock"])
        self._generator.set_state(generator)

    def __repr__(self) -> str:
        return f"NoisyGD(refine={self.refine}, effective_step={self.effective_step}, time={self.time:g})"

    def _draw(self) -> Tensor | None:
        """z ~ N(0, I_n), drawn once per step and independent of the chunks; None if there is no noise."""
        if self._amplitude == 0:
            return None
        dtype = self.optimizer.param_groups[0]["params"][0].dtype
        precise = dtype if dtype == torch.float64 else torch.float32
        return torch.randn(self._n, generator=self._generator, device=self._generator.device, dtype=precise)

    def _step(self, losses_fn: LossFn, chunks: Iterable[Batch], z: Tensor | None) -> Tensor:
        refuse_layers(self._model)
        if not self._guarded:
            refuse_random_dataset(chunks)
        share = self._own_share(chunks)
        self._refined.begin(self._clock)
        self.optimizer.zero_grad()
        total = self._weighted_pass(losses_fn, chunks, z, share)  # .grad = Σ c_i ∇L_i
        if self._group.size > 1:
            total = self._group.add_gradients(trained_parameters(self.optimizer), total)
        after = replace(self._clock)
        after.tick()
        with Uninterrupted(), self._refined:
            self._refined.step(partial(setattr, self, "_clock", after))  # x ← x − (η/s) .grad
        return total / self._n

    def _own_share(self, chunks: Iterable[Batch]) -> range:
        """The position of this rank's examples among the n; several ranks exchange it before their first step."""
        if self._share is None:
            if iter(chunks) is chunks:
                raise ValueError(
                    f"several ranks count their examples before the first step, and a {type(chunks).__name__} can be "
                    "gone through only once: give a list or a DataLoader"
                )
            device = self.optimizer.param_groups[0]["params"][0].device
            mine = sum(batch_size_of(chunk) for chunk in chunks)
            noise = _fingerprint(self._generator) if self._amplitude else 0
            ranks = self._group.gathered([mine, noise], device)
            held = [count for count, _ in ranks]
            if sum(held) != self._n:
                raise ValueError(
                    f"the ranks hold {' + '.join(map(str, held))} examples, not dataset_size={self._n}: give every "
                    "example to one rank"
                )
            if len({drawn for _, drawn in ranks}) > 1:
                raise ValueError(
                    "the generators of the ranks differ, but all ranks must draw the same noise: seed them alike"
                )
            start = sum(held[: self._group.rank])
            self._share = range(start, start + mine)
        return self._share

    def _weighted_pass(self, losses_fn: LossFn, chunks: Iterable[Batch], z: Tensor | None, share: range) -> Tensor:
        """Back-propagate Σ c_i L_i chunk by chunk and return Σ L_i, over the examples of this rank."""
        weights = torch.full((self._n,), 1 / self._n, dtype=torch.float64)
        if z is not None:
            weights = 1 / self._n + self._amplitude * (z - z.mean())
        weights, count = weights[share.start : share.stop], len(share)
        whole = f"dataset_size={count}" if self._group.size == 1 else f"{count} of this rank's"
        seen, total = 0, torch.zeros(())
        for chunk in chunks:
            if not self._guarded:
                self._guard(losses_fn, chunk)
            losses = per_example_losses(losses_fn, chunk)
            if not losses.requires_grad:
                raise ValueError(
                    "the losses do not depend on any trainable parameter: are they computed under no_grad or detached?"
                )
            if seen == 0:
                weights, total = weights.to(losses), torch.zeros_like(losses[:1]).sum()
            if seen + len(losses) > count:
                raise ValueError(f"chunks hold more than {whole} examples: give every example once")
            torch.autograd.backward(losses, weights[seen : seen + len(losses)])
            total += losses.detach().sum()
            seen += len(losses)
        if seen != count:
            raise ValueError(f"chunks held {seen} of the {whole} examples: give every example once")
        if seen and all(p.grad is None for p in trained_parameters(self.optimizer)):
            raise ValueError(
                "the losses do not depend on any parameter that the optimizer trains: build it from the parameters of "
                "the model that losses_fn uses"
            )
        return total

    def _guard(self, losses_fn: LossFn, chunk: Batch) -> None:
        """Check once in a run, before the first gradient, that the losses are a function of the data."""
        refuse_random(losses_fn, chunk)
        self._guarded = True


def _fingerprint(generator: Generator) -> int:
    """A number that identifies the state of a generator."""
    return int.from_bytes(hashlib.sha256(generator.get_state().numpy().tobytes()).digest()[:7], "big")


def refuse_layers(model: nn.Module) -> None:
    """Refuse a model with layers that mix examples or draw random numbers."""
    if layers := batch_norms(model):
        raise ValueError(
            f"{type(layers[0]).__name__} normalises by the batch, so an example has no loss of its own: "
            "use GroupNorm, or eval() it"
        )
    for name, module in model.named_modules():
        if isinstance(module, _DropoutNd) and module.training and module.p > 0:
            raise ValueError(
                f"{name} ({type(module).__name__}) draws a new mask in every pass, so the pass is not of one function: "
                "set its p to 0 or eval() it"
            )


def per_example_losses(losses_fn: LossFn, chunk: Batch) -> Tensor:
    """Return the losses of a chunk, or refuse if there is not one for every example."""
    losses: object = losses_fn(chunk)
    if not isinstance(losses, Tensor) or losses.shape != (batch_size_of(chunk),):
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(
            f"losses_fn must return one loss for each of the {batch_size_of(chunk)} examples of a chunk, got {shape}: "
            "use reduction='none' and average over all but the first dimension"
        )
    return losses


def refuse_random(losses_fn: LossFn, chunk: Batch) -> None:
    """Evaluate one chunk twice, and its first example alone, and refuse losses that differ."""
    with torch.no_grad():
        once, again = per_example_losses(losses_fn, chunk), per_example_losses(losses_fn, chunk)
        if not _alike(once, again):
            raise ValueError(
                "losses_fn gave two answers for the same chunk, so the pass is not of one function: "
                "switch off random augmentation (augment once, before training) and dropout"
            )
        alone = split(chunk, batch_size_of(chunk))[0]
        if not _alike(once[:1], per_example_losses(losses_fn, alone)):
            raise ValueError(
                "the loss of an example depends on the other examples of its chunk, so it has none of its own: "
                "use GroupNorm or LayerNorm and a loss that looks at one example at a time"
            )


def refuse_random_dataset(chunks: object) -> None:
    """Refuse a DataLoader whose dataset gives two versions of its first example."""
    if not isinstance(chunks, DataLoader) or isinstance(chunks.dataset, IterableDataset):
        return
    once, again = tensors_of(chunks.dataset[0]), tensors_of(chunks.dataset[0])
    if not all(torch.equal(one, other) for one, other in zip(once, again, strict=True)):
        raise ValueError(
            "the dataset gave two versions of its first example: switch off random augmentation "
            "(augment once, before training), because noisy gradient descent needs the same data in every pass"
        )


def _alike(one: Tensor, other: Tensor) -> bool:
    tolerance = math.sqrt(torch.finfo(one.dtype).eps)
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
