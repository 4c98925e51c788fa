"""The stepper that follows a process, alone or on one of several ranks.

A process of its own kind, on one of several ranks.

From the process of a spec to the stepper that follows it.
"""

from typing import Any

import torch
from torch import Tensor

from svag.lab.ranks import Ranks
from svag.lab.steppers import Amplified, FullPass, Ladder, Stepper
from svag.lab.streams import stream_seed
from svag.lab.training import Training
from svag.records.parts import GlsrSpec, InRunProbe, SgdSpec, SvagSpec
from svag.records.reading import Reading


def own_randomness(ranks: Ranks, seed: int, moment: str) -> None:
    """Let dropout draw other masks here than on rank 0, which follows the stream of an ordinary run.

    Seeded anew at every moment, so that nothing of it needs to be saved.
    """
    if ranks.rank:
        torch.manual_seed(stream_seed(seed, f"dropout/{ranks.rank}/{moment}"))


class SharedStepper:
    """A stepper whose ranks each see their share of every batch; its loss is that of the whole batch."""

    def __init__(self, stepper: Stepper, ranks: Ranks, seed: int) -> None:
        self._stepper, self._ranks, self._seed = stepper, ranks, seed

    @property
    def examples(self) -> int:
        """Examples that one effective step looks at, over all ranks."""
        return self._stepper.examples

    def set_rate(self, lr: float) -> None:
        """Set η of the next effective step."""
        self._stepper.set_rate(lr)

    def step(self, number: int, *, measure: bool) -> Tensor:
        """Take effective step `number`; return the mean loss over the examples of all ranks."""
        own_randomness(self._ranks, self._seed, f"step {number}")
        return self._ranks.mean(self._stepper.step(number, measure=measure))

    def collect(self) -> list[Reading]:
        """The readings since the last call, the same on all ranks; no message is exchanged."""
        return self._stepper.collect()

    def state_dict(self) -> dict[str, Any]:
        """Where the process is: the same on all ranks."""
        return self._stepper.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        self._stepper.load_state_dict(state)

    def close(self) -> None:
        """Give the model back as it was, its weights apart."""
        self._stepper.close()


def stepper_for(training: Training) -> Stepper:
    """The stepper of a spec's process. SVAG with ell = split = 1 is SGD, bit for bit, and is run as such."""
    stepper = _stepper_for(training)
    return stepper if training.ranks.size == 1 else SharedStepper(stepper, training.ranks, training.spec.seed)


def _stepper_for(training: Training) -> Stepper:
    process, probe = training.spec.process, training.spec.probe
    probe_parts = probe.parts if isinstance(probe, InRunProbe) else 0
    match process:
        case SgdSpec():
            return Ladder(training, 1, probe_parts)
        case GlsrSpec():
            return Ladder(training, process.parts, probe_parts)
        case SvagSpec():
            return Ladder(training, 1, probe_parts) if process.is_sgd else Amplified(training, process)
    return FullPass(training, process)
