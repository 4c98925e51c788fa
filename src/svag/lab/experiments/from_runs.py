"""Finding the experiment that a folder of single runs amounts to (`svag report --as ladder`)."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from svag.lab.experiments import EXPERIMENT, family_of
from svag.lab.experiments.arms import shared_by_seeds
from svag.lab.experiments.experiment import Experiment, Panel
from svag.lab.experiments.runs import one_version
from svag.lab.records.record import load_records
from svag.lab.specs.fields import SpecError, visible
from svag.lab.specs.parts import SgdSpec
from svag.lab.specs.spec import RunSpec

AnyExperiment = TypeVar("AnyExperiment", bound=Experiment)


def experiment_of_runs(folder: Path, kind: str) -> Experiment:
    """Read the runs of a folder as an experiment of this family; refuse a folder that has an experiment already."""
    family = family_of(kind)
    if (folder / EXPERIMENT).exists():
        raise SpecError(str(folder / EXPERIMENT), "already names the experiment of this folder: leave out --as")
    records = load_records(folder)
    one_version(records)
    specs = [record.spec for record in records if record.spec is not None]
    if not specs:
        raise SpecError(str(folder), "holds no runs that can be read: give a folder that svag has written")
    return from_specs(family, specs, title=f"Runs in {visible(folder.resolve().name)}")


def from_specs(family: type[AnyExperiment], specs: Iterable[RunSpec], title: str) -> AnyExperiment:
    """The experiment of a family whose `slots` contain these runs; refused if no two of them belong together.

    The first panel is the one that contains the most runs; on a tie, the one around the smaller batch size. The next
    panel is for the runs that are left, and so on. Runs in no panel stay strangers. Criteria (margin, tolerance, C²)
    have their defaults.
    """
    left: dict[RunSpec, list[RunSpec]] = {}
    for spec in specs:
        left.setdefault(shared_by_seeds(spec), []).append(spec)
    panels: list[Panel] = []
    while True:
        bases = [runs[0] for settings, runs in left.items() if isinstance(settings.process, SgdSpec)]
        claims = [_claimed(family, base, left) for base in bases]
        panel, claimed = min(
            claims, key=lambda claim: (-len(claim[1]), claim[0].base.batch_size), default=(None, set[RunSpec]())
        )
        if panel is None or len(claimed) < 2:
            break
        seeds = sorted({spec.seed for settings in claimed for spec in left[settings]})
        panels.append(panel.model_copy(update={"seeds": tuple(seeds)}))
        left = {settings: runs for settings, runs in left.items() if settings not in claimed}
    if not panels:
        kind = family.model_fields["kind"].default
        raise SpecError("", f"no two of these runs belong to one {kind} experiment: it takes {family.needs}")
    return family.model_validate({"title": title, **_named_apart(panels)})


def _claimed(family: type[Experiment], base: RunSpec, known: Collection[RunSpec]) -> tuple[Panel, set[RunSpec]]:
    """The panel around a base, and which of the known specs it contains: none if the panel is refused."""
    panel = family.around(base.edited({"process": {"kind": "sgd"}, "seed": 0}), known)
    try:
        return panel, {shared_by_seeds(spec) for _, spec in panel.arms()} & set(known)
    except SpecError:
        return panel, set()


def _named_apart(panels: Sequence[Panel]) -> dict[str, Any]:
    """The seeds of all panels, and the panels with distinct names, and with seeds only where these differ."""
    seeds = tuple(sorted({seed for panel in panels for seed in panel.seeds}))
    names = [panel.name for panel in panels]
    named = []
    for at, panel in enumerate(panels):
        number = f" ({names[:at].count(panel.name) + 1})" if names.count(panel.name) > 1 else ""
        own = () if panel.seeds == seeds else panel.seeds
        named.append(panel.model_copy(update={"name": panel.name + number, "seeds": own}))
    return {"seeds": seeds, "panels": tuple(named)}
