"""Sentences that all findings share."""

from collections.abc import Sequence

from svag.findings.experiments.runs import MissingRun

_SHOWN = 4
CONTINUE = "start the same command again: it continues with the runs that have no result."


def missing_first(missing: Sequence[MissingRun], found: int) -> list[str]:
    """The first line of a finding with missing runs; none without."""
    if not missing:
        return []
    named = "; ".join(str(run) for run in missing[:_SHOWN])
    more = f"; and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    return [f"Incomplete: {found} of {found + len(missing)} runs have a result. Missing: {named}{more}."]


def not_used(strangers: Sequence[str], missing: Sequence[MissingRun]) -> list[str]:
    """A paragraph about the records that no panel asked for, after what matters more; none without."""
    if not strangers:
        return []
    more = f"; and {len(strangers) - _SHOWN} more" if len(strangers) > _SHOWN else ""
    first = f"Incomplete: {len(missing)} runs have no result. " if missing else ""
    return [f"{first}Not used: {'; '.join(strangers[:_SHOWN])}{more}."]
