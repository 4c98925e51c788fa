"""The in-run probe: G and N of every step of an ordinary run, from gradients that the run computes anyway."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed import ProcessGroup
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from svag.noise.batches import Cutting, batch_size_of, epoch_size, mean_loss, without_population
from svag.noise.frozen import MOST_BATCHES, PartsComparison, compare_parts
from svag.noise.optimizer import settings_of, state_for_later, unwrapped, velocities
from svag.noise.parameters import (
    batch_norms,
    measured_parameters,
    refuse_flat_shards,
    refuse_sparse,
    refuse_stale_gradients,
    square_norm,
)
from svag.noise.pending import KEPT, ClosedStep, PendingReadings, StepReading, StepSums
from svag.noise.reading import Reading, load_readings, reading_of, row_of
from svag.noise.recorders import recording_of
from svag.noise.undisturbed import buffers_kept_on_error
from svag.printed import Printed
from svag.theory import domain

if TYPE_CHECKING:
    from svag.prices.price_list import PriceList

Batch = TypeVar("Batch")


class NoiseProbe(Printed):
    """Measure G, N and R at every step, or at every k-th, from the micro-batches of the step on all its ranks.

    Three ways to use it, each giving one reading a step:

    - plain loop: `loss = probe.backward(loss_fn, batch, parts=4)` instead of `loss_fn(batch).backward()`;
    - accumulation loop: `probe.micro_batch()` after each micro-batch's `backward()`, `probe.close_step()` before
      `optimizer.step()`;
    - DistributedDataParallel (give the wrapped model): the same, and the micro-batches of all ranks are the parts; with
      `probe.close_step()` alone the ranks are. A model that `fully_shard` has sharded: the same, and micro-batches, at
      least two, are the parts.

    Ranks without a wrapper share the batch with `process_group`: each calls `backward`, or `micro_batch` and
    `close_step`, for the parts that it has, and finds the gradient of the whole batch in `.grad`.

    Otherwise `.grad` is read and never changed: the optimizer sees exactly the gradients of the micro-batched step.
    Clip, and unscale a GradScaler, after `close_step()`. It takes the memory of one gradient; under
    DistributedDataParallel none, and `close` takes the hooks off the model. The device is waited for when readings or
    scalars are asked for and once in 1024 steps, in `backward` also for a GradScaler's factor and for gradients zeroed
    without `set_to_none`.
    In `backward`, BatchNorm normalises each part by itself: such readings are labelled `approximate`, and given some
    batches (`check`) the probe compares once with a frozen reading of whole ones and says by how much in `parts_ratio`.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.ones_(model.weight)
    >>> probe = NoiseProbe(model, torch.optim.SGD(model.parameters(), lr=0.5), batch_size=2)
    >>> probe.backward(lambda x: model(x).mean(), torch.tensor([[1.0], [3.0]]), parts=2)
    tensor(2.)
    >>> print(probe.readings[0])
    G = 3, N = 1 at batch size 2, R = 1 (2 gradients)

    Args:
        model: the model that trains; under data parallelism the DistributedDataParallel wrapper.
        optimizer: its optimizer, asked for learning rate, weight decay, momentum and velocity, or the second moment.
        batch_size: examples averaged by one optimizer step, over all micro-batches and ranks.
        population: size of the data set when the examples of a batch are distinct: drawn without replacement, or a
            shuffled epoch.
        parameters: measure only these, for example the weights that decay.
        run: name of the run, for the readings.
        check: independent batches of the training size, a loader for example. If the model has BatchNorm, the first
            `backward` compares up to 20 of them whole and in parts, at the weights it finds and without a trace; the
            result is `comparison`, and its ratio goes into the readings.
        every: measure only each so many-th step, the first one included. `backward` takes the others whole, as a plain
            step, and `micro_batch` and `close_step` do next to nothing in them.
        save_to: append the readings to this file of its own, for `svag.load_readings`; `readings` then has the last
            1,000. They are written when they are asked for, every 1024, and by `state_dict` and `close`; by one rank.
        process_group: the ranks that share each batch, such as `torch.distributed.group.WORLD`; all of them hold the
            same weights and call the same methods. They may have different numbers of parts, but all parts have one
            size. Closing a step averages `.grad` over the ranks, and so does `skip_step`.

    Attributes:
        optimizer: the one that was given, with its wrapper.
        measure_short: measure short batches of one process too, for `last_step` alone; `svag.GainRule` asks for it.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        batch_size: int,
        population: int | None = None,
        parameters: Iterable[Tensor] | None = None,
        run: str = "",
        check: Iterable[Any] | None = None,
        every: int = 1,
        save_to: str | Path | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        batch_size = _checked_size(batch_size, population)
        if population is None and check is not None and (missing := without_population(batch_size, epoch_size(check))):
            warnings.warn(missing, stacklevel=2)
        refuse_flat_shards(model)
        self.optimizer, optimizer = optimizer, unwrapped(optimizer)
        self.measure_short = False
        named = measured_parameters(model, parameters)
        self._parameters = list(named.values())
        refuse_sparse(model, self._parameters)
        settings_of(optimizer, self._parameters)
        self._model, self._optimizer, self._batch_size = model, optimizer, batch_size
        self._population, self._run, self._every = population, run, domain.whole("every", every)
        # looked through at every step, where the whole model would take longer than a small gradient
        self._norms = nn.ModuleList(module for module in model.modules() if isinstance(module, _BatchNorm))
        self._has_norms = len(self._norms) > 0
        self._closed, self._passed, self._tried, self._open = 0, 0, False, True
        self._begun: int | None = None
        self._told_of_short, self._begins = False, True
        self._accumulated: int | None = None
        self._last_step: ClosedStep | None = None
        self._check = check
        self._comparison: PartsComparison | None = None
        self._recording = recording_of(model, named, optimizer, process_group)
        self._recorder, ranks = self._recording.recorder, self._recording.ranks
        self._pending = PendingReadings("step", "steps", save_to, writes=self._recording.first, run=run)
        if check is not None and ranks > 1:
            self.close()
            raise ValueError("check= compares the parts of one process, and here the ranks are the parts: leave it out")
        self._cutting = Cutting(batch_size, ranks, uneven=self._recording.shared, at_least=self._recording.at_least)

    @property
    def readings(self) -> Sequence[Reading]:
        """One reading per measured step, oldest first; with `save_to`, the last 1,000. It waits for the device.

        Asking is cheap: it is a view that does not change afterwards, and equals a list.
        """
        return self._pending.collect()

    @property
    def batch_size(self) -> int:
        """Examples of one optimizer step, over all micro-batches and ranks; set it between two steps.

        The batches after that have the new size, and `parts` must divide it; readings carry the size of their own step.

        >>> model = nn.Linear(1, 1)
        >>> probe = NoiseProbe(model, torch.optim.SGD(model.parameters(), lr=0.5), batch_size=2)
        >>> probe.batch_size = 4
        >>> _ = probe.backward(lambda x: model(x).mean(), torch.ones(4, 1), parts=2)
        >>> probe.readings[0].batch_size
        4
        """
        return self._batch_size

    @batch_size.setter
    def batch_size(self, value: int) -> None:
        if self._passed:
            raise ValueError(
                f"batch_size cannot change within a step, and {self._passed} micro-batches of one have passed: set it "
                "after close_step() and before the next micro_batch()"
            )
        size = _checked_size(value, self._population)
        if size != self._batch_size:
            self._batch_size, self._cutting, self._accumulated = size, replace(self._cutting, batch_size=size), None

    @property
    def population(self) -> int | None:
        """Size of the data set, where the examples of a batch are distinct."""
        return self._population

    @property
    def last_step(self) -> ClosedStep | None:
        """The step that was closed or skipped last, its reading still on the device; None before the first."""
        return self._last_step

    @property
    def measuring(self) -> bool:
        """Whether the step that is under way, or comes next, is measured: with `every`, not each is."""
        return self._closed % self._every == 0

    def scalars(self) -> dict[str, float]:
        """Numbers for any logger, over the last 1,000 readings: ratios of averages, as `svag.price_list` has.

        The keys are noise_to_signal, noise_to_signal_low, critical_batch, b_simple, distortion_2x, distortion_4x,
        gain_2x and gain_4x.
        What is not resolved yet is absent, never NaN. It waits for the device, so call it when you log.

        >>> model = nn.Linear(1, 1)
        >>> NoiseProbe(model, torch.optim.SGD(model.parameters(), lr=0.5), batch_size=2).scalars()
        {}
        """
        from svag.prices.scalars import logged_numbers  # and scipy, which measuring does not need

        return logged_numbers(self.readings[-KEPT:])

    def price_list(
        self, c2: float = 2.0, confidence: float = 0.95, window: tuple[int, int] | tuple[float, float] | None = None
    ) -> "PriceList":
        """What other batch sizes cost, from all readings so far; with `save_to`, from all in the file.

        Arguments as in `svag.price_list`. After a run by a measured `svag.GainRule` rates are given as factors: its
        readings carry the baseline's rate, and its steps were taken at another.
        """
        from svag.prices.price_list import price_list

        readings = self._all_readings()
        if self.measure_short:
            readings = [replace(reading, lr=None) for reading in readings]
        return price_list(readings, c2, confidence, window)

    def _all_readings(self) -> Sequence[Reading]:
        kept = self.readings  # what is asked for is written
        path = self._pending.path
        return kept if path is None else [one for one in load_readings(path) if one.run == self._run]

    def __str__(self) -> str:
        from svag.prices.progress import progress

        return progress(self._all_readings(), self._closed, self._every, self._batch_size)

    def state_dict(self) -> dict[str, Any]:
        """Where the probe is, for a checkpoint between two steps: plain numbers, strings and lists."""
        found = self._comparison
        return {
            "closed": self._closed,
            "batch_size": self._batch_size,
            "tried": self._tried,
            "told_of_short": self._told_of_short,
            "accumulated": self._accumulated,
            "comparison": None if found is None else [row_of(found.whole), row_of(found.parts)],
            **self._pending.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was called; what `save_to` got after that is cut off."""
        self._refuse_closed()
        self._pending.load_state_dict(state)
        self._forget()
        self.batch_size = state.get("batch_size", self._batch_size)  # a checkpoint of version 0.1.0 has none
        self._closed, self._tried, self._begins = state["closed"], state["tried"], False
        self._told_of_short, self._accumulated = state["told_of_short"], state["accumulated"]
        if state["comparison"] is not None:
            self._comparison, self._check = PartsComparison(*map(reading_of, state["comparison"])), None
        self._last_step = None
        self._recorder.listen(self.measuring)

    @property
    def comparison(self) -> PartsComparison | None:
        """How N and G of parts compare with those of whole batches, once this was found out."""
        return self._comparison

    def compare(self, loss_fn: Callable[[Batch], Tensor], batches: Iterable[Batch], parts: int = 4) -> PartsComparison:
        """Compare parts with whole batches now, at frozen weights and without a trace, instead of at the first step.

        Later readings of `backward` with BatchNorm carry the ratio.

        Args:
            loss_fn: takes a batch, whole or a part, returns its mean loss.
            batches: independent batches of the training size; up to 20 are used.
            parts: in how many parts `backward` cuts a batch.
        """
        self._refuse_closed()
        if self._cutting.ranks > 1:
            raise ValueError("the ranks are the parts here: compare on one process, with the unwrapped model")
        found = compare_parts(
            self._model, loss_fn, batches, parts, max_batches=MOST_BATCHES, parameters=self._parameters
        )
        if found.whole.batch_size != self._batch_size:
            raise ValueError(
                f"the batches to compare with have {found.whole.batch_size} examples, but the probe was made for "
                f"batch_size={self._batch_size}: give batches of one optimizer step"
            )
        self._comparison, self._check = found, None
        return found

    def backward(
        self,
        loss_fn: Callable[[Batch], Tensor],
        batch: Batch,
        parts: int = 4,
        *,
        scaler: GradScaler | None = None,
        step: int | None = None,
    ) -> Tensor:
        """Back-propagate `batch` in equal parts and close the step; return its mean loss, detached.

        With `process_group` it is the mean loss of the whole batch, under DistributedDataParallel that of this rank.

        Call it with zeroed gradients, which they are again after an error. Running statistics (BatchNorm) are then as
        they were if this was the first step; later they keep what the parts before the error did to them.

        A batch shorter than `batch_size`, as at the end of an epoch, is back-propagated without a reading, and the
        first one with a warning. A probe that has not seen a whole batch yet refuses it. Where `svag.GainRule` takes
        the steps of one process, a short batch of several pieces is measured for the rule alone.

        Args:
            loss_fn: takes a batch (here: a part of one), returns its mean loss.
            batch: the examples of this step, on this rank.
            parts: in how many parts the batch is cut; it must divide the batch. Ranks count as parts by themselves.
                With `process_group`, parts of the share of this rank.
            scaler: scales the losses, when the run uses one.
            step: effective step of the run; by default, how many came before, short ones included.
        """
        self._refuse_closed()
        size, cutting, due = batch_size_of(batch), self._cutting, self.measuring
        short = self._tried and cutting.is_short(size)
        pieces, measured = cutting.pieces(batch, parts, measured=due, short=short), due and not short
        # pieces of unequal sizes have weights, which on several ranks would depend on what the others have
        aside = due and short and self.measure_short and cutting.ranks == 1 and len(pieces) > 1
        refuse_stale_gradients(self._model)
        self._forget()
        before = [(parameter, parameter.grad) for parameter in self._model.parameters()]
        # under DistributedDataParallel a rank's batch that is not cut is what BatchNorm sees in the run itself
        uncut = len(pieces) == 1 and not self._recording.shared
        approximate = bool(batch_norms(self._norms, synchronised_only=uncut))
        if measured and approximate and self._check is not None:
            self.compare(loss_fn, self._check, parts)
        try:
            # what loss_fn returns is found out at the first step; from then on buffers need no safety copy
            with nullcontext() if self._tried else buffers_kept_on_error(self._model):
                losses = []
                for number, piece in enumerate(pieces, start=1):
                    with self._unsynchronised(number < len(pieces)):
                        loss = mean_loss(loss_fn, piece) / (size / batch_size_of(piece))
                        (loss if scaler is None else scaler.scale(loss)).backward()
                    if measured or aside:
                        weight = batch_size_of(piece) / size if aside else None
                        self._recorder.micro_batch(1.0 if scaler is None else scaler.get_scale(), weight)
                    losses.append(loss.detach())
                loss = torch.stack(losses).sum()
                if measured:
                    sums = self._recorder.close(loss, size)
                    if self._recording.shared:  # what all ranks together must have counted
                        sums = replace(sums, expected=self._batch_size * len(pieces) // size)
                    self._keep(sums, step, approximate)
                    loss = loss if sums.loss is None else sums.loss
                elif aside:
                    self._advance(ClosedStep(size, self._reading(self._recorder.close(), step, approximate, size)))
                else:
                    loss = self._recorder.skip(loss, size)
                    known = cutting.ranks == 1 or not short
                    self._advance(ClosedStep((size if short else self._batch_size) if known else None))
        except BaseException:
            self._forget()
            for parameter, gradient in before:
                parameter.grad = None if gradient is None else gradient.zero_()
            raise
        if short and due and not aside and not self._told_of_short:
            self._told_of_short = True
            # the first short batch ends the first epoch, unless the probe came in the middle of one
            whole = self._population is None and cutting.ranks == 1 and self._begins
            cutting.warn_of_short(size, (self._closed - 1) * self._batch_size + size if whole else None)
        self._tried = True
        return loss

    def micro_batch(self, scale: float = 1.0, weight: float | None = None) -> None:
        """Close one micro-batch, after its `backward()`; its loss is already divided by their number, or weighted.

        Args:
            scale: a GradScaler's factor, `scaler.get_scale()`.
            weight: the share of the step's tokens or examples that this micro-batch holds, where micro-batches differ;
                its mean loss was multiplied by it. Those of a step, on all ranks, add up to 1.
        """
        self._refuse_closed()
        if scale != 1.0:
            domain.positive("scale", scale)
        if weight is not None:
            domain.positive("weight", weight)
        self._refuse_unclosed_step()
        self._passed += 1
        if self.measuring:
            self._recorder.micro_batch(scale, weight)

    def close_step(self, *, step: int | None = None, approximate: bool | None = None) -> None:
        """Close one step, before gradients are unscaled or clipped and before `optimizer.step()`.

        `step` is the effective step of the run; by default, how many steps were closed before. `approximate` labels the
        reading; by default, a SyncBatchNorm under data parallelism does. All steps must have the same number of
        micro-batches, unless these have weights: another number is refused, and the step forgotten.
        """
        self._refuse_closed()
        passed, self._passed, self._begun = self._passed, 0, None
        if not self.measuring:
            self._recorder.skip(torch.zeros(()), passed)
            self._advance(ClosedStep(self._batch_size))
            return
        sums = self._recorder.close()
        if sums.weights is None:
            if self._accumulated not in (None, sums.own_parts):
                raise ValueError(
                    f"got {sums.own_parts} micro-batches where earlier steps had {self._accumulated}: close every step "
                    "that you begin, and leave out a short or abandoned one with skip_step()"
                )
            self._accumulated = sums.own_parts
        if approximate is None:
            approximate = self._has_norms and bool(batch_norms(self._norms, synchronised_only=True))
        self._keep(sums, step, approximate)

    def skip_step(self) -> None:
        """Forget the micro-batches since the last closed step, which was short or is given up; it does not count."""
        passed, self._passed, self._begun = self._passed, 0, None
        self._recorder.skip(torch.zeros(()), passed)
        self._last_step = ClosedStep(self._batch_size)

    def close(self) -> None:
        """Take the probe off the model; the readings stay, and no more are taken."""
        if self._open:
            self._open = False
            self._recorder.remove()
            self._pending.fetch()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _keep(self, sums: StepSums, step: int | None, approximate: bool) -> None:
        reading = self._reading(sums, step, approximate, self._batch_size)
        self._pending.add([reading])
        self._advance(ClosedStep(self._batch_size, reading))

    def _reading(self, sums: StepSums, step: int | None, approximate: bool, batch_size: int) -> StepReading:
        buffers = velocities(self._optimizer, self._parameters)
        return StepReading(
            sums=sums,
            velocity_sq=self._recorder.whole(square_norm(buffers)) if buffers else None,
            step=self._closed if step is None else step,
            batch_size=batch_size,
            population=self._population,
            settings=state_for_later(self._optimizer, self._parameters, self._recorder.whole),
            approximate=approximate,
            parts_ratio=self._comparison.ratio if approximate and self._comparison is not None else None,
            run=self._run,
        )

    def _advance(self, step: ClosedStep) -> None:
        """One step is over."""
        self._last_step = step
        self._closed += 1
        self._recorder.listen(self.measuring)

    def _unsynchronised(self, wait: bool) -> AbstractContextManager[None]:
        """Under data parallelism, only the last part of a step is reduced."""
        if wait and isinstance(self._model, DistributedDataParallel):
            return self._model.no_sync()
        return nullcontext()

    def _refuse_closed(self) -> None:
        if not self._open:
            raise RuntimeError("this probe is closed: measure inside its context, and close it when the run ends")

    def _forget(self) -> None:
        """Drop what was recorded of a step that has not been closed."""
        self._begun, self._passed = None, 0
        self._recorder.forget()

    def _refuse_unclosed_step(self) -> None:
        """Notice that the optimizer has moved the weights between two micro-batches of a step."""
        first = self._parameters[0]
        if first.grad is None:
            first = next((p for p in self._parameters if p.grad is not None), first)
        moved = first._version
        if self._begun not in (None, moved):
            self._forget()
            raise ValueError(
                "the weights have changed since the last micro-batch, but its step was never closed: call "
                "probe.close_step() before optimizer.step(), or probe.skip_step() for a step without a reading"
            )
        self._begun = moved


def _checked_size(batch_size: int, population: int | None) -> int:
    """A batch size that can be measured, as an int."""
    if domain.whole("batch_size", batch_size, at_least=0) < 2:
        raise ValueError(f"batch_size must be at least 2 to be cut into parts, got {batch_size}")
    if population is not None:
        domain.population(population, batch_size)
    return int(batch_size)
