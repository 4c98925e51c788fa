"""An experiment with other seeds, or with fields of all its base specs replaced."""

from collections.abc import Mapping
from typing import Any

from svag.experiments.arms import panel
from svag.records.experiment import Compare, Ladder, Ngd, experiment_from
from svag.records.spec import RunSpec


def edited(
    experiment: Compare | Ladder | Ngd, edits: Mapping[str, Any], seeds: int | None = None
) -> Compare | Ladder | Ngd:
    """The same question about other base specs; the note says what was replaced.

    >>> from svag.experiments.figures import figure
    >>> shuffled = edited(figure("fig:svag_accs", "paper"), {"sampling": "shuffle"}, seeds=2)
    >>> shuffled.note, shuffled.seeds, shuffled.panels[0].base.sampling
    ('with sampling = shuffle', (0, 1), 'shuffle')
    """
    fields = experiment.model_dump(mode="json")
    if seeds is not None:
        fields["seeds"] = list(range(seeds))
    for plain in fields["panels"]:
        if seeds is not None:
            plain["seeds"] = []
        with panel(plain["name"], len(experiment.panels)):
            plain["base"] = RunSpec.from_dict(plain["base"]).edited(edits).to_dict()
            if any(path.split(".")[0] == "probe" for path in edits):
                plain.pop("probe_batches", None)  # of the probe that was replaced
    if edits:
        changes = "with " + ", ".join(f"{path} = {value}" for path, value in edits.items())
        fields["note"] = f"{experiment.note}; {changes}" if experiment.note else changes
    return experiment_from(fields)
