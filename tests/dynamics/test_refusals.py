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
    ("exhausted", [(batch(0), batch(1))], ValueError, r"^pairs\b.* 1 .* 3 "),
    ("infinite", [(batch(0), batch(1)), (batch(2), (batch(3)[0] * math.nan, batch(3)[1]))], FloatingPointError, "loss"),
    ("sizes", [(batch(0), batch(1)), (batch(2), batch(3, size=4))], ValueError, "got 6 and 4"),
    ("devices", [(batch(0), (batch(1)[0].to("meta"), batch(1)[1]))], ValueError, "got cpu, meta"),
    ("dtypes", [(batch(0), batch(1, dtype=torch.float64))], ValueError, "float64"),
    ("a batch for a pair", [batch(0)], ValueError, "independent_pairs"),
    ("a collated batch for a pair", [[batch(0)[0], batch(1)[0]]], ValueError, "tuple, got list"),
    ("three batches", [(batch(0), batch(1), batch(2))], ValueError, "batches"),
]


@pytest.mark.parametrize(
    ("pairs", "error", "sentence"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_a_refused_effective_step_changes_nothing(pairs: list[Any], error: type[Exception], sentence: str) -> None:
    setup = Setup(ell=3, check_finite=True, track_noise=True, atomic=True)
    with setup.sim, pytest.raises(error, match=sentence) as found:
        setup.sim.step(setup.loss, iter(pairs))
    setup.assert_untouched()
    assert "\n" not in str(found.value)
    if error is ValueError:
        with setup.sim:  # and the run can go on
            setup.sim.step(setup.loss, setup.pairs(3))
        assert setup.sim.effective_step == 2


def test_without_atomic_only_the_sub_step_that_failed_is_taken_back() -> None:
    setup, twin = Setup(ell=3, check_finite=True), Setup(ell=3, check_finite=True)
    with setup.sim, twin.sim:
        with pytest.raises(ValueError, match=r"^pairs\b.* 1 .* 3 .*sub-step 1\b"):
            setup.sim.step(setup.loss, setup.pairs(1))
        twin.sim.substep(twin.loss, batch(0), batch(1))
        torch.testing.assert_close(setup.model.state_dict(), twin.model.state_dict(), rtol=0, atol=0)
        assert setup.sim.state_dict() == twin.sim.state_dict()
        with pytest.raises(RuntimeError, match=r"^step\(\).* 1 of 3 .*substep\(\)"):
            setup.sim.step(setup.loss, setup.pairs(3))
        for _ in range(2):
            setup.sim.substep(setup.loss, batch(4), batch(5))
        assert setup.sim.boundary


def test_a_refused_substep_changes_nothing_either() -> None:
    setup = Setup(ell=2, check_finite=True)
    with setup.sim:
        with pytest.raises(FloatingPointError, match=r"step 1\b"):
            setup.sim.substep(setup.loss, batch(0), (batch(1)[0] * math.inf, batch(1)[1]))
        setup.assert_untouched()
        with pytest.raises(ValueError, match=r"\bell\b.*\bsplit\b"):
            setup.sim.substep(setup.loss, batch(0))
        setup.assert_untouched()
        with pytest.raises(ValueError, match="twice"):
            setup.sim.substep(setup.loss, *[batch(0)] * 2)
        setup.assert_untouched()
        with pytest.raises(ValueError, match=r"^loss_fn\b.*\(6, 1\)"):
            setup.sim.substep(lambda b: setup.model(b[0]), batch(0), batch(1))
        setup.assert_untouched()
        with pytest.raises(TypeError, match=r"^loss_fn\b.*float"):
            setup.sim.substep(lambda b: 1.0, batch(0), batch(1))  # type: ignore[arg-type,return-value]
        setup.assert_untouched()


def test_without_check_finite_a_diverged_run_goes_on_as_sgd_would() -> None:
    setup = Setup(ell=2)
    with setup.sim:
        setup.sim.substep(setup.loss, batch(0), (batch(1)[0] * math.inf, batch(1)[1]))
    assert not torch.isfinite(next(setup.model.parameters())).all()


def test_a_closed_or_half_done_context_is_refused() -> None:
    setup = Setup(ell=2)
    with pytest.raises(RuntimeError, match=r"`with svag\.SVAG\("):
        setup.sim.step(setup.loss, setup.pairs(2))
    with pytest.raises(RuntimeError, match=r"`with svag\.SVAG\("):
        setup.sim.substep(setup.loss, batch(0), batch(1))
    with setup.sim:
        with pytest.raises(RuntimeError, match=r"\bsvag\.SVAG\b"), setup.sim:
            pass
        with pytest.raises(ValueError, match=r"^pairs\b.*list"):
            setup.sim.step(setup.loss, list(setup.pairs(2)))  # type: ignore[arg-type]
        setup.sim.substep(setup.loss, batch(0), batch(1))
        with pytest.raises(RuntimeError, match=r"^step\(\).* 1 of 2 "):
            setup.sim.step(setup.loss, setup.pairs(2))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"ell": 0}, r"^ell\b.*got 0"),
        ({"ell": 1.5}, r"^ell\b"),
        ({"ell": math.nan}, r"^ell\b"),
        ({"ell": "4"}, r"^ell\b.*got '4'"),
        ({"ell": True}, r"^ell\b"),
        ({"ell": None}, r"^ell\b"),
        ({"ell": 2, "split": 5}, r"^ell\b"),
        ({"ell": 2, "population": 0.5}, r"^population\b"),
        ({"ell": 2, "chunks": 0}, r"^chunks\b"),
        ({"ell": 1, "track_noise": True}, "NoiseProbe"),
        ({"ell": 1, "split": 2, "population": 64}, "^ell=1, split=2 "),
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

    for optimizer, named in (
        (torch.optim.NAdam(parameters), "NAdam"),
        (torch.optim.RAdam(parameters), "RAdam"),
        (torch.optim.Adafactor(parameters), "Adafactor"),
        (torch.optim.Rprop(parameters), "Rprop"),
        (Mine(parameters, lr=0.1), "Mine"),
        (torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True), "nesterov=True"),
        (torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.5), "dampening=0.5"),
        (torch.optim.SGD(parameters, lr=0.1, differentiable=True), "differentiable=True"),
        (torch.optim.SGD(parameters, lr=torch.tensor(0.1)), r"\blr\b"),
    ):
        with pytest.raises(ValueError, match=rf"{named}.*torch\.optim\.SGD\b"):
            svag.SVAG(model, optimizer, ell=2, momentum_limit="overdamped")
        for refine in (1, 2):
            with pytest.raises(ValueError, match=rf"{named}.*torch\.optim\.SGD\b"):
                svag.NoisyGD(model, optimizer, batch_size=2, dataset_size=6, refine=refine, generator=torch.Generator())


