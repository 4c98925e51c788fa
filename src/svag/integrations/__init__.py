"""Measuring in a loop that a framework runs: what Lightning and the Hugging Face Trainer have in common.

Neither of them is imported here, and each adapter only when it is asked for.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from svag.noise.batches import batch_size_of, epoch_size
from svag.noise.probe import NoiseProbe
from svag.noise.reading import Reading
from svag.noise.undisturbed import undisturbed
from svag.prices.price_list import PriceList, price_list
from svag.prices.progress import FEWEST
from svag.theory import domain

BatchLoss = Callable[[Any], Tensor]

# In so many parts a batch is cut by default, as by NoiseProbe.backward.
_PARTS = 4


def parts_of(size: int) -> int:
    """In how many equal parts a batch of `size` examples is cut: 4 if that is possible, or else as few as can be.

    >>> [parts_of(size) for size in (32, 6, 9, 7)]
    [4, 2, 3, 7]
    """
    if size < 2:
        raise ValueError(
            f"a batch of {size} example cannot be cut into parts: accumulate gradients over at least two micro-batches"
        )
    return _PARTS if size % _PARTS == 0 else next(parts for parts in range(2, size + 1) if size % parts == 0)


class LoopProbe:
    """A `NoiseProbe` that is made when the first batch is seen, for a loop that a framework runs.

    The adapter says what the loop does: `see` for every batch before its forward pass, `micro_batch` after every
    backward pass, `end_step` before gradients are clipped. A step that is short, because an epoch has ended, is left
    out of the readings.

    Args:
        batch_size: examples averaged by one optimizer step; by default from the first batch.
        population: examples of the data set; by default what the loader tells.
        parameters: measure only these.
        every: measure each so many steps.
        loss_fn: takes a batch, returns its mean loss.
    """

    def __init__(
        self,
        *,
        batch_size: int | None,
        population: int | None,
        parameters: Iterable[Tensor] | None,
        every: int,
        loss_fn: BatchLoss | None,
    ) -> None:
        self.batch_size = None if batch_size is None else domain.whole("batch_size", batch_size, at_least=2)
        self.population, self.loss_fn = population, loss_fn
        self.parameters = None if parameters is None else list(parameters)
        self.every = domain.whole("every", every)
        self.probe: NoiseProbe | None = None
        self._size: int | None = None
        self._micro_batches: int | None = None
        self._counted, self._short = 0, False
        self._state: dict[str, Any] | None = None

    @property
    def readings(self) -> Sequence[Reading]:
        """The readings so far, oldest first."""
        return [] if self.probe is None else self.probe.readings

    @property
    def found(self) -> PriceList:
        """What larger batches cost, from the readings so far."""
        return price_list(self.readings)

    def print_found(self) -> None:
        """Print the price list, if there are readings."""
        if self.readings:
            print(self.found)

    def announce(self, steps: float) -> None:
        """Say at the start that a run of `steps` is too short for a price list, if it is."""
        needed = FEWEST * self.every
        if steps < needed:
            print(
                f"This run has {steps:.0f} steps, and a price list needs about {needed}: train longer"
                + (", or measure more often with a smaller every=." if self.every > 1 else ".")
            )

    def scalars(self) -> dict[str, float]:
        """What a logger gets, by its name there."""
        found = {} if self.probe is None else self.probe.scalars()
        return {f"svag/{name}": value for name, value in found.items()}

    def see(self, batch: object, last: bool) -> None:
        """Look at the size of a batch: a short one may only be the `last` of an epoch."""
        try:
            size = batch_size_of(batch)
        except TypeError as error:
            if self.batch_size is None:
                raise TypeError(f"{error}; give batch_size=, the examples of one optimizer step") from None
            return
        if self._size is None:
            self._size = size
        elif size < self._size and (last or self.batch_size is not None):
            self._short = True
        elif size != self._size and self.batch_size is None:
            raise ValueError(
                f"a batch of {size} examples came after batches of {self._size}: use batches of one size, or give "
                "batch_size= if the leading dimension of its first tensor does not count the examples"
            )

    @property
    def size(self) -> int:
        """Examples of one batch, as first seen."""
        return self._size or self.batch_size or 0

    @property
    def counted(self) -> int:
        """Backward passes of the step that has begun."""
        return self._counted

    def take_short(self) -> bool:
        """Whether the batch that was seen is a short one; it is not asked about twice."""
        short, self._short = self._short, False
        return short

    def restart(self, continued: bool) -> None:
        """A run begins; if it is `continued`, the readings so far are part of it."""
        if self.probe is not None:
            self._state = self.probe.state_dict()
        if not continued:
            self._state = None
        self.probe, self._size, self._counted, self._short = None, None, 0, False

    def start(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        micro_batches: int,
        ranks: int = 1,
        loader: object = None,
        in_parts: bool = False,
    ) -> NoiseProbe:
        """Make the probe of a loop whose steps are `micro_batches` on each of `ranks`; the first batch was seen."""
        if micro_batches * ranks < 2:
            raise ValueError(
                "a step of one backward pass on one device cannot be measured: accumulate gradients over at least two "
                "micro-batches, or give loss_fn=, which takes a batch and returns its mean loss"
            )
        size = self.batch_size or self.size * ranks * (1 if in_parts else micro_batches)
        population = self.population
        if population is None and isinstance(loader, Iterable):
            population = epoch_size(loader)
            population = population if population is not None and population >= size else None
        self.probe = NoiseProbe(
            model,
            optimizer,
            batch_size=size,
            population=population,
            parameters=self.parameters,
            every=1 if in_parts else self.every,
        )
        if self._state is not None:
            self.probe.load_state_dict(self._state)
        self._micro_batches, self._counted = micro_batches, 0
        return self.probe

    def micro_batch(self, scale: float = 1.0, weight: float | None = None) -> int:
        """A backward pass is over; return how many the step has had. A step with a part of no weight is left out."""
        self._counted += 1
        if weight == 0:
            self._short = True
        elif self.probe is not None:
            self.probe.micro_batch(scale, weight)
        return self._counted

    def end_step(self, step: int) -> int:
        """All gradients of an optimizer step are there; return from how many backward passes."""
        counted, short, self._counted = self._counted, self.take_short(), 0
        if self.probe is None:
            return counted
        if short or counted < (self._micro_batches or 0):
            self.probe.skip_step()
        else:
            self.probe.close_step(step=step)
        return counted

    def measure(
        self, model: nn.Module, loss_fn: BatchLoss, batch: Any, *, step: int, scaler: GradScaler | None
    ) -> None:
        """Read the parts of one batch beside its step, at the same weights and without a trace."""
        assert self.probe is not None
        gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
        with undisturbed(model):
            for parameter, _ in gradients:
                parameter.grad = None
            try:
                self.probe.backward(loss_fn, batch, parts_of(self.size), scaler=scaler, step=step)
            finally:
                for parameter, gradient in gradients:
                    parameter.grad = gradient

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {"probe": self._state if self.probe is None else self.probe.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint, when the probe is made."""
        self.probe, self._state = None, state["probe"]

    def close(self) -> None:
        """Take the probe off the model; the readings stay."""
        if self.probe is not None:
            self.probe.close()
