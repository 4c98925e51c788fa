"""Before anything starts: is the data there, and does every spec fit it? What is wrong for all is said once."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import torch

from svag.execution.cost import DataShape
from svag.execution.plan import PlannedRun
from svag.lab.inputs import check_inputs, load_inputs


def look_at_data(runs: Iterable[PlannedRun], data_dir: Path | None) -> dict[str, DataShape]:
    """Load every data set of the runs once, fetching it when it is not there, and check each spec against it.

    Returns the shape of each run's data by the run's identity. The networks are left to the workers: one of the user's
    own may do anything to the process that builds it.
    """
    by_data = defaultdict(list)
    for run in runs:
        by_data[run.spec.data.model_copy(update={"augment": None})].append(run)
    shapes: dict[str, DataShape] = {}
    for data, users in by_data.items():
        loaded = load_inputs(data, data_dir, torch.device("cpu"))
        shape = DataShape(len(loaded.train_x), len(loaded.test_x), loaded.in_channels, min(loaded.image_size))
        for run in users:
            check_inputs(run.spec, loaded)
            shapes[run.identity] = shape
    return shapes
