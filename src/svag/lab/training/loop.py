"""The loop of a run: evaluate, measure, step, save. Only the spec decides when, except for checkpoints.

An evaluation writes a row with loss and accuracy over a whole set, and a summary of the readings since the last one.
The mean training loss also has rows of its own, at 50 points of the run.

With the gain rule an update is worth several effective steps, which are steps of the baseline. What is due at such a
step happens as soon as an update has passed it, and rows also hold the rule's time, gain and price.
"""

import math
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from math import fsum
from typing import Any

import torch
from torch import Tensor, nn

from svag.lab.specs.optimizers import SgdOptimizer
from svag.lab.specs.parts import FrozenProbe, GainSpec, GdSpec, GlsrSpec, InRunProbe, substeps
from svag.lab.specs.spec import RunSpec
from svag.lab.training.measuring import Diverged, check_parts, needs_check
from svag.lab.training.ranks import ALONE, Ranks
from svag.lab.training.run_folder import NoFolder, RunFolder
from svag.lab.training.state import Run
from svag.lab.training.steppers import CHUNK, GainStepper
from svag.lab.training.streams import own_randomness
from svag.lab.training.training import Training, cross_entropy
from svag.lab.training.watching import HeldSignals, Watcher
from svag.noise.parameters import square_norm
from svag.noise.reading import Reading
from svag.theory.equilibrium import momentum_balance, svag_balance

# Check after this many effective steps that the loss is finite; in between, nothing waits for the device.
CHECK_EVERY = 20
# Number of rows with the mean training loss.
LOSS_ROWS = 50


def loss_points(steps: int) -> list[int]:
    """The effective steps after which the mean training loss is written: 50 at equal distances, with the last one.

    >>> loss_points(500)[:3], loss_points(500)[-1], loss_points(3)
    ([10, 20, 30], 500, [1, 2, 3])
    """
    return sorted({math.ceil(steps * row / LOSS_ROWS) for row in range(1, LOSS_ROWS + 1)} - {0})


def loss_and_accuracy(model: nn.Module, inputs: Tensor, labels: Tensor, ranks: Ranks = ALONE) -> tuple[float, float]:
    """Mean loss and accuracy, in evaluation mode; the model is in training mode afterwards.

    In a text, every character of a window counts as an answer.
    """
    loss = torch.zeros((), dtype=torch.float64, device=inputs.device)
    right = torch.zeros((), dtype=torch.int64, device=inputs.device)
    model.eval()
    with torch.no_grad():
        share = ranks.share(len(labels))
        for start in range(share.start, share.stop, CHUNK):
            rows = slice(start, min(start + CHUNK, share.stop))
            logits, answers = model(inputs[rows]), labels[rows]
            loss += cross_entropy(logits, answers, reduction="sum")
            right += (logits.argmax(dim=-1) == answers).sum()
    model.train()
    return ranks.total(loss).item() / labels.numel(), ranks.total(right).item() / labels.numel()


def evaluate(training: Training) -> dict[str, float]:
    """Test loss and accuracy, R, bits per character of a text, and the training set's if the spec asks for them."""
    data, ranks = training.data, training.ranks
    ranks.same_buffers(training.model)
    test_loss, test_accuracy = loss_and_accuracy(training.model, data.test_x, data.test_y, ranks)
    found = {"test_loss": test_loss, "test_accuracy": test_accuracy}
    if data.is_text:
        found["test_bits_per_character"] = test_loss / math.log(2)
    if training.spec.evaluate.train:
        loss, accuracy = loss_and_accuracy(training.model, data.train_x, data.train_y, ranks)
        found |= {"train_set_loss": loss, "train_set_accuracy": accuracy}
        if data.is_text:
            found["train_set_bits_per_character"] = loss / math.log(2)
    return {**found, "param_sq": float(square_norm(training.trained))}


def noise_summary(spec: RunSpec, readings: Sequence[Reading]) -> dict[str, Any]:
    """Averages of G, N and R over the readings since the last evaluation, and how close they are to equilibrium.

    `balance` is growth over decay of the weight norm, a ratio of averages that is 1 at equilibrium of a scale-invariant
    loss. It is None if the network is not declared scale invariant, as the loss then changes the norm too; without
    weight decay; if the learning rate changed among the readings; with the gain rule; and for optimizers other than
    SGD.
    """
    grad_sq, noise_trace, param_sq = (
        fsum(getattr(reading, name) for reading in readings) / len(readings)
        for name in ("grad_sq", "noise_trace", "param_sq")
    )
    return {
        "readings": len(readings),
        "batch_size": readings[0].batch_size,
        "grad_sq": grad_sq,
        "noise_trace": noise_trace,
        "param_sq": param_sq,
        "balance": _balance(spec, readings, grad_sq, noise_trace, param_sq),
        **({"approximate": True} if any(reading.approximate for reading in readings) else {}),
        **({} if readings[-1].parts_ratio is None else {"parts_ratio": readings[-1].parts_ratio}),
    }


