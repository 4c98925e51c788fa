"""The runs that share a base spec: the same SGD run, followed by another process."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from svag.records.probe_spec import InRunProbe
from svag.records.process_spec import SgdSpec
from svag.records.refusal import SpecError
from svag.records.spec import RunSpec
from svag.theory.refinement import MomentumLimit


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
