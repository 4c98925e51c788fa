"""The runs that share a base spec, and what the arms of a panel came to, in one metric.

The runs that share a base spec: the same SGD run, followed by another process.

An experiment with other seeds, or with fields of all its base specs replaced.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from svag.experiments.base import Compare, Ladder, Ngd, experiment_from
from svag.records.fields import SpecError
from svag.records.parts import InRunProbe, SgdSpec
from svag.records.spec import RunSpec
from svag.theory.optimizers import MomentumLimit


@contextmanager
def panel(name: str, panels: int) -> Iterator[None]:
    """Say which panel a refusal is about, where there are several; a single one is the user's own base spec."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{name}: {error.path}" if panels > 1 else error.path, error.reason) from None


def require_sgd(base: RunSpec) -> None:
    """An experiment varies the process itself: its base is the SGD run in question."""
    if not isinstance(base.process, SgdSpec):
        raise SpecError(
            "process.kind", f"the base of an experiment is the SGD run in question, got {base.process.kind}"
        )


def svag_arms(base: RunSpec, ells: Iterable[int], split: int, limit: MomentumLimit | None) -> list[RunSpec]:
    """One arm for each ell above 1; ell = 1 is SGD itself, which the caller runs in any case."""
    arms = []
    for ell in dict.fromkeys(ells):
        if ell > 1:
            process = {"kind": "svag", "ell": ell, "split": split, "momentum_limit": limit}
            arms.append(base.edited({"process": process}))
    return arms


def unmeasured_where_it_must(base: RunSpec, process: dict[str, Any]) -> RunSpec:
    """The base followed by another process, without its in-run probe where there are no batches that it could cut.

    What is measured is free: what such an arm is compared by is its result.
    """
    try:
        return base.edited({"process": process})
    except SpecError as error:
        if not isinstance(base.probe, InRunProbe) or not error.path.startswith("probe."):
            raise
    return base.edited({"process": process, "probe": {"kind": "none"}})


def over_seeds(arms: Iterable[RunSpec], seeds: Iterable[int]) -> list[RunSpec]:
    """Every arm with every seed; the seed of the base is not used."""
    every = tuple(dict.fromkeys(seeds))
    return [arm.edited({"seed": seed}) for arm in arms for seed in every]


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
