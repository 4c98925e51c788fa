"""Readings at frozen weights during a run, how parts of a batch differ from whole batches, and the speed of a network.

Readings and comparisons use batches that the run itself never sees. On several ranks every gradient is averaged before
it is used, so that all ranks see the same numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from svag.lab.specs.parts import FrozenProbe, GlsrSpec, InRunProbe, substeps
from svag.lab.specs.spec import RunSpec, cuts_batches, smallest_batch
from svag.lab.training.streams import BatchStream, LabelledBatch, own_randomness
from svag.lab.training.training import Training, load_inputs, pick_device, prepare
from svag.noise.batches import gradients_of, split
from svag.noise.frozen import MOST_BATCHES, PartsComparison, compare_parts, measure_noise
from svag.noise.parameters import batch_norms, square_norm
from svag.noise.reading import Reading
from svag.noise.throughput import measure_throughput
from svag.prices.estimate import Estimate


class Diverged(Exception):  # noqa: N818
    """Loss, gradients or weights are no longer finite, which is a result; the message names the step."""


class FrozenReadings:
    """Measures G and N at fixed weights, with batches of the size that the process trains with.

    SVAG with `split` is measured at B, the batch size of the SGD run that it describes; glsr at its own B/parts.
    """

    def __init__(self, training: Training, probe: FrozenProbe) -> None:
        spec = training.spec
        self._training, self._count = training, probe.batches
        ladder = isinstance(spec.process, GlsrSpec)
        size = smallest_batch(spec) if ladder else spec.batch_size
        self._batches = BatchStream(training.data, spec, "probe", size, independent=True)
        self._ell = 1 if ladder else substeps(spec.process)

    def read(self, step: int) -> Reading:
        """One reading before effective step `step`; the learning rate of that step must be set."""
        training = self._training
        own_randomness(training.ranks.rank, training.spec.seed, f"reading {step}")
        with training.ranks.averaging(training.trained):
            try:
                reading = measure_noise(
                    training.model,
                    training.shared_loss,
                    self._draws(),
                    optimizer=training.optimizer,
                    step=step,
                    verbose=False,
                )
            except ValueError as error:
                if self._overflows():
                    name = training.spec.step_name
                    raise Diverged(f"the gradients are not finite before {name} {step}") from error
                raise
        # drawn independently, but each without replacement: N is the without-replacement one
        return replace(reading, population=training.population, ell=self._ell)

    def state_dict(self) -> dict[str, Any]:
        """The position in the stream of batches."""
        return self._batches.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        self._batches.load_state_dict(state)

    def _overflows(self) -> bool:
        """Whether some batch has gradients that are not finite."""
        training = self._training
        gradients = (gradients_of(training.shared_loss(batch), training.trained) for batch in self._draws())
        squares = (square_norm(gradient) for gradient in gradients)
        return not all(bool(torch.isfinite(square)) for square in squares)

    def _draws(self) -> Iterator[LabelledBatch]:
        return (self._batches.draw() for _ in range(self._count))


def compare_shared_parts(training: Training, batches: Sequence[LabelledBatch], parts: int) -> PartsComparison:
    """Compare batches that all ranks have drawn, whole and in parts, at frozen weights.

    A batch counts as whole when each rank has its share of it, which is what BatchNorm normalises in a step without a
    probe; in parts, each rank has some of the parts. Every gradient is averaged before it is used, so that all ranks
    see the same numbers and stop together if they are not finite.
    """
    ranks = training.ranks

    def in_parts(batch: LabelledBatch) -> Tensor:
        mine = split(batch, parts)[ranks.share(parts)]
        return torch.stack([training.loss(part) for part in mine]).sum() * (ranks.size / parts)

    own_randomness(ranks.rank, training.spec.seed, "parts")
    with ranks.averaging(training.trained):
        whole = measure_noise(training.model, training.shared_loss, batches, verbose=False)
        cut = measure_noise(training.model, in_parts, batches, verbose=False)
    return PartsComparison(whole, replace(cut, approximate=True))


def needs_check(training: Training) -> bool:
    """Whether an in-run probe cuts batches that BatchNorm would see whole."""
    spec = training.spec
    return isinstance(spec.probe, InRunProbe) and cuts_batches(spec) and bool(batch_norms(training.model))


def check_parts(training: Training, parts: int) -> PartsComparison | None:
    """Compare batches that the run never sees, whole and in parts; None if their gradients are not finite.

    The batches come from a separate stream that is seeded anew every time, so that its state need not be saved. Several
    ranks draw the same batches and share the work.
    """
    spec = training.spec
    batches = BatchStream(training.data, spec, "parts", smallest_batch(spec), independent=True)
    drawn = [batches.draw() for _ in range(MOST_BATCHES)]
    try:
        if training.ranks.size > 1:
            return compare_shared_parts(training, drawn, parts)
        return compare_parts(training.model, training.loss, drawn, parts)
    except ValueError:  # the gradients are not finite: the run itself will notice that it has diverged
        return None


# A price list has the batch size of the run and this many doublings of it.
_DOUBLINGS = 6


def throughput_of(
    spec: RunSpec, *, device: str = "auto", data_dir: str | Path | None = None, threads: int = 1
) -> dict[int, Estimate]:
    """Examples per second of training steps at the batch size B of a spec and at 2B … 64B, as far as the data goes.

    Arguments as in `svag.lab.run`. Data augmentation and probes are not included.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        training = prepare(spec, load_inputs(spec.data, data_dir, pick_device(device)))
        sizes = [spec.batch_size * 2**k for k in range(_DOUBLINGS + 1)]
        return measure_throughput(
            training.model,
            training.optimizer,
            training.loss,
            (training.data.train_x[: sizes[-1]], training.data.train_y[: sizes[-1]]),
            [size for size in sizes if size <= training.examples],
        )
    finally:
        torch.set_num_threads(before)
