"""Two ranks under DistributedDataParallel are one process with the batches of both, and talk once a sub-step."""

from pathlib import Path

import torch
from tests.two_ranks import two_ranks
from torch import nn

import svag


def test_two_ranks_equal_one_process(tmp_path: Path) -> None:
    found = two_ranks("tests.dynamics.data_parallel_rank", tmp_path)

    torch.manual_seed(0)
    model = nn.Linear(3, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(2, 6, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    both = [torch.cat([data[0, k], data[1, k]]) for k in range(6)]
    with svag.SVAG(model, optimizer, ell=3, track_noise=True) as sim:
        sim.step(lambda x: model(x).square().mean(), iter(list(zip(both[::2], both[1::2], strict=True))))

    for one in found:
        for kind in ("quiet", "tracked"):
            torch.testing.assert_close(
                torch.tensor(one[kind], dtype=torch.float64), model.weight.detach(), rtol=1e-12, atol=1e-15
            )
        assert one["talks"] == {"quiet": 3, "tracked": 6, "sgd": 1}
        assert one["refused"] == "the loss is not finite"
        assert one["readings"] == found[0]["readings"]
        for reading, expected in zip(one["readings"], sim.noise, strict=True):
            assert reading["batch_size"] == expected.batch_size == 8
            torch.testing.assert_close(reading["grad_sq"], expected.grad_sq, rtol=1e-10, atol=0)
            torch.testing.assert_close(reading["noise_trace"], expected.noise_trace, rtol=1e-10, atol=0)
