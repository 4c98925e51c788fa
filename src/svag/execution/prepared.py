"""A plan made ready: data looked at, the longest runs first, the board filled in; the same whoever computes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from svag.execution.board import Board
from svag.execution.cost import DataShape, cost
from svag.execution.dispatch import Dispatch
from svag.execution.plan import PlannedRun
from svag.execution.preflight import look_at_data
from svag.execution.view import View


@dataclass(frozen=True)
class Prepared:
    """What is left of a plan.

    Attributes:
        runs: those that have not ended, the longest first.
        work: how much work each is, by identity.
        shapes: the shape of each one's data, by identity.
        board: the state of the plan.
    """

    runs: list[PlannedRun]
    work: dict[str, float]
    shapes: dict[str, DataShape]
    board: Board

    def dispatch(self, device: torch.device, view: View, *, wait_for_others: bool) -> Dispatch:
        """Open the books."""
        return Dispatch(
            self.runs,
            self.work,
            self.shapes,
            device,
            wait_for_others=wait_for_others,
            board=self.board,
            view=view,
        )


def prepare_plan(own: Sequence[PlannedRun], waiting: Sequence[PlannedRun], data_dir: Path | None) -> Prepared:
    """Look at the data of the runs that have not ended, and put them into the order in which they shall begin.

    Args:
        own: all runs that are to be carried out here.
        waiting: those of them that have not ended.
        data_dir: where data files are, or shall be.
    """
    shapes = look_at_data(waiting, data_dir)
    work = {run.identity: cost(run.spec, shapes[run.identity]) for run in waiting}
    longest_first = sorted(waiting, key=lambda run: -work[run.identity])
    states = [run.record().state for run in own if run.identity not in work]
    board = Board(len(own), sum(work.values()), done=states.count("finished"), diverged=states.count("diverged"))
    return Prepared(longest_first, work, shapes, board)
