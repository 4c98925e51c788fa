"""The in-run probe: G and N of every step of an ordinary run, from gradients that the run computes anyway."""

import gc
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed import ProcessGroup
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from svag.noise.batches import (
    Cutting,
    batch_size_of,
    divisors,
    epoch_size,
    mean_loss,
    refuse_swapped,
    scalar_loss,
    without_population,
)
from svag.noise.cadence import APART, Cadence, Every
from svag.noise.frozen import MOST_BATCHES, PartsComparison, compare_parts
from svag.noise.group import DataParallelParts
from svag.noise.loss_check import LossFound, LossKind, NotAMean, check_loss
from svag.noise.optimizer import (
    BY_GAIN_RULE,
    all_unwrapped,
    all_velocities,
    settings_of,
    shares,
    state_for_later,
    trained_parameters,
)
from svag.noise.parameters import (
    Watched,
    batch_norms,
    is_sharded,
    measured_parameters,
    refuse_flat_shards,
    refuse_sparse,
    refuse_stale_gradients,
    square_norm,
)
from svag.noise.pending import KEPT, ClosedStep, PendingReadings, StepReading, StepSums
from svag.noise.reading import Reading, reading_of, row_of
from svag.noise.recorders import recording_of
from svag.noise.throughput import wait_for
from svag.noise.undisturbed import buffers_kept_on_error
from svag.noise.uninterrupted import Uninterrupted
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
    DistributedDataParallel none, and `close` takes the hooks off the model. It waits for the device when readings or
    scalars are asked for, once in 1024 steps, when gradients are zeroed without `set_to_none`, and in `backward` also
    for a GradScaler's factor.

    A step whose gradients are not finite has no reading: it is counted (`skipped` in `scalars`), and without a
    GradScaler the first one causes a warning. If parameters are frozen, unfrozen, added or replaced during the run, the
    next reading is of those that train then, with one warning; under DistributedDataParallel that is refused, and so
    are new ones in no optimizer of the probe. In `backward`, BatchNorm normalises each part by itself: such readings
    are labelled `approximate`, and given some batches (`check`) the probe compares once with a frozen reading of whole
    ones and says by how much in `parts_ratio`.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.ones_(model.weight)
    >>> probe = NoiseProbe(model, torch.optim.SGD(model.parameters(), lr=0.5), batch_size=2)
    >>> probe.backward(lambda x: model(x).mean(), torch.tensor([[1.0], [3.0]]), parts=2)
    tensor(2.)
    >>> print(probe.readings[0])
    G = 3, N = 1 at batch size 2, R = 1 (2 gradients)

    Args:
        model: the model that trains; under data parallelism the DistributedDataParallel wrapper.
        optimizer: its optimizer, asked for learning rate, weight decay, momentum and velocity, or the second moment; or
            a list of optimizers that train different parameters. Readings then carry the settings that all of them have
            in common, and optimizers of different kinds ("Muon + AdamW") count as one that was never tested.
        batch_size: examples averaged by one optimizer step, over all micro-batches and ranks.
        population: size of the data set when the examples of a batch are distinct: drawn without replacement, or a
            shuffled epoch.
        parameters: measure only these, for example the weights that decay.
        run: name of the run, for the readings.
        check: independent batches of the training size, a loader for example. If the model has BatchNorm, the first
            `backward` compares up to 20 of them whole and in parts, at the weights it finds and without a trace; the
            result is `comparison`, and its ratio goes into the readings.
        every: measure every `every`-th step, starting with the first. `backward` takes the others whole, as plain
            steps, and `micro_batch` and `close_step` do next to nothing in them. With BatchNorm or dropout a measured
            step then differs from a plain one: its parts are normalised separately, and draw other random numbers.
            "auto" times the first 50 steps, measures ten of them, and chooses k so that the run slows by about 3% (more
            where a step takes less than a millisecond); the first rank chooses for all, and checkpoints hold k. Which
            steps are cut into parts then depends on timing.
        check_loss: at the first `backward`, compare the gradient of the batch with that of its parts, and refuse a loss
            for which they differ by more than 1%: a sum, unequal weights, a loss across examples. It takes about as
            long as two steps, once, and the memory of a whole batch; a batch that does not fit is not checked, with a
            warning, and of losses that draw random numbers only a sum is refused. During the check dropout is off and
            BatchNorm is in eval mode; it leaves no trace but in generators of your own that `loss_fn` draws from. It is
            repeated, up to twice, while gradients are not finite. It is skipped by a probe that continues from a
            checkpoint, and for a model that `fully_shard` has sharded.
        save_to: append the readings to this file of its own, for `svag.load_readings`; `readings` then has the last
            1,000. They are written when they are asked for, every 1024, and by `state_dict` and `close`; by one rank.
            On a full disk training goes on, and readings wait in memory: only `readings`, `state_dict` and `close`
            raise the error, and `close` may be called again once there is space.
        process_group: the ranks that share each batch, such as `torch.distributed.group.WORLD`; all of them hold the
            same weights and call the same methods. They may have different numbers of parts, but all parts have one
            size. Closing a step averages `.grad` over the ranks, and so does `skip_step`.
        replace: close another probe that measures the same parameters, as when a notebook cell runs again. Otherwise a
            second probe is an error, unless the first one is out of reach.

    Attributes:
        optimizer: the one that was given, with its wrapper, or several.
        measure_short: measure short batches of one process too, for `last_step` alone; `svag.GainRule` asks for it.
        changes: how often other parameters were measured from then on; `svag.GainRule` then averages anew.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer],
        *,
        batch_size: int,
        population: int | None = None,
        parameters: Iterable[Tensor] | None = None,
        run: str = "",
        check: Iterable[Any] | None = None,
        every: Every = 1,
        check_loss: bool = True,
        save_to: str | Path | None = None,
        process_group: ProcessGroup | None = None,
        replace: bool = False,
    ) -> None:
        batch_size = _checked_size(batch_size, population)
        if population is None and check is not None and (missing := without_population(batch_size, epoch_size(check))):
            warnings.warn(missing, stacklevel=2)
        self._optimizers = all_unwrapped(optimizer)
        refuse_flat_shards(model)
        # a list of one optimizer is that optimizer
        self.optimizer = optimizer[0] if isinstance(optimizer, Sequence) and len(optimizer) == 1 else optimizer
        self.measure_short = False
        # a list, as they are read again when the model changes; a single tensor in place of a list is refused below
        self._chosen = parameters if parameters is None or isinstance(parameters, Tensor) else list(parameters)
        named = self._measured(model)
        self._model, self._batch_size, self._process_group = model, batch_size, process_group
        self._population, self._run = population, run
        if isinstance(every, str) and every != "auto":
            raise ValueError(f'every must be a whole number or "auto", got {domain.shown(every)}')
        if not isinstance(every, str):
            domain.whole("every", every)
        for name, flag in (("check_loss", check_loss), ("replace", replace)):
            if not isinstance(flag, bool):
                raise ValueError(f"{name} must be True or False, got {flag!r:.60}")
        self._closed, self._passed, self._tried, self._open = 0, 0, False, True
        self._begun: int | None = None
        self._told_of_short, self._begins, self.changes = False, True, 0
        self._accumulated: int | None = None
        self._last_step: ClosedStep | None = None
        self._check, self._checks_left = check, _CHECKS if check_loss else 0
        self._comparison: PartsComparison | None = None
        self._record(named)
        try:
            _make_room(model, self._parameters, replace=replace)
        except BaseException:
            self._recorder.remove()
            raise
        ranks = self._recording.ranks
        self._pending = PendingReadings("step", "steps", save_to, writes=self._recording.first, run=run)
        if check is not None and ranks > 1:
            self.close()
            raise ValueError("check= compares the parts of one process, and here the ranks are the parts: leave it out")
        # nothing here refers to the probe itself, so that an abandoned one is freed at once
        agree = partial(self._recording.of_first, device=self._parameters[0].device)
        self._cadence = Cadence(every, wait=partial(wait_for, model), agree=agree)
        self._measuring = self._cadence.next(0)
        self._cutting = Cutting(batch_size, ranks, uneven=self._recording.shared, at_least=self._recording.at_least)
        _PROBES.setdefault(model, WeakSet()).add(self)

    def _measured(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Find the parameters that are measured from now on, or refuse those that cannot be."""
        named = measured_parameters(model, self._chosen)
        refuse_sparse(model, named.values())
        for optimizer, own in shares(self._optimizers, named.values()):
            settings_of(optimizer, own)
        return named

    def _record(self, named: dict[str, nn.Parameter]) -> None:
        """Record the gradients of these parameters."""
        model = self._model
        self._parameters = list(named.values())
        self._watched = Watched(model)
        # checked at every step; checking the whole model would take longer than a small gradient
        self._norms = nn.ModuleList(module for module in model.modules() if isinstance(module, _BatchNorm))
        self._has_norms = len(self._norms) > 0
        self._recording = recording_of(model, named, self._optimizers, self._process_group)
        self._recorder = self._recording.recorder

    def _follow(self) -> None:
        """Before the reading of a step, switch to the parameters that train now if they have changed."""
        if not self._watched.changed():
            return
        before = [*map(id, self._parameters)]
        try:
            named = self._measured(self._model)
            held = {id(p) for optimizer in self._optimizers for p in trained_parameters(optimizer)}
            if strangers := sum(number not in held for number in {*map(id, named.values())}.difference(before)):
                raise ValueError(f"{strangers} of them are in no optimizer of this probe: call its add_param_group()")
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"parameters of the model were frozen, unfrozen, added or replaced, and now {error}; or make a new "
                "probe, of the optimizer that trains them, with replace=True"
            ) from None
        if [*map(id, named.values())] != before:
            if isinstance(self._recorder, DataParallelParts):
                self._forget()
                raise ValueError(
                    "parameters of the model were frozen, unfrozen, added or replaced, and DistributedDataParallel "
                    "reduces those that trained when it was made: wrap the model again, and make a new probe of it"
                )
            self._recorder.remove()
            self._record(named)
            self.changes += 1
            if self.changes == 1:
                warnings.warn(
                    f"parameters of the model were frozen, unfrozen, added or replaced: from step {self._closed} on "
                    f"{len(named)} tensors are measured instead of {len(before)}, and prices are best taken from these "
                    "steps (window=)",
                    stacklevel=3,
                )
        self._watched = Watched(self._model)

    @property
    def readings(self) -> Sequence[Reading]:
        """One reading per measured step, oldest first; with `save_to`, the last 1,000. It waits for the device.

        The result is a view that does not change afterwards, and compares equal to a list.
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
        """Whether the current or next step is measured; with `every`, only some are."""
        return self._measuring

    @property
    def cadence(self) -> Cadence:
        """Which steps are measured; with "auto", what was chosen."""
        return self._cadence

    @property
    def skipped(self) -> int:
        """Number of steps without a reading because their gradients were not finite, among those fetched so far."""
        return self._pending.skipped

    def scalars(self) -> dict[str, float]:
        """Numbers for any logger, over the last 1,000 readings: ratios of averages, as `svag.price_list` has.

        The keys are noise_to_signal, noise_to_signal_low, critical_batch, b_simple, distortion_2x, distortion_4x,
        gain_2x and gain_4x; and skipped, the number of steps that were not finite, once there is one.
        What is not resolved yet is absent, never NaN. It waits for the device, so call it when you log.

        >>> model = nn.Linear(1, 1)
        >>> NoiseProbe(model, torch.optim.SGD(model.parameters(), lr=0.5), batch_size=2).scalars()
        {}
        """
        from svag.prices.scalars import logged_numbers  # and scipy, which measuring does not need

        found = logged_numbers(self._pending.in_memory()[-KEPT:])
        return found | ({"skipped": self.skipped} if self.skipped else {})

    def price_list(
        self, c2: float = 2.0, confidence: float = 0.95, window: tuple[int, int] | tuple[float, float] | None = None
    ) -> "PriceList":
        """What other batch sizes cost, from all readings so far; with `save_to`, from all in the file.

        Arguments as in `svag.price_list`. After a run by a `svag.GainRule`, rates are given as factors: its readings
        carry the baseline's rate, and its steps were taken at another. A file has no rate then.
        """
        from svag.prices.price_list import price_list

        readings = self._pending.everything()
        if not readings:
            raise ValueError(
                "no step has been measured: call probe.backward(loss_fn, batch) instead of loss.backward(), or "
                "probe.micro_batch() and probe.close_step() beside it"
            )
        if self._comparison is not None:  # perhaps made after them
            ratio = self._comparison.ratio
            readings = [
                replace(r, parts_ratio=ratio) if r.approximate and r.parts_ratio is None else r for r in readings
            ]
        return price_list(readings, c2, confidence, window)

    def __repr__(self) -> str:
        # without the readings, for which `str` waits for the device
        return f"<svag.NoiseProbe at batch size {self._batch_size}: {self._closed} steps>"

    def __str__(self) -> str:
        from svag.prices.progress import progress

        every = self._cadence.every
        said = progress(self._pending.everything(), self._closed, every or APART, self._batch_size)
        if not self._cadence.auto:
            return said
        return f"{said}\n" + (
            "The first steps are timed to choose how often to measure."
            if every is None
            else f"Measures every {every} steps, so that the run slows by about 3%."
        )

    def state_dict(self) -> dict[str, Any]:
        """Where the probe is, for a checkpoint between two steps: plain numbers, strings and lists."""
        found = self._comparison
        return {
            "closed": self._closed,
            "batch_size": self._batch_size,
            "tried": self._tried,
            "told_of_short": self._told_of_short,
            "accumulated": self._accumulated,
            "cadence": self._cadence.state_dict(),
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
        self._checks_left = 0 if self._tried else self._checks_left
        if state["comparison"] is not None:
            self._comparison, self._check = PartsComparison(*map(reading_of, state["comparison"])), None
        self._last_step = None
        self._cadence.load_state_dict(state.get("cadence"))
        self._measuring = self._cadence.next(self._closed)
        self._recorder.listen(self.measuring)

    @property
    def comparison(self) -> PartsComparison | None:
        """How N and G of parts compare with those of whole batches, once this has been measured."""
        return self._comparison

    def compare(self, loss_fn: Callable[[Batch], Tensor], batches: Iterable[Batch], parts: int = 4) -> PartsComparison:
        """Compare parts with whole batches now, at frozen weights and without a trace, instead of at the first step.

        Later readings of `backward` with BatchNorm carry the ratio, and `price_list` counts it for earlier ones too.

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
        weights: Tensor | Sequence[float] | None = None,
        scaler: GradScaler | None = None,
        step: int | None = None,
    ) -> Tensor:
        """Back-propagate `batch` in equal parts and close the step; return its mean loss, detached.

        With `process_group` it is the mean loss of the whole batch, under DistributedDataParallel that of this rank.

        Gradients must be zero before the call, and are zero again after an error. Running statistics (BatchNorm) are
        then as they were if this was the first step; later they keep what the parts before the error did to them.

        A batch shorter than `batch_size`, as at the end of an epoch, is back-propagated without a reading, and the
        first one with a warning. A probe that has not seen a whole batch yet refuses it. Where `svag.GainRule` takes
        the steps of one process, a short batch of several pieces is measured for the rule alone.

        Args:
            loss_fn: takes a batch (here: a part of one), returns its mean loss.
            batch: the examples of this step, on this rank.
            parts: in how many parts the batch is cut; it must divide the batch. Ranks count as parts by themselves.
                With `process_group`, parts of the share of this rank.
            weights: how much examples count in the loss, if they do not all count the same: one number per example,
                such as its number of tokens, or one per part, their sum. `loss_fn` returns the mean over what counts in
                its part, and the gradient is that of the mean over what counts in `batch`, exactly; a part of weight 0
                is left out. As with the weights of `micro_batch`, they are assumed to be independent of the gradients.
                Under DistributedDataParallel every rank's batch counts the same, as without a probe.
            scaler: scales the losses, when the run uses one.
            step: effective step of the run; by default, how many came before, short ones included.
        """
        if weights is not None and (self._recording.shared or is_sharded(self._parameters)):
            raise ValueError("ranks that share a batch or shard the model have parts of one size: leave out weights")
        if not self._measuring and self._tried and self._open:
            plain = self._plain_step(loss_fn, batch, scaler)
            if plain is not None:
                return plain
        self._refuse_closed()
        refuse_swapped(loss_fn, batch)
        size, cutting, due = batch_size_of(batch), self._cutting, self.measuring
        short = self._tried and cutting.is_short(size)
        pieces, measured = cutting.pieces(batch, parts, measured=due, short=short), due and not short
        if short and weights is not None and len(weights) not in (size, len(pieces)):
            pieces = [batch]  # the weights are those of the parts of a whole batch
        # for a batch that is not cut, loss_fn already returns the mean
        shares = divisors(pieces, weights if len(pieces) > 1 else None, size)
        cut = [(piece, share) for piece, share in zip(pieces, shares, strict=True) if share < math.inf]
        measured = measured and len(cut) >= self._recording.at_least
        # pieces of unequal sizes have weights, which on several ranks would depend on the other ranks' pieces
        aside = due and short and self.measure_short and cutting.ranks == 1 and len(cut) > 1
        refuse_stale_gradients(self._model)
        self._forget()
        if due:
            self._follow()
        before = [(parameter, parameter.grad) for parameter in self._model.parameters()]
        # under DistributedDataParallel a rank's batch that is not cut is what BatchNorm sees in the run itself
        uncut = len(pieces) == 1 and not self._recording.shared
        approximate = bool(batch_norms(self._norms, synchronised_only=uncut))
        # A sharded model is not checked: its whole-batch pass communicates, and if it ran out of memory on one rank,
        # which here only means that nothing is checked, the other ranks would wait for that rank for ever.
        due_check = measured and self._checks_left and not is_sharded(self._parameters)
        checked = self._checked(loss_fn, batch, cut, scaler is not None) if due_check else None
        if measured and approximate and self._check is not None:
            self.compare(loss_fn, self._check, parts)
        try:
            # the first step checks what loss_fn returns; after that, buffers need no safety copy
            with nullcontext() if self._tried else buffers_kept_on_error(self._model):
                losses = []
                for number, (piece, share) in enumerate(cut, start=1):
                    with self._unsynchronised(number < len(cut)):
                        loss = mean_loss(loss_fn, piece) / share
                        (loss if scaler is None else scaler.scale(loss)).backward()
                    if measured or aside:
                        weight = None if weights is None else 1 / share / cutting.ranks
                        if aside and weights is None:
                            weight = batch_size_of(piece) / size
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
            # the first short batch ends the first epoch, unless the probe was made in the middle of one
            whole = self._population is None and cutting.ranks == 1 and self._begins
            cutting.warn_of_short(size, (self._closed - 1) * self._batch_size + size if whole else None)
        self._tried = True
        if checked is not None:
            self._checks_left = self._checks_left - 1 if checked.kind == LossKind.NOT_FINITE else 0
            if checked.kind != LossKind.MEAN and not self._checks_left:
                warnings.warn(str(checked), stacklevel=2)
        return loss

    def _plain_step(self, loss_fn: Callable[[Batch], Tensor], batch: Batch, scaler: GradScaler | None) -> Tensor | None:
        """A step that is not measured, in hardly more than the time of a plain one: some microseconds count here.

        None, with nothing done, for a batch of another size and where gradients were not set to None.
        """
        size, cutting = batch_size_of(batch), self._cutting
        if size >= self._batch_size if cutting.uneven else size * cutting.ranks != self._batch_size:
            return None
        for parameter in self._parameters:
            if parameter.grad is not None:
                return None
        try:
            loss = scalar_loss(loss_fn, batch)
            (loss if scaler is None else scaler.scale(loss)).backward()
            loss = self._recorder.skip(loss.detach(), size)
        except BaseException:
            self._forget()
            self._model.zero_grad()
            raise
        self._begun, self._passed = None, 0
        self._advance(ClosedStep(self._batch_size))
        return loss

    def _checked(
        self, loss_fn: Callable[[Batch], Tensor], batch: Batch, cut: Sequence[tuple[Batch, float]], scaled: bool
    ) -> LossFound:
        """Find the kind of loss; refuse one that is not a mean over examples, on all ranks if one rank sees it."""
        found, group = LossFound(LossKind.MEAN, 1), self._recording.group
        if len(cut) > 1:
            self._recorder.listen(False)
            try:
                found = check_loss(self._model, loss_fn, batch, [(piece, 1 / share) for piece, share in cut], scaled)
            finally:
                self._recorder.listen(True)
        if group.size > 1:
            numbers = [found.kind, found.parts, round(found.difference * 1e6), round(found.ratio * 1e6)]
            kind, parts, off, ratio = max(group.gathered(numbers, self._parameters[0].device))
            if kind != found.kind:  # ranks agree, also on whether the next step is checked
                found = LossFound(LossKind(kind), parts, off / 1e6, ratio / 1e6, "an error on another rank")
        if found.refused:
            raise NotAMean(found)
        return found

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
        if self.measuring and not self._passed:
            self._follow()
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
        if not self._measuring:
            self._recorder.skip(_NOTHING, passed)
            self._advance(ClosedStep(self._batch_size))
            return
        if not passed:  # the ranks are the parts, and nothing was called before
            self._follow()
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
        """Take the probe off the model; the readings stay, and no more are taken.

        If it raises because readings could not be written, call it again when there is space.
        """
        if self._open:
            self._open = False
            self._recorder.remove()
        self._pending.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep(self, sums: StepSums, step: int | None, approximate: bool) -> None:
        if any(optimizer in BY_GAIN_RULE for optimizer in self._optimizers):
            self._pending.rates_known = False
        reading = self._reading(sums, step, approximate, self._batch_size)
        with Uninterrupted():  # the next reading has another number, also if this is interrupted
            self._advance(ClosedStep(self._batch_size, reading))
            self._pending.add([reading])

    def _reading(self, sums: StepSums, step: int | None, approximate: bool, batch_size: int) -> StepReading:
        buffers = all_velocities(self._optimizers, self._parameters)
        return StepReading(
            sums=sums,
            velocity_sq=self._recorder.whole(square_norm(buffers)) if buffers else None,
            step=self._closed if step is None else step,
            batch_size=batch_size,
            population=self._population,
            settings=state_for_later(self._optimizers, self._parameters, self._recorder.whole),
            approximate=approximate,
            parts_ratio=self._comparison.ratio if approximate and self._comparison is not None else None,
            run=self._run,
        )

    def _advance(self, step: ClosedStep) -> None:
        """Count a step that is over."""
        self._last_step = step
        self._closed += 1
        measuring = self._cadence.next(self._closed)
        if measuring is not self._measuring:
            self._measuring = measuring
            self._recorder.listen(measuring)

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


# So many steps are tried for the check of the loss while their gradients are not finite.
_CHECKS = 3
# The loss of a step that nobody asks for.
_NOTHING = torch.zeros(())
# The probes of each model: the same parameters are not measured twice.
_PROBES: "WeakKeyDictionary[nn.Module, WeakSet[NoiseProbe]]" = WeakKeyDictionary()


def _make_room(model: nn.Module, parameters: Sequence[nn.Parameter], *, replace: bool) -> None:
    """Refuse a second probe of the same parameters, or close the first one."""
    mine = {*map(id, parameters)}

    def others() -> list[NoiseProbe]:
        return [probe for probe in _PROBES.get(model, ()) if probe._open and {*map(id, probe._parameters)} == mine]

    if not replace and others():
        gc.collect()  # an abandoned one may still exist, in a reference cycle
    for other in others():
        if not replace:
            raise ValueError(
                "another probe measures this model already: use that one, or close() it before you make the next, or "
                "give replace=True, which closes it"
            )
        other.close()


def _checked_size(batch_size: int, population: int | None) -> int:
    """A batch size that can be measured, as an int."""
    if domain.whole("batch_size", batch_size, at_least=0) < 2:
        raise ValueError(f"batch_size must be at least 2 to be cut into parts, got {batch_size}")
    if population is not None:
        domain.population(population, batch_size)
    return int(batch_size)