@pytest.mark.parametrize(
    ("kind", "settings", "named"),
    [
        ("Adam", {"amsgrad": True}, r"amsgrad=True.*torch\.optim\.Adam\b"),
        ("AdamW", {"amsgrad": True}, "amsgrad=True"),
        ("Adam", {"differentiable": True}, r"differentiable=True.*torch\.optim\.Adam\b"),
        ("Adam", {"capturable": True}, "capturable=True.*CUDA"),
        ("RMSprop", {"capturable": True}, "capturable=True.*CUDA"),
        ("Adam", {"lr": torch.tensor(0.1)}, r"\blr\b.*lr\.item\(\).*torch\.optim\.Adam\b"),
        ("Adam", {"betas": (torch.tensor(0.9), torch.tensor(0.99))}, "betas.*float"),
        ("Adam", {"betas": (0.9, 0.0)}, r"betas\[1\]=0\b"),
        ("RMSprop", {"alpha": 0.0}, r"alpha=0\b"),
        ("RMSprop", {"momentum": 0.9}, r"momentum=0\.9.*torch\.optim\.Adam\b"),
        ("RMSprop", {"centered": True}, "centered=True"),
    ],
)
def test_adaptive_settings_without_a_limit(kind: str, settings: dict[str, Any], named: str) -> None:
    model = network(norm=False)
    optimizer = getattr(torch.optim, kind)([{"params": model[0].parameters()}, {"params": model[2].parameters()}])
    svag.SVAG(model, optimizer, ell=2)
    optimizer.param_groups[1].update(settings)
    with pytest.raises(ValueError, match=f"group 1 .*{named}") as found:
        svag.SVAG(model, optimizer, ell=2)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "RMSprop"])
def test_what_exists_only_for_sgd_says_so(kind: str) -> None:
    model = network(norm=False)
    optimizer = getattr(torch.optim, kind)(model.parameters())
    with pytest.raises(ValueError, match=rf"\b{kind}\b.*split=2.*\bSGD\b"):
        svag.SVAG(model, optimizer, ell=2, split=2)
    with pytest.raises(ValueError, match=rf"\b{kind}\b.*momentum_limit='overdamped'.*\bSGD\b"):
        svag.SVAG(model, optimizer, ell=2, momentum_limit="overdamped")
    for refine in (1, 2):
        with pytest.raises(ValueError, match=rf"\b{kind}\b.*torch\.optim\.SGD\b"):
            svag.NoisyGD(model, optimizer, batch_size=2, dataset_size=6, refine=refine, generator=torch.Generator())


def test_averages_that_a_type_cannot_hold() -> None:
    """In bfloat16, 1 − 0.001/2 is 1: the second moment would never forget."""
    model = network(norm=False).bfloat16()
    with pytest.raises(ValueError, match=r"group 0 .*\bbfloat16\b.* 0\.0005 .*\bfloat32\b"):
        svag.SVAG(model, torch.optim.AdamW(model.parameters()), ell=2)
    with pytest.raises(ValueError, match=r"\bbfloat16\b.*\bell\b"):
        svag.SVAG(model, torch.optim.RMSprop(model.parameters()), ell=2)
    svag.SVAG(model, torch.optim.AdamW(model.parameters()), ell=1)
    svag.SVAG(model, torch.optim.AdamW(model.parameters(), betas=(0.0, 0.9)), ell=4)
    svag.SVAG(model, torch.optim.SGD(model.parameters(), lr=0.1), ell=512)


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
        with pytest.raises(ValueError, match=r" 1 .*groups.* 2 "):
            setup.sim.substep(setup.loss, batch(0), batch(1))


