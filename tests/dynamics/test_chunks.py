"""chunks=k: the same step with less memory."""

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import svag

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.dynamics.conftest import Problem


@pytest.mark.parametrize("chunks", [2, 3, 6])
def test_chunks_do_not_change_the_step(problem: "Callable[[int], Problem]", chunks: int) -> None:
    ends, losses = [], []
    for count in (1, chunks):
        tiny = problem(12)
        optimizer = torch.optim.SGD(tiny.model.parameters(), lr=0.3)
        with svag.SVAG(tiny.model, optimizer, ell=3, chunks=count) as sim:
            losses.append(sim.substep(tiny.loss, tiny.batch(range(6)), tiny.batch(range(6, 12))).item())
        ends.append(tiny.get())
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-13)
    assert losses[1] == pytest.approx(losses[0], rel=1e-13)


def test_chunks_must_divide_the_batch(problem: "Callable[[int], Problem]") -> None:
    tiny = problem(10)
    before = tiny.get()
    with (
        svag.SVAG(tiny.model, torch.optim.SGD(tiny.model.parameters(), lr=0.3), ell=3, chunks=3) as sim,
        pytest.raises(ValueError, match=r" 5 .* 3 "),
    ):
        sim.substep(tiny.loss, tiny.batch(range(5)), tiny.batch(range(5, 10)))
    assert np.array_equal(tiny.get(), before)
