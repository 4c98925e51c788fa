"""Batches of any shape are cut, measured and compared."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import svag
from svag.dynamics import batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.dynamics.conftest import Problem


class Named(NamedTuple):
    x: Tensor
    y: Tensor


def test_parts_keep_the_container_and_all_rows() -> None:
    x, y = torch.arange(14).reshape(7, 2), torch.arange(7)
    for whole in ((x, y), [x, y], Named(x, y)):
        pieces = batch.parts(whole, 3)
        assert [type(piece) for piece in pieces] == [type(whole)] * 3
        assert [batch.size(piece) for piece in pieces] == [3, 2, 2]
        assert torch.equal(torch.cat([piece[0] for piece in pieces]), x)
        assert torch.equal(torch.cat([piece[1] for piece in pieces]), y)
    pieces = batch.parts({"x": x, "rest": {"y": y, "name": "kept"}}, 2)
    assert pieces[1]["rest"]["name"] == "kept"
    assert torch.equal(pieces[1]["rest"]["y"], y[4:])


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be cut into chunks=3"):
        batch.parts(torch.ones(2), 3)
    with pytest.raises(ValueError, match="must have 2 rows to be cut"):
        batch.parts((torch.ones(2), torch.ones(3)), 2)
    with pytest.raises(ValueError, match="one example per row, got str"):
        batch.size("text")


@pytest.mark.parametrize("chunks", [2, 3])
def test_chunks_do_not_change_the_step(problem: "Callable[[int], Problem]", chunks: int) -> None:
    """Not even when the parts are of unequal size."""
    ends, losses = [], []
    for count in (1, chunks):
        tiny = problem(10)
        optimizer = torch.optim.SGD(tiny.model.parameters(), lr=0.3)
        with svag.SVAG(tiny.model, optimizer, ell=3, chunks=count) as sim:
            losses.append(sim.substep(tiny.loss, tiny.batch(range(5)), tiny.batch(range(5, 10))).item())
        ends.append(tiny.get())
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-13)
    assert losses[1] == pytest.approx(losses[0], rel=1e-13)
