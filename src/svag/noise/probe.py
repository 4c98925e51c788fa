"""The in-run probe: G and N of every step of an ordinary run, from gradients that the run computes anyway."""

import math
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed import ProcessGroup
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from svag.noise.batches import batch_size_of, in_pieces, mean_loss, split
from svag.noise.frozen import MOST_BATCHES, PartsComparison, compare_parts
from svag.noise.group import Group
from svag.noise.optimizer import settings_of, trained_parameters, velocities
from svag.noise.parameters import batch_norms, measured_parameters, refuse_sharded, refuse_sparse, square_norm
from svag.noise.pending import PendingReadings, StepReading
from svag.noise.recorders import DataParallelRanks, MicroBatches, Recorder, SharedParts, StepSums
from svag.noise.undisturbed import buffers_kept_on_error
from svag.records.reading import Reading
from svag.theory import domain

Batch = TypeVar("Batch")


class NoiseProbe:
    """Measure G, N and R at every step, from the micro-batches of the step or the ranks of a data-parallel run.

    Three ways to use it, each giving one reading a step:

    - plain loop: `loss = probe.backward(loss_fn, batch, parts=4)` instead of `loss_fn(batch).backward()`;
    - accumulation loop: `probe.micro_batch()` after each micro-batch's `backward()`, `probe.close_step()` before
      `optimizer.step()`;
    - DistributedDataParallel (give the wrapped model): `probe.close_step()` before `optimizer.step()`; the ranks are
      the parts.

    Ranks without that wrapper share the batch with `process_group`: each calls `backward`, or `micro_batch` and
    `close_step`, for the parts that it has, and finds the gradient of the whole batch in `.grad`.

    Otherwise `.grad` is read and never changed: the optimizer sees exactly the gradients of the micro-batched step.
    Clip, and unscale a GradScaler, after `close_step()`. The memory of two gradients is taken, and nothing is attached
    to the model except the communication hook of DistributedDataParallel. The device is waited for when `readings` is
    asked for and once in 1024 steps, in `backward` also for a GradScaler's factor and for gradients zeroed without
    `set_to_none`.
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
        optimizer: its optimizer, asked for learning rate, weight decay, momentum and velocity.
        batch_size: examples averaged by one optimizer step, over all micro-batches and ranks.
        population: size of the data set when the examples of a batch are distinct: drawn without replacement, or a
            shuffled epoch.
        parameters: measure only these, for example the weights that decay.
        run: name of the run, for the readings.
        check: independent batches of the training size, a loader for example. If the model has BatchNorm, the first
            `backward` compares up to 20 of them whole and in parts, at the weights it finds and without a trace; the
            result is `comparison`, and its ratio goes into the readings.
        process_group: the ranks that share each batch, such as `torch.distributed.group.WORLD`; all of them hold the
            same weights and call the same methods. They may have different numbers of parts, but all parts have one
            size. Closing a step averages `.grad` over the ranks, and so does `skip_step`.
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
        process_group: ProcessGroup | None = None,
    ) -> None:
        if domain.whole("batch_size", batch_size, at_least=0) < 2:
            raise ValueError(f"batch_size must be at least 2 to be cut into parts, got {batch_size}")
        if population is not None:
            domain.population(population, batch_size)
        refuse_sharded(model)
        named = measured_parameters(model, parameters)
        self._parameters = list(named.values())
        refuse_sparse(model, self._parameters)
        settings_of(optimizer, self._parameters)
        self._model, self._optimizer, self._batch_size = model, optimizer, batch_size
        self._population, self._run = population, run
        # looked through at every step, where the whole model would take longer than a small gradient
        self._norms = nn.ModuleList(module for module in model.modules() if isinstance(module, _BatchNorm))
        self._pending = PendingReadings("step", "steps")
        self._closed, self._tried, self._open = 0, False, True
        self._begun: int | None = None
        self._told_of_short = False
        self._accumulated: int | None = None
        self._check = check
        self._comparison: PartsComparison | None = None
        self._group = Group(process_group, model)
        wrapped = model if isinstance(model, DistributedDataParallel) else None
        self._ranks = dist.get_world_size(wrapped.process_group) if wrapped else self._group.size
        if check is not None and self._ranks > 1:
            raise ValueError("check= compares the parts of one process, and here the ranks are the parts: leave it out")
        self._recorder: Recorder
        if self._group.size > 1:
            self._recorder = SharedParts(named, self._averaged(), self._group)
        elif wrapped and self._ranks > 1:
            self._recorder = DataParallelRanks(wrapped, named)
        else:
            self._recorder = MicroBatches(named)

    @property
    def readings(self) -> list[Reading]:
        """One reading per closed step, oldest first; asking for it waits for the device."""
        return self._pending.collect()

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
        if self._ranks > 1:
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
        first one with a warning. A probe that has not seen a whole batch yet refuses it.

        Args:
            loss_fn: takes a batch (here: a part of one), returns its mean loss.
            batch: the examples of this step, on this rank.
            parts: in how many parts the batch is cut; it must divide the batch. Ranks count as parts by themselves.
                With `process_group`, parts of the share of this rank.
            scaler: scales the losses, when the run uses one.
            step: effective step of the run; by default, how many came before, short ones included.
        """
        self._refuse_closed()
        size, short = batch_size_of(batch), self._is_short(batch)
        pieces = self._short_pieces(batch, parts) if short else self._pieces(batch, parts)
        self._refuse_stale_gradients()
        self._forget()
        before = [(parameter, parameter.grad) for parameter in self._model.parameters()]
        # under DistributedDataParallel a rank's batch that is not cut is what BatchNorm sees in the run itself
        uncut = len(pieces) == 1 and self._group.size == 1
        approximate = bool(batch_norms(self._norms, synchronised_only=uncut))
        if approximate and self._check is not None:
            self.compare(loss_fn, self._check, parts)
        try:
            # what loss_fn returns is found out at the first step; from then on buffers need no safety copy
            with nullcontext() if self._tried else buffers_kept_on_error(self._model):
                losses = []
                for number, piece in enumerate(pieces, start=1):
                    with self._unsynchronised(number < len(pieces)):
                        loss = mean_loss(loss_fn, piece) / (size / batch_size_of(piece))
                        (loss if scaler is None else scaler.scale(loss)).backward()
                    if not short:
                        self._recorder.micro_batch(1.0 if scaler is None else scaler.get_scale())
                    losses.append(loss.detach())
                if short:
                    self._leave_out(size)
                    return torch.stack(losses).sum()
                sums = self._recorder.close(torch.stack(losses).sum(), size)
                # with several ranks, what all of them together must have counted
                expected = self._batch_size * len(pieces) // size if self._group.size > 1 else None
                self._keep(sums, step, approximate, expected)
        except BaseException:
            self._forget()
            for parameter, gradient in before:
                parameter.grad = None if gradient is None else gradient.zero_()
            raise
        self._tried = True
        assert sums.loss is not None
        return sums.loss

    def micro_batch(self, scale: float = 1.0) -> None:
        """Close one micro-batch, after its `backward()`; its loss is already divided by their number.

        `scale` is a GradScaler's factor, `scaler.get_scale()`. Under data parallelism the ranks are the parts, and this
        only notes the scale.
        """
        self._refuse_closed()
        domain.positive("scale", scale)
        self._refuse_unclosed_step()
        self._recorder.micro_batch(scale)

    def close_step(self, *, step: int | None = None, approximate: bool | None = None) -> None:
        """Close one step, before gradients are unscaled or clipped and before `optimizer.step()`.

        `step` is the effective step of the run; by default, how many steps were closed before. `approximate` labels the
        reading; by default, a SyncBatchNorm under data parallelism does. All steps must have the same number of
        micro-batches: another number is refused, and the step forgotten.
        """
        self._refuse_closed()
        self._begun = None
        sums = self._recorder.close()
        if self._accumulated not in (None, sums.own_parts):
            raise ValueError(
                f"got {sums.own_parts} micro-batches where earlier steps had {self._accumulated}: close every step "
                "that you begin, and leave out a short or abandoned one with skip_step()"
            )
        self._accumulated = sums.own_parts
        if approximate is None:
            approximate = bool(batch_norms(self._norms, synchronised_only=True))
        self._keep(sums, step, approximate, None)

    def skip_step(self) -> None:
        """Forget the micro-batches since the last closed step: this one was short, or is given up."""
        self._begun = None
        self._recorder.skip()

    def close(self) -> None:
        """Take the probe off the model; the readings stay, and no more are taken."""
        self._open = False
        self._recorder.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _keep(self, sums: StepSums, step: int | None, approximate: bool, expected: int | None) -> None:
        numbers = [sums.sum_sq, sums.sq_sum, sums.param_sq, sums.param_dot_grad]
        if buffers := velocities(self._optimizer, self._parameters):
            numbers.append(square_norm(buffers))
        self._pending.add(
            [
                StepReading(
                    numbers=torch.stack([number.to(sums.sum_sq.device) for number in numbers]),
                    step=self._closed if step is None else step,
                    batch_size=self._batch_size,
                    population=self._population,
                    parts=sums.parts,
                    expected=expected,
                    settings=settings_of(self._optimizer, self._parameters),
                    approximate=approximate,
                    parts_ratio=self._comparison.ratio if approximate and self._comparison is not None else None,
                    run=self._run,
                    may_overflow=sums.scaled,
                )
            ]
        )
        self._closed += 1

    def _is_short(self, batch: object) -> bool:
        """Whether a batch is one of fewer examples than the others, which were whole."""
        return self._tried and self._group.size == 1 and batch_size_of(batch) * self._ranks < self._batch_size

    def _short_pieces(self, batch: Batch, parts: int) -> list[Batch]:
        """A short batch in pieces that are not larger than the parts of a whole one, which fit in memory."""
        part = self._batch_size / self._ranks / domain.whole("parts", parts)
        return in_pieces(batch, math.ceil(batch_size_of(batch) / part))

    def _leave_out(self, size: int) -> None:
        """A short batch has been back-propagated: there is no reading, but it is a step."""
        self._recorder.forget()
        self._closed += 1
        if not self._told_of_short:
            self._told_of_short = True
            warnings.warn(
                f"a batch of {size} examples, fewer than batch_size={self._batch_size}, was back-propagated without a "
                "reading, and so will the next ones; drop_last=True leaves them out",
                stacklevel=3,
            )

    def _averaged(self) -> list[nn.Parameter]:
        """All parameters that the loss may reach, those of the optimizer first: their gradients are averaged."""
        trained = trained_parameters(self._optimizer)
        ids = {id(parameter) for parameter in trained}
        return [*trained, *(p for p in self._model.parameters() if p.requires_grad and id(p) not in ids)]

    def _pieces(self, batch: Batch, parts: int) -> list[Batch]:
        size = batch_size_of(batch)
        if self._group.size > 1:
            self._refuse_share(size, parts)
        elif size * self._ranks != self._batch_size:
            where = f" on each of {self._ranks} ranks" if self._ranks > 1 else ""
            raise ValueError(
                f"the batch has {size} examples{where}, but the probe was made for batch_size={self._batch_size}: use "
                "drop_last=True, or make the probe with the size of one optimizer step"
            )
        if domain.whole("parts", parts, at_least=0) < 2 and self._ranks == 1:
            raise ValueError(f"parts must be at least 2, got {parts}: one gradient cannot tell signal from noise")
        return split(batch, int(parts))

    def _refuse_share(self, size: int, parts: int) -> None:
        if size >= self._batch_size:
            raise ValueError(
                f"one of {self._group.size} ranks has {size} examples, and batch_size={self._batch_size} is that of "
                "all ranks together: give every rank its own share of the batch"
            )
        if self._batch_size * domain.whole("parts", parts) % size:
            raise ValueError(
                f"{parts} parts of {size} examples on this rank do not divide batch_size={self._batch_size} into parts "
                "of one size: give ranks whole parts"
            )

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
        self._begun = None
        self._recorder.forget()

    def _refuse_unclosed_step(self) -> None:
        """Notice that the optimizer has moved the weights between two micro-batches of a step."""
        moved = next((p for p in self._parameters if p.grad is not None), self._parameters[0])._version
        if self._begun not in (None, moved):
            self._forget()
            raise ValueError(
                "the weights have changed since the last micro-batch, but its step was never closed: call "
                "probe.close_step() before optimizer.step(), or probe.skip_step() for a step without a reading"
            )
        self._begun = moved

    def _refuse_stale_gradients(self) -> None:
        stale = [parameter.grad for parameter in self._model.parameters() if parameter.grad is not None]
        if stale and bool(square_norm(stale) != 0):
            raise ValueError(
                "gradients of an earlier step are still there: call optimizer.zero_grad() before probe.backward()"
            )
