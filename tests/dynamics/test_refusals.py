"""Bad input gets one sentence, and a refused step leaves everything as it was."""

import math
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import svag

Batch = tuple[Tensor, Tensor]


def network(norm: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4) if norm else nn.Tanh(), nn.Linear(4, 1))


def batch(seed: int, size: int = 6, dtype: torch.dtype = torch.float32) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 3, generator=generator).to(dtype), torch.randn(size, generator=generator)


class Setup:
    def __init__(self, **settings: Any) -> None:
        self.model = network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.sim = svag.SVAG(self.model, self.optimizer, momentum_limit="underdamped", **settings)
        with self.sim:  # so that there is a state to spoil
            self.sim.step(self.loss, self.pairs(self.sim.ell))
        self.before = deepcopy((self.model.state_dict(), self.optimizer.state_dict(), self.sim.state_dict()))
        self.readings = list(self.sim.noise)

    def loss(self, batch: Batch) -> Tensor:
        output: Tensor = self.model(batch[0])
        return (output.squeeze(1) - batch[1]).square().mean()

    def pairs(self, count: int) -> Iterator[tuple[Batch, Batch]]:
        return iter([(batch(2 * k), batch(2 * k + 1)) for k in range(count)])

    def assert_untouched(self) -> None:
        now = (self.model.state_dict(), self.optimizer.state_dict(), self.sim.state_dict())
        torch.testing.assert_close(now[:2], self.before[:2], rtol=0, atol=0)
        assert now[2] == self.before[2]
        assert self.sim.noise == self.readings
        assert all(p.grad is None for p in self.model.parameters())


BROKEN: list[tuple[str, Any, type[Exception], str]] = [
    ("exhausted", [(batch(0), batch(1))], ValueError, "pairs ended after 1 of the 3 pairs"),
    ("infinite", [(batch(0), batch(1)), (batch(2), (batch(3)[0] * math.nan, batch(3)[1]))], FloatingPointError, "loss"),
    ("sizes", [(batch(0), batch(1)), (batch(2), batch(3, size=4))], ValueError, "of one size, got 6 and 4"),
    ("devices", [(batch(0), (batch(1)[0].to("meta"), batch(1)[1]))], ValueError, "on one device, got cpu, meta"),
    ("dtypes", [(batch(0), batch(1, dtype=torch.float64))], ValueError, "must be alike"),
    ("a batch for a pair", [batch(0)], ValueError, "independent_pairs"),
    ("a collated batch for a pair", [[batch(0)[0], batch(1)[0]]], ValueError, "as a tuple, got list"),
    ("three batches", [(batch(0), batch(1), batch(2))], ValueError, "two batches at a time"),
]


