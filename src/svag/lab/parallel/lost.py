"""What ends a process of a data-parallel run without a fault of its own."""

CONTINUES = "the same command continues from the last checkpoint, with any number of processes unless BatchNorm is used"


class RankLost(Exception):  # noqa: N818  # it is not an error of this process
    """Another process of the run died, or does not answer; the message is one sentence."""


class Elsewhere(Exception):  # noqa: N818
    """The first process of the run failed, and it is the one that says why.

    Attributes:
        kind: what it failed with.
    """

    def __init__(self, kind: type[BaseException]) -> None:
        super().__init__(f"the first process of the run ended with {kind.__name__}")
        self.kind = kind


def lost(error: RuntimeError, seconds: float) -> RankLost:
    """What a message that did not get through means."""
    if "timed out" in str(error).lower():
        return RankLost(f"a process of this run has not answered for {seconds:.0f} s: {CONTINUES}")
    return RankLost(f"a process of this run was lost: {CONTINUES}")


def kind_of(error: Exception) -> type[BaseException]:
    """The most precise class of an error that every process knows: ours or Python's own."""
    return next(kind for kind in type(error).__mro__ if kind.__module__.split(".")[0] in {"svag", "builtins"})
