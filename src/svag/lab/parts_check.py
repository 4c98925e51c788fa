"""BatchNorm under an in-run probe: how far N and G of the parts are from those of whole batches, once in a run."""

from svag.lab.parallel.comparison import compare_shared_parts
from svag.lab.streams import BatchStream
from svag.lab.training import Training
from svag.noise.ghost import MOST_BATCHES, PartsComparison, compare_parts
from svag.noise.refusals import batch_norms
from svag.records.consistency import cuts_batches, smallest_batch
from svag.records.probe_spec import InRunProbe


def needs_check(training: Training) -> bool:
    """Whether an in-run probe cuts batches that BatchNorm would see whole."""
    spec = training.spec
    return isinstance(spec.probe, InRunProbe) and cuts_batches(spec) and bool(batch_norms(training.model))


def check_parts(training: Training, parts: int) -> PartsComparison | None:
    """Compare batches that the run never sees, whole and in parts; None when there is nothing finite to compare.

    The batches come from a stream of their own that starts anew, so that nothing has to be saved: asked again at the
    same weights, it gives the same answer. Several ranks draw the same and share the work.
    """
    spec = training.spec
    batches = BatchStream(training.data, spec, "parts", smallest_batch(spec), independent=True)
    drawn = [batches.draw() for _ in range(MOST_BATCHES)]
    try:
        if training.ranks.size > 1:
            return compare_shared_parts(training, drawn, parts)
        return compare_parts(training.model, training.loss, drawn, parts)
    except ValueError:  # gradients that are not finite: the run itself will notice that it has diverged
        return None