def _balance(
    spec: RunSpec, readings: Sequence[Reading], grad_sq: float, noise_trace: float, param_sq: float
) -> float | None:
    rates = {reading.lr for reading in readings}
    lr = rates.pop()
    known = spec.model.scale_invariant and spec.weight_decay > 0 and param_sq > 0
    if rates or not lr or not known:  # at a learning rate of 0 the weights neither grow nor decay
        return None
    # the readings of glsr are already those of its smaller batches and rates
    ell = 1 if isinstance(spec.process, GlsrSpec) else substeps(spec.process)
    if not isinstance(spec.optimizer, SgdOptimizer) or isinstance(spec.process, GainSpec):
        return None
    if spec.optimizer.momentum:
        velocities = [reading.velocity_sq for reading in readings if reading.velocity_sq is not None]
        if ell > 1 or len(velocities) < len(readings):
            return None
        velocity_sq = fsum(velocities) / len(velocities)
        return momentum_balance(
            param_sq, velocity_sq, lr=lr, weight_decay=spec.weight_decay, momentum=spec.optimizer.momentum
        ).ratio
    noise = 0.0 if isinstance(spec.process, GdSpec) else noise_trace
    return svag_balance(param_sq, grad_sq, noise, lr=lr, weight_decay=spec.weight_decay, ell=ell).ratio