@pytest.mark.parametrize(
    ("pairs", "error", "sentence"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_a_refused_effective_step_changes_nothing(pairs: list[Any], error: type[Exception], sentence: str) -> None:
    setup = Setup(ell=3, check_finite=True, track_noise=True)
    with setup.sim, pytest.raises(error, match=sentence) as found:
        setup.sim.step(setup.loss, iter(pairs))
    setup.assert_untouched()
    assert "\n" not in str(found.value)
    if error is ValueError:
        with setup.sim:  # and the run can go on
            setup.sim.step(setup.loss, setup.pairs(3))
        assert setup.sim.effective_step == 2


def test_a_refused_substep_changes_nothing_either() -> None:
    setup = Setup(ell=2, check_finite=True)
    with setup.sim:
        with pytest.raises(FloatingPointError, match="not finite in effective step 1"):
            setup.sim.substep(setup.loss, batch(0), (batch(1)[0] * math.inf, batch(1)[1]))
        setup.assert_untouched()
        with pytest.raises(ValueError, match="second batch is missing"):
            setup.sim.substep(setup.loss, batch(0))
        setup.assert_untouched()
        with pytest.raises(ValueError, match="drawn independently, got one batch twice"):
            setup.sim.substep(setup.loss, *[batch(0)] * 2)
        setup.assert_untouched()
        with pytest.raises(ValueError, match=r"mean loss as a scalar, got shape \(6, 1\)"):
            setup.sim.substep(lambda b: setup.model(b[0]), batch(0), batch(1))
        setup.assert_untouched()
        with pytest.raises(TypeError, match="must return a tensor, got float"):
            setup.sim.substep(lambda b: 1.0, batch(0), batch(1))  # type: ignore[arg-type,return-value]
        setup.assert_untouched()


def test_without_check_finite_a_diverged_run_goes_on_as_sgd_would() -> None:
    setup = Setup(ell=2)
    with setup.sim:
        setup.sim.substep(setup.loss, batch(0), (batch(1)[0] * math.inf, batch(1)[1]))
    assert not torch.isfinite(next(setup.model.parameters())).all()


def test_a_closed_or_half_done_context_is_refused() -> None:
    setup = Setup(ell=2)
    with pytest.raises(RuntimeError, match="is not open"):
        setup.sim.step(setup.loss, setup.pairs(2))
    with pytest.raises(RuntimeError, match="is not open"):
        setup.sim.substep(setup.loss, batch(0), batch(1))
    with setup.sim:
        with pytest.raises(RuntimeError, match="open already"), setup.sim:
            pass
        with pytest.raises(ValueError, match="must be an iterator, got list"):
            setup.sim.step(setup.loss, list(setup.pairs(2)))  # type: ignore[arg-type]
        setup.sim.substep(setup.loss, batch(0), batch(1))
        with pytest.raises(RuntimeError, match="1 of 2 sub-steps are done"):
            setup.sim.step(setup.loss, setup.pairs(2))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"ell": 0}, "ell must be a whole number of at least 1, got 0"),
        ({"ell": 1.5}, "ell must be a whole number"),
        ({"ell": math.nan}, "ell must be a finite number"),
        ({"ell": "4"}, "ell must be a number, got '4'"),
        ({"ell": True}, "ell must be a number, got True"),
        ({"ell": None}, "ell must be a number, got None"),
        ({"ell": 2, "split": 5}, "ell must be at least split/2"),
        ({"ell": 2, "population": 0.5}, "population must be a whole number"),
        ({"ell": 2, "chunks": 0}, "chunks must be a whole number"),
        ({"ell": 1, "track_noise": True}, "NoiseProbe"),
        ({"ell": 1, "split": 2, "population": 64}, "ell=1, split=2 has no weights for batches drawn without"),
    ],
)
def test_arguments(arguments: dict[str, Any], sentence: str) -> None:
    model = network(norm=False)
    with pytest.raises((TypeError, ValueError), match=sentence):
        svag.SVAG(model, torch.optim.SGD(model.parameters(), lr=0.1), **arguments)


def test_optimizers_without_a_limit() -> None:
    model = network(norm=False)
    parameters = list(model.parameters())

    class Mine(torch.optim.SGD):
        pass

    for optimizer, sentence in (
        (torch.optim.Adam(parameters), "optimizer is Adam"),
        (Mine(parameters, lr=0.1), "optimizer is Mine"),
        (torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True), "nesterov=True"),
        (torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.5), "dampening=0.5"),
        (torch.optim.SGD(parameters, lr=0.1, differentiable=True), "differentiable=True"),
        (torch.optim.SGD(parameters, lr=torch.tensor(0.1)), "tensor for lr"),
    ):
        with pytest.raises(ValueError, match=f"{sentence}.*what works is torch.optim.SGD itself"):
            svag.SVAG(model, optimizer, ell=2, momentum_limit="overdamped")
        for refine in (1, 2):
            with pytest.raises(ValueError, match=f"{sentence}.*what works is torch.optim.SGD itself"):
                svag.NoisyGD(model, optimizer, batch_size=2, dataset_size=6, refine=refine, generator=torch.Generator())
    stranger = torch.optim.SGD(network().parameters(), lr=0.1)
    with pytest.raises(ValueError, match="trains no parameter of the model"):
        svag.SVAG(model, stranger, ell=2)


def test_settings_changed_in_mid_run_are_refused_too() -> None:
    setup = Setup(ell=2)
    setup.optimizer.param_groups[0]["nesterov"] = True
    with setup.sim, pytest.raises(ValueError, match="nesterov"):
        setup.sim.step(setup.loss, setup.pairs(2))
    setup.optimizer.param_groups[0]["nesterov"] = False
    setup.assert_untouched()
    with setup.sim:
        setup.sim.substep(setup.loss, batch(0), batch(1))
        setup.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
        with pytest.raises(ValueError, match="1 parameter groups when this effective step began and has 2 now"):
            setup.sim.substep(setup.loss, batch(0), batch(1))


def test_pairs_of_a_loader_in_epochs_are_refused_unless_told() -> None:
    data = TensorDataset(torch.arange(8))
    for loader in (DataLoader(data, 2), DataLoader(data, 2, shuffle=True)):
        with pytest.raises(ValueError, match=r"in epochs.*svag\.BatchSampler"):
            svag.independent_pairs(loader)
    with pytest.warns(UserWarning, match="mixes sampling with discretisation"):
        svag.independent_pairs(DataLoader(data, 2, shuffle=True), allow_shuffle=True)
