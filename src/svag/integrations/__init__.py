"""Measuring, and stepping by the gain rule, in a loop that a framework runs: what Lightning and Hugging Face share.

Neither of them is imported here, and each adapter is imported only on request.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from svag.dynamics.gain_rule import GainRule
from svag.noise.batches import batch_size_of, epoch_size
from svag.noise.cadence import Cadence, Every
from svag.noise.probe import NoiseProbe
from svag.noise.reading import Reading
from svag.noise.throughput import wait_for
from svag.noise.undisturbed import undisturbed
from svag.prices.basis import FEWEST
from svag.prices.price_list import PriceList, price_list
from svag.theory import domain

BatchLoss = Callable[[Any], Tensor]

# Number of parts into which a batch is cut by default, as in NoiseProbe.backward.
_PARTS = 4


def parts_of(size: int) -> int:
    """The number of equal parts for a batch of `size` examples: 4 if possible, otherwise as few as possible.

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

    The adapter reports what the loop does: `see` for every batch before its forward pass, `micro_batch` after every
    backward pass, `end_step` before gradients are clipped. A step that is short, because an epoch has ended, is left
    out of the readings. With `base_batch_size`, a `svag.GainRule` on top of the probe takes the steps.

    Args:
        batch_size: examples averaged by one optimizer step; by default from the first batch.
        population: number of examples in the data set; by default that of the loader.
        parameters: measure only these.
        every: measure every `every`-th step, or "auto". With `base_batch_size`, "auto" is every step, since training
            must not depend on timing.
        loss_fn: takes a batch, returns its mean loss.
        base_batch_size: batch size of the baseline, whose steps a gain rule counts; None: only measure.
        check_loss: where a batch is cut into parts, compare its gradient with that of the parts once.
        verbose: print what there is to say: at the start, when "auto" has chosen, and at the end.
    """

    def __init__(
        self,
        *,
        batch_size: int | None,
        population: int | None,
        parameters: Iterable[Tensor] | None,
        every: Every,
        loss_fn: BatchLoss | None,
        base_batch_size: int | None = None,
        check_loss: bool = True,
        verbose: bool = True,
    ) -> None:
        if not isinstance(check_loss, bool):
            raise ValueError(f"check_loss must be True or False, got {domain.shown(check_loss)}")
        self._check_loss = check_loss
        self.batch_size = None if batch_size is None else domain.whole("batch_size", batch_size, at_least=2)
        self.population, self.loss_fn = population, loss_fn
        self.parameters = None if parameters is None else list(parameters)
        self.every: Every = 1 if every == "auto" and base_batch_size is not None else every
        self._cadence = Cadence(self.every)  # for steps measured in a separate pass
        self._steps: float | None = None
        self.base_batch_size = None if base_batch_size is None else domain.whole("base_batch_size", base_batch_size)
        self.base_steps: int | None = None
        self.verbose = verbose
        self.probe: NoiseProbe | None = None
        self.rule: GainRule | None = None
        self._size: int | None = None
        self._micro_batches: int | None = None
        self._in_parts, self._ranks = False, 1
        self._counted, self._examples, self._short = 0, 0, False
        self._state: dict[str, Any] | None = None
        self._logged: tuple[Reading | None, dict[str, float]] = (None, {})

    @property
    def readings(self) -> Sequence[Reading]:
        """The readings so far, oldest first."""
        return [] if self.probe is None else self.probe.readings

    @property
    def found(self) -> PriceList:
        """What larger batches cost, from the readings so far; by the gain rule, with rates as factors of this run's."""
        if self.base_batch_size is None:
            return price_list(self.readings)
        # readings carry the baseline's rate, and the steps were taken at another
        return price_list([replace(reading, lr=None) for reading in self.readings])

    def print_found(self) -> None:
        """Print the price list, if there are readings; after a run by the gain rule, what it cost."""
        if not self.verbose:
            return
        if self.rule is not None and self.rule.price is not None:
            print(_cost(self.rule, self.base_batch_size, self.base_steps))
        elif self.base_batch_size is None and self.readings:
            print(self.found)

    def announce(self, steps: float) -> None:
        """Warn at the start if a run of `steps` is too short for a price list."""
        every = 1 if self.every == "auto" else self.every
        if not self.verbose or self.base_batch_size is not None:
            return
        if steps < FEWEST * every:
            print(
                f"This run has {steps:.0f} steps, and a price list needs about {FEWEST * every}: train longer"
                + (", or measure more often with a smaller every=." if every > 1 else ".")
            )
        self._steps = steps if self.every == "auto" else None

    def _say_chosen(self) -> None:
        """Print once how often steps are measured and, if the length of the run is known, what that will give."""
        cadence = self._cadence if self._in_parts or self.probe is None else self.probe.cadence
        if self._steps is None or cadence.every is None:
            return
        steps, self._steps = self._steps, None
        if math.isinf(steps):
            return
        readings = cadence.readings(int(steps))
        enough = (
            "enough for a price list"
            if readings >= FEWEST
            else f"and a price list needs about {FEWEST}: train longer, or give every={max(1, int(steps) // FEWEST)}, "
            "which slows the run more"
        )
        often = "every step" if cadence.every == 1 else f"every {cadence.every} steps"
        print(f"Measuring {often} slows this run by about 3%: {readings} readings by its end, {enough}.")

    def scalars(self) -> dict[str, float]:
        """The numbers for a logger, by their names there."""
        # a logger asks more often than there are readings
        last = self.readings[-1] if self.readings else None
        if self.probe is not None and last is not self._logged[0]:
            self._logged = last, self.probe.scalars()
        found = dict(self._logged[1])
        if self.probe is not None and self.probe.skipped:  # also where no reading has followed
            found["skipped"] = self.probe.skipped
        if self.rule is not None and self.rule.gain is not None and self.rule.price is not None:
            found |= {"gain": self.rule.gain, "price": self.rule.price, "baseline_step": self.rule.time}
        return {f"svag/{name}": value for name, value in found.items()}

    def see(self, batch: object, last: bool) -> None:
        """Check the size of a batch: only the `last` of an epoch may be short."""
        try:
            size = batch_size_of(batch)
        except TypeError as error:
            if self.batch_size is None:
                raise TypeError(f"{error}; give batch_size=, the examples of one optimizer step") from None
            return
        self._examples += size
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
        """Return whether the batch seen last is a short one, and forget it."""
        short, self._short = self._short, False
        return short

    def restart(self, continued: bool) -> None:
        """Begin a run; if it is `continued`, the readings so far are part of it."""
        if self.probe is not None:
            self._state = self.state_dict()
            self.close()
        if not continued:
            self._state = None
        self.probe = self.rule = self._size = None
        self._logged = (None, {})
        self._counted, self._examples, self._short = 0, 0, False

    @property
    def checks_loss(self) -> bool:
        """Whether the loss is checked at the first step; not again in a run that is continued."""
        return self._check_loss and self._state is None

    @property
    def restored_time(self) -> float:
        """Baseline steps passed in the run that is continued; 0 if there is none."""
        saved = None if self._state is None else self._state.get("rule")
        return 0.0 if saved is None else float(saved["time"])

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
        if self.base_batch_size is not None and size < self.base_batch_size:
            raise ValueError(
                f"a step averages {size} examples, fewer than base_batch_size={self.base_batch_size}, so that some "
                "steps would be worth none of the schedule's, and the framework takes one each time: use a larger "
                "batch or more accumulation here, or svag.GainRule in a loop of your own"
            )
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
            check_loss=self._check_loss,
        )
        self._cadence = Cadence(self.every, wait=partial(wait_for, model))
        if self._state is not None:
            self.probe.load_state_dict(self._state["probe"])
            self._cadence.load_state_dict(self._state.get("cadence"))
        if self.base_batch_size is not None:
            self.rule = GainRule(self.probe, self.base_batch_size, self.base_steps)
            if self._state is not None:
                self.rule.load_state_dict(self._state["rule"])
        self._micro_batches, self._in_parts, self._ranks = micro_batches, in_parts, ranks
        self._counted = 0
        return self.probe

    def measures(self, step: int) -> bool:
        """Whether parts of the batch are measured in this step; if not, the rule is told so."""
        short, due = self.take_short(), self._cadence.next(step)
        examples, self._examples = self._examples, 0
        self._say_chosen()
        if due and not short:
            return True
        self._pass_over(examples)
        return False

    def _pass_over(self, examples: int) -> None:
        """Skip measuring a step with `examples` examples on this rank: its gain is that of the averages so far."""
        assert self.probe is not None
        self.probe.skip_step()
        whole = self.size * (1 if self._in_parts else self._micro_batches or 1)
        if self.rule is None or self._ranks > 1 or self._size is None or examples >= whole:
            return  # ranks do not know how many examples the others have, and must not disagree about κ
        usual = self.probe.batch_size
        # at least one step of the schedule, which the framework takes in any case
        self.probe.batch_size = max(round(usual * examples / whole), self.base_batch_size or 2, 2)
        self.probe.skip_step()
        self.probe.batch_size = usual

    def micro_batch(self, scale: float = 1.0, weight: float | None = None) -> int:
        """Count a backward pass; return how many the step has had. A step with a part of zero weight is left out."""
        self._counted += 1
        if weight == 0:
            self._short = True
        elif self.probe is not None:
            self.probe.micro_batch(scale, weight)
        return self._counted

    def end_step(self, step: int) -> int:
        """End a step, once all its gradients have been computed; return the number of backward passes."""
        counted, short, self._counted = self._counted, self.take_short(), 0
        examples, self._examples = self._examples, 0
        if self.probe is None:
            return counted
        if short or counted < (self._micro_batches or 0):
            self._pass_over(examples)
        else:
            self.probe.close_step(step=step)
            self._say_chosen()
        return counted

    def measure(
        self, model: nn.Module, loss_fn: BatchLoss, batch: Any, *, step: int, scaler: GradScaler | None
    ) -> None:
        """Measure the parts of a batch in a separate pass, at the weights of its step and without a trace."""
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
        """The content of a checkpoint."""
        if self.probe is None:
            return self._state or {"probe": None, "rule": None}
        return {
            "probe": self.probe.state_dict(),
            "rule": None if self.rule is None else self.rule.state_dict(),
            "cadence": self._cadence.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint once the probe has been made."""
        self.close()
        if state["probe"] is not None and (state["rule"] is None) != (self.base_batch_size is None):
            raise ValueError(
                "the checkpoint is of a run "
                + ("without" if state["rule"] is None else "with")
                + " the gain rule, and "
                "this one is not: give base_batch_size as in the run that it continues"
            )
        self.probe, self.rule, self._state = None, None, state if state["probe"] is not None else None

    def close(self) -> None:
        """Take the rule off the optimizer and the probe off the model; the readings stay."""
        if self.rule is not None:
            self.rule.close()
        if self.probe is not None:
            self.probe.close()


def _cost(rule: GainRule, base_batch_size: int | None, base_steps: int | None) -> str:
    """One sentence about a run by the gain rule."""
    of_all = "" if base_steps is None or rule.done else f" of {base_steps}, where the baseline ends"
    return (
        f"By the gain rule {rule.state_dict()['steps']} steps did the work of {rule.time:.0f} steps at batch size "
        f"{base_batch_size}{of_all}, with {rule.price:.3g} times the examples."
    )