class Loop:
    """Continues a run from its current step to its end.

    Args:
        run: the state of the run.
        folder: writes its files.
        watcher: is told the progress of the run.
        save_seconds: seconds between two checkpoints; 0 makes one after every effective step.
        held: signals that are held back until a checkpoint has been made.
    """

    def __init__(
        self,
        run: Run,
        folder: RunFolder | NoFolder,
        watcher: Watcher,
        save_seconds: float,
        held: HeldSignals | None = None,
    ) -> None:
        self._run, self._folder, self._watcher, self._held = run, folder, watcher, held
        spec, examples = run.training.spec, run.training.examples
        self._spec = spec
        self._steps = spec.steps(examples)
        self._interval = spec.evaluate.interval(self._steps)
        self._in_run = spec.probe.steps(self._steps) if isinstance(spec.probe, InRunProbe) else range(0)
        self._frozen = spec.probe.steps(self._steps) if isinstance(spec.probe, FrozenProbe) else []
        self._compare_at = self._in_run[0] if self._in_run and needs_check(run.training) else None
        self._loss_points = loss_points(self._steps)
        self._gain = run.stepper if isinstance(run.stepper, GainStepper) else None
        # effective steps that were done before the last update
        if self._gain is None:
            self._before = run.progress.step - 1
            run.progress.since_row = run.progress.step - max(
                (point for point in self._loss_points if point <= run.progress.step), default=0
            )
        else:
            self._before = self._gain.previous()
        self._save_seconds, self._saved = save_seconds, time.monotonic()
        self._told = self._clock = time.monotonic()
        self._clock_seen = run.stepper.seen(run.progress.step)

    def go(self) -> None:
        """Run to the end of the budget; raise `Diverged` if the loss is no longer finite."""
        progress = self._run.progress
        while True:
            if progress.step // self._interval > self._before // self._interval or progress.step == self._steps:
                self._evaluate()
            if progress.step == self._steps:
                return
            self._take_step()
            self._tell()
            stop = self._held is not None and self._held.came
            if stop or progress.step == self._steps or time.monotonic() - self._saved >= self._save_seconds:
                self._save()
            if self._held is not None and stop:
                try:
                    self._held.deliver()
                except KeyboardInterrupt as interrupt:
                    saved = f"saved at {self._spec.step_name} {progress.step} of {self._steps}"
                    interrupt.args = (f"interrupted, {saved}: the same command continues from there",)
                    raise

    def _take_step(self) -> None:
        run, step = self._run, self._run.progress.step
        lr = self._spec.lr * self._spec.schedule.multiplier(step, self._steps)
        run.stepper.set_rate(lr)
        if run.frozen is not None and self._passed(self._frozen) is not None:
            self._refuse_lost(step)
            self._folder.write_readings(run, [run.frozen.read(step)])
        if self._compare_at is not None and self._passed([self._compare_at]) is not None:
            self._compare(step)
        number = step if self._gain is None else self._gain.updates
        own_randomness(run.training.ranks.rank, self._spec.seed, f"step {number}")
        measure = step < self._in_run.stop and self._passed(self._in_run) is not None
        loss = run.stepper.step(step, measure=measure)
        self._before = step
        gain, reached = (1.0, step + 1) if self._gain is None else (self._gain.gain, math.floor(self._gain.time))
        run.progress.add(loss, lr * gain, reached)
        if self._passed([self._in_run.stop]) is not None:
            self._write_in_run_readings()
        if (point := self._passed(self._loss_points)) is not None:
            self._write_loss(point)
        if run.progress.step // CHECK_EVERY > self._before // CHECK_EVERY:
            self._refuse_lost(run.progress.step)

    def _passed(self, points: Sequence[int]) -> int | None:
        """The last of these increasing effective steps that the last update has passed; None if it has passed none."""
        last = bisect_right(points, self._run.progress.step) - 1
        return points[last] if last >= 0 and points[last] > self._before else None

    def _evaluate(self) -> None:
        run, progress = self._run, self._run.progress
        self._refuse_lost(progress.step)
        self._write_in_run_readings()
        now, seen = time.monotonic(), run.stepper.seen(progress.step)
        found = evaluate(run.training)
        if not all(math.isfinite(value) for value in found.values()):
            name = self._spec.step_name
            raise Diverged(f"the test loss or the weights are not finite after {name} {progress.step}")
        # with the gain rule an update may have passed the step that the evaluation belongs to
        at_end, passed = progress.step == self._steps, progress.step // self._interval * self._interval
        row: dict[str, Any] = {
            "step": progress.step if at_end else passed,
            "time": progress.time,
            "lr": self._spec.lr * self._spec.schedule.multiplier(min(progress.step, self._steps - 1), self._steps),
            "train_loss": progress.loss_sum.item() / progress.loss_count if progress.loss_count else None,
            **found,
            **self._gained(),
        }
        if progress.since:
            row["noise"] = noise_summary(self._spec, progress.since)
        after = time.monotonic()
        examples = seen - self._clock_seen
        timing = {
            "examples": seen,
            "training_seconds": round(now - self._clock, 4),
            "evaluation_seconds": round(after - now, 4),
            "examples_per_second": round(examples / (now - self._clock), 1) if examples and now > self._clock else None,
        }
        self._folder.write_evaluation(row, timing)
        self._watcher.evaluated(row)
        progress.start_again()
        self._clock, self._clock_seen = time.monotonic(), seen

    def _write_in_run_readings(self) -> None:
        readings = self._run.stepper.collect()
        if readings:
            if (ratio := self._run.progress.parts_ratio) is not None:
                readings = [replace(reading, parts_ratio=ratio) for reading in readings]
            self._folder.write_readings(self._run, readings)

    def _gained(self) -> dict[str, float | int | None]:
        """The columns of the gain rule in a row; empty for other processes."""
        return {} if self._gain is None else self._gain.row()

    def _write_loss(self, step: int) -> None:
        """Write the mean training loss since the last such row; one that is not finite is found by the next check."""
        updates = self._run.progress.since_row
        mean = self._run.progress.loss_since_row() / updates
        if math.isfinite(mean):
            # checkpoints, whose times depend on the clock, write the readings too: the order of rows must not
            self._write_in_run_readings()
            self._folder.write_loss(step, mean, self._gained())

    def _compare(self, step: int) -> None:
        """Measure once in a run how the parts of the in-run probe change what BatchNorm sees."""
        if isinstance(self._spec.probe, InRunProbe) and (
            found := check_parts(self._run.training, self._spec.probe.parts)
        ):
            self._run.progress.parts_ratio = found.ratio
            self._folder.write_comparison(step, found)

    def _refuse_lost(self, step: int) -> None:
        if not math.isfinite(self._run.progress.loss_sum.item()):
            self._write_in_run_readings()  # as loading a checkpoint made just before would do
            raise Diverged(f"the training loss is not finite by {self._spec.step_name} {step}")

    def _save(self) -> None:
        self._write_in_run_readings()
        self._folder.save(self._run)
        self._saved = time.monotonic()

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told > 0.1:
            self._watcher.at(self._run.progress.step)
            self._told = now
