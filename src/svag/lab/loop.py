"""The loop of a run: evaluate, measure, step, save; each at moments that the spec alone decides, saving apart."""

import math
import time
from dataclasses import replace
from typing import Any

from svag.lab.diverged import Diverged
from svag.lab.evaluation import evaluate, noise_summary
from svag.lab.folder import RunFolder
from svag.lab.parallel.folder import NoFolder
from svag.lab.parts_check import check_parts, needs_check
from svag.lab.state import Run
from svag.lab.watching import Watcher
from svag.records.probe_spec import FrozenProbe, InRunProbe

# The loss is looked at so often; in between, nothing waits for the device.
CHECK_EVERY = 20


class Loop:
    """Takes a run from where it is to its end.

    Args:
        run: all that moves.
        folder: where it is written down.
        watcher: who is told.
        save_seconds: seconds between two checkpoints; 0 is one after every effective step.
    """

    def __init__(self, run: Run, folder: RunFolder | NoFolder, watcher: Watcher, save_seconds: float) -> None:
        self._run, self._folder, self._watcher = run, folder, watcher
        spec, examples = run.training.spec, run.training.examples
        self._spec = spec
        self._steps = spec.steps(examples)
        self._interval = spec.evaluate.interval(self._steps)
        self._in_run = spec.probe.steps(self._steps) if isinstance(spec.probe, InRunProbe) else range(0)
        self._frozen = set(spec.probe.steps(self._steps)) if isinstance(spec.probe, FrozenProbe) else set[int]()
        self._compare_at = self._in_run[0] if self._in_run and needs_check(run.training) else None
        self._save_seconds, self._saved = save_seconds, time.monotonic()
        self._told = self._clock = time.monotonic()
        self._clock_step = run.progress.step

    def go(self) -> None:
        """Run to the end of the budget; raise `Diverged` if the loss is lost on the way."""
        progress = self._run.progress
        while True:
            if progress.step % self._interval == 0 or progress.step == self._steps:
                self._evaluate()
            if progress.step == self._steps:
                return
            self._take_step()
            self._tell()
            if progress.step == self._steps or time.monotonic() - self._saved >= self._save_seconds:
                self._save()

    def _take_step(self) -> None:
        run, step = self._run, self._run.progress.step
        lr = self._spec.lr * self._spec.schedule.multiplier(step, self._steps)
        run.stepper.set_rate(lr)
        if run.frozen is not None and step in self._frozen:
            self._refuse_lost(step)
            self._folder.write_readings(run, [run.frozen.read(step)])
        if step == self._compare_at:
            self._compare(step)
        loss = run.stepper.step(step, measure=step in self._in_run)
        run.progress.add(loss, lr)
        if run.progress.step == self._in_run.stop:
            self._write_in_run_readings()
        if run.progress.step % CHECK_EVERY == 0:
            self._refuse_lost(run.progress.step)

    def _evaluate(self) -> None:
        run, progress = self._run, self._run.progress
        self._refuse_lost(progress.step)
        self._write_in_run_readings()
        now, trained = time.monotonic(), progress.step - self._clock_step
        found = evaluate(run.training)
        if not all(math.isfinite(value) for value in found.values()):
            raise Diverged(f"the test loss or the weights are not finite after effective step {progress.step}")
        row: dict[str, Any] = {
            "step": progress.step,
            "time": progress.time,
            "lr": self._spec.lr * self._spec.schedule.multiplier(min(progress.step, self._steps - 1), self._steps),
            "train_loss": progress.loss_sum.item() / progress.loss_count if progress.loss_count else None,
            **found,
        }
        if progress.since:
            row["noise"] = noise_summary(self._spec, progress.since)
        after = time.monotonic()
        examples = trained * run.stepper.examples
        timing = {
            "examples": progress.step * run.stepper.examples,
            "training_seconds": round(now - self._clock, 4),
            "evaluation_seconds": round(after - now, 4),
            "examples_per_second": round(examples / (now - self._clock), 1) if trained and now > self._clock else None,
        }
        self._folder.write_evaluation(row, timing)
        self._watcher.evaluated(row)
        progress.loss_sum.zero_()
        progress.loss_count = 0
        progress.since.clear()
        self._clock, self._clock_step = time.monotonic(), progress.step

    def _write_in_run_readings(self) -> None:
        readings = self._run.stepper.collect()
        if readings:
            if (ratio := self._run.progress.parts_ratio) is not None:
                readings = [replace(reading, parts_ratio=ratio) for reading in readings]
            self._folder.write_readings(self._run, readings)

    def _compare(self, step: int) -> None:
        """Once in a run: what the parts of the in-run probe do to BatchNorm."""
        if isinstance(self._spec.probe, InRunProbe) and (
            found := check_parts(self._run.training, self._spec.probe.parts)
        ):
            self._run.progress.parts_ratio = found.ratio
            self._folder.write_comparison(step, found)

    def _refuse_lost(self, step: int) -> None:
        if not math.isfinite(self._run.progress.loss_sum.item()):
            self._write_in_run_readings()  # a checkpoint, whose moment the clock decides, would have written them too
            raise Diverged(f"the training loss is not finite by effective step {step}")

    def _save(self) -> None:
        self._write_in_run_readings()
        self._folder.save(self._run)
        self._saved = time.monotonic()

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told > 0.1:
            self._watcher.at(self._run.progress.step)
            self._told = now
