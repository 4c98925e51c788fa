"""From the process of a spec to the stepper that follows it."""

from svag.lab.parallel.stepper import SharedStepper
from svag.lab.steppers.amplified import Amplified
from svag.lab.steppers.full_pass import FullPass
from svag.lab.steppers.ladder import Ladder
from svag.lab.steppers.stepper import Stepper
from svag.lab.training import Training
from svag.records.probe_spec import InRunProbe
from svag.records.process_spec import GlsrSpec, SgdSpec, SvagSpec


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
