"""The batch gradients of a network that a run has trained, as a table (sec:app_heayvtailed)."""

from pathlib import Path

from svag.arrays import FloatArray
from svag.lab.checkpoint import CheckpointError, load_checkpoint
from svag.lab.data.load import load_data
from svag.lab.streams import BatchStream
from svag.lab.training import pick_device, prepare
from svag.noise.gradient_table import gradient_table
from svag.records.record import CHECKPOINT, read_record


def run_gradients(
    folder: str | Path,
    batches: int = 512,
    *,
    coordinates: int = 400,
    device: str = "auto",
    data_dir: str | Path | None = None,
) -> FloatArray:
    """Return the gradients of independent batches of the run's size at its last weights, one row each.

    Args:
        folder: the run directory, with its checkpoint.
        batches: how many; 512 make a steady `svag.findings.heavy_tails.heavy_tails`.
        coordinates: how many numbers of each gradient to keep.
        device: where to compute.
        data_dir: where data files are.
    """
    record = read_record(Path(folder))
    spec = record.spec
    if spec is None:
        raise CheckpointError(f"{folder} is not a run that can be read: {record.problem}")
    if record.state == "diverged":
        raise CheckpointError(f"{folder} diverged: its gradients are not finite; take a run that finished")
    place = pick_device(device)
    state = load_checkpoint(record.path / CHECKPOINT, record.identity, place)
    if state is None:
        raise CheckpointError(f"{folder} has no checkpoint, so its weights are gone: run its spec again")
    data = load_data(
        spec.data.name,
        path=spec.data.path,
        data_dir=data_dir,
        subset=spec.data.subset,
        pool=spec.data.pool,
        device=place,
    )
    training = prepare(spec, data)
    training.model.load_state_dict(state["model"])
    stream = BatchStream(data, spec, "tails", spec.batch_size, independent=True)
    draws = (stream.draw() for _ in range(batches))
    return gradient_table(training.model, training.loss, draws, coordinates=coordinates)
