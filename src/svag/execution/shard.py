"""Which part of a plan is a machine's own, decided by the runs' identities alone."""

from collections.abc import Iterable

from svag.execution.plan import PlannedRun


def check_shard(shard: tuple[int, int] | None) -> None:
    """Refuse a shard that does not exist.

    >>> check_shard((4, 4))
    Traceback (most recent call last):
    ValueError: shard must be i/n with 0 ≤ i < n, got 4/4: the first of four is 0/4, the last 3/4
    """
    if shard is not None and not 0 <= shard[0] < shard[1]:
        raise ValueError(
            f"shard must be i/n with 0 ≤ i < n, got {shard[0]}/{shard[1]}: the first of four is 0/4, the last 3/4"
        )


def own_runs(plan: Iterable[PlannedRun], shard: tuple[int, int] | None) -> list[PlannedRun]:
    """The runs of one shard: those whose identity, as a number, leaves the remainder i when divided by n."""
    check_shard(shard)
    if shard is None:
        return list(plan)
    index, count = shard
    return [run for run in plan if int(run.identity, 16) % count == index]