def test_pairs_of_a_loader_in_epochs_are_refused_unless_told() -> None:
    data = TensorDataset(torch.arange(8))
    for loader in (DataLoader(data, 2), DataLoader(data, 2, shuffle=True)):
        with pytest.raises(ValueError, match=r"svag\.BatchSampler"):
            svag.independent_pairs(loader)
    with pytest.warns(UserWarning, match=r"\bell\b"):
        svag.independent_pairs(DataLoader(data, 2, shuffle=True), allow_shuffle=True)


def test_a_refinement_without_end_is_refused() -> None:
    model = network(norm=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"^ell\b.*got 1e\+308"):
        svag.SVAG(model, optimizer, ell=1e308)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^refine\b.*got 1e\+308"):
        svag.NoisyGD(model, optimizer, batch_size=2, dataset_size=4, generator=torch.Generator(), refine=1e308)  # type: ignore[arg-type]


@pytest.mark.parametrize("ell", [1, 3])
def test_an_empty_batch_is_refused(ell: int) -> None:
    setup = Setup(ell=ell)
    empty = batch(0, size=0), batch(1, size=0)
    with setup.sim, pytest.raises(ValueError, match="0 examples"):
        setup.sim.substep(setup.loss, *empty)
    setup.assert_untouched()


def test_a_batch_may_be_anything_that_the_loss_takes() -> None:
    setup = Setup(ell=1)
    with setup.sim:
        setup.sim.substep(lambda seed: setup.loss(batch(seed)), 3)


def test_the_optimizer_must_be_that_of_the_model() -> None:
    model, other = network(norm=False), network(norm=False)
    stranger = torch.optim.SGD(other.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"\boptimizer\b"):
        svag.NoisyGD(model, stranger, batch_size=2, dataset_size=6, generator=torch.Generator())
    with pytest.raises(ValueError, match=r"\boptimizer\b"):
        svag.SVAG(model, stranger, ell=2)
    gd = svag.NoisyGD(other, stranger, batch_size=2, dataset_size=6, generator=torch.Generator())
    before = deepcopy(other.state_dict())
    with pytest.raises(ValueError, match=r"\blosses\b"):
        gd.step(lambda b: (model(b[0]).squeeze(1) - b[1]).square(), [batch(0)])
    torch.testing.assert_close(other.state_dict(), before, rtol=0, atol=0)


STATES: list[tuple[object, type[Exception], str]] = [
    ({}, ValueError, r"state_dict\(\)"),
    (None, TypeError, r"state_dict\(\).*got NoneType"),
    ([1], TypeError, "got list"),
]
CLOCKS: list[dict[str, Any]] = [
    {"effective_step": -1},
    {"effective_step": "x"},
    {"substep": 2},
    {"substep": 1},
    {"begun": math.nan},
    {"begun": None},
    {"held": None},
    {"held": [{"lr": 0.1, "nonsense": 1}]},
    {"held": [1]},
]


def simulations() -> list[svag.SVAG | svag.NoisyGD]:
    model = network(norm=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    noise = torch.Generator()
    gd = svag.NoisyGD(model, optimizer, batch_size=2, dataset_size=6, generator=noise, refine=2)
    return [svag.SVAG(model, optimizer, ell=2), gd]


@pytest.mark.parametrize(("state", "kind", "sentence"), STATES)
def test_what_is_no_state_is_refused(state: Any, kind: type[Exception], sentence: str) -> None:
    for sim in simulations():
        with pytest.raises(kind, match=sentence):
            sim.load_state_dict(state)
        with pytest.raises(kind, match=sentence):
            sim.load_state_dict({**sim.state_dict(), "clock": state})


@pytest.mark.parametrize("change", CLOCKS, ids=str)
def test_a_damaged_state_changes_nothing(change: dict[str, Any]) -> None:
    for sim in simulations():
        before = sim.state_dict()
        with pytest.raises(ValueError, match="damaged") as refused:
            sim.load_state_dict({**before, "clock": {**before["clock"], **change}})
        assert "\n" not in str(refused.value)
        assert sim.state_dict()["clock"] == before["clock"]


@pytest.mark.parametrize("generator", [None, torch.zeros(3), torch.zeros(3, dtype=torch.uint8)])
def test_a_damaged_generator_changes_nothing(generator: object) -> None:
    gd = simulations()[1]
    state = gd.state_dict()
    moved = {**state["clock"], "effective_step": 5}
    with pytest.raises(ValueError, match=r"\bgenerator\b"):
        gd.load_state_dict({"clock": moved, "generator": generator})
    assert gd.effective_step == 0
