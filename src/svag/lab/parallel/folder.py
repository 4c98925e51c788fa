"""What the ranks that do not write have in place of a run directory."""

from collections.abc import Sequence
from typing import Any

from svag.lab.state import Run
from svag.noise.ghost import PartsComparison
from svag.records.reading import Reading


class NoFolder:
    """Takes what a run leaves, and leaves it to rank 0."""

    def write_readings(self, run: Run, readings: Sequence[Reading]) -> None:
        """Write nothing."""

    def write_comparison(self, step: int, found: PartsComparison) -> None:
        """Write nothing."""

    def write_evaluation(self, row: dict[str, Any], timing: dict[str, Any]) -> None:
        """Write nothing."""

    def save(self, run: Run) -> None:
        """Save nothing: every rank is where rank 0 is."""

    def end(self, run: Run, state: str, reason: str = "") -> None:
        """Write nothing."""
