"""NoiseCallback reads what a plain loop with a NoiseProbe reads, and Lightning trains what it trains without it."""

import csv
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DeepSpeedStrategy, SingleDeviceStrategy
from tests.integrations.loops import Module, loader, mse, net, plain_loop, same_weights, trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric

from svag.integrations.lightning import GainCallback, NoiseCallback


def fit(noise: NoiseCallback, module: Any = None, batches: Any = None, **options: Any) -> Any:
    module = Module() if module is None else module
    trainer(noise, **options).fit(module, batches or loader())
    return module


@pytest.mark.parametrize("clip", [None, 0.1])
def test_accumulated_micro_batches_are_the_parts(clip: float | None, capsys: pytest.CaptureFixture[str]) -> None:
    noise = NoiseCallback(every=1)
    module = fit(noise, accumulate_grad_batches=3, gradient_clip_val=clip)
    model, readings = plain_loop(3, clip=clip)
    assert noise.readings == readings
    assert len(readings) == 8
    assert same_weights(module.net, model)
    assert str(noise.found).split("\n")[0][:40] in " ".join(capsys.readouterr().out.split())
    if clip is not None:
        assert plain_loop(3, clip=clip, clip_first=True)[1] != readings, "reading after clipping gives other numbers"


@pytest.mark.parametrize(("epochs", "every", "needed"), [(2, 1, 200), (2, 10, 2000), (20, 1, None)])
def test_a_fit_that_is_too_short_says_so_at_its_start(
    epochs: int, every: int, needed: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """12 batches an epoch, each of them a step."""
    noise = NoiseCallback(every=every)
    fit(noise, epochs=epochs)
    first = capsys.readouterr().out.split("\n")[0]
    assert first.startswith("This run has") is (needed is not None)
    if needed is not None:
        assert f"has {12 * epochs} steps, and a price list needs about {needed}:" in first


def test_a_step_that_the_epoch_cuts_short_is_left_out() -> None:
    noise = NoiseCallback(every=1)
    module = fit(noise, accumulate_grad_batches=5)  # 12 batches an epoch
    model, readings = plain_loop(5)
    assert noise.readings == readings
    assert [reading.step for reading in readings] == [0, 1, 3, 4]
    assert same_weights(module.net, model)


def test_a_short_last_batch_leaves_its_step_out_and_any_other_change_is_refused() -> None:
    noise = NoiseCallback(every=1)
    fit(noise, batches=loader(46), accumulate_grad_batches=2)
    assert [reading.step for reading in noise.readings] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    sizes = [list(range(at, at + size)) for at, size in ((0, 4), (4, 4), (8, 6), (14, 4))]
    changing = DataLoader(loader().dataset, batch_sampler=sizes)
    with pytest.raises(ValueError, match="a batch of 6 examples came after batches of 4: use batches of one size"):
        fit(NoiseCallback(every=1), batches=changing, accumulate_grad_batches=2)


def test_manual_optimization() -> None:
    noise = NoiseCallback(every=1)
    module = fit(noise, Module(micro_batches=3))
    model, readings = plain_loop(3)
    assert noise.readings == readings[1:], "the first step tells how many micro-batches there are"
    assert same_weights(module.net, model)


def test_a_step_of_one_backward_pass_needs_a_loss_when_it_is_taken_by_hand() -> None:
    with pytest.raises(ValueError, match=r"one backward pass on one device cannot be measured: .* give loss_fn="):
        fit(NoiseCallback(every=1), Module(micro_batches=1))
    module, noise = Module(micro_batches=1), NoiseCallback(every=2)
    noise._loop.loss_fn = lambda batch: mse(module.net, batch)
    fit(noise, module)
    assert [reading.step for reading in noise.readings] == list(range(0, 24, 2))
    assert same_weights(module.net, fit_alone(Module(micro_batches=1)).net)


def fit_alone(module: Any, batches: Any = None) -> Any:
    trainer().fit(module, batches or loader())
    return module


class Collecting(Module):
    """Logs, collects and counts in its training_step, and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = MeanMetric()
        self.norm = nn.BatchNorm1d(1, dtype=torch.float64)
        self.steps = 0

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx) + (self.norm(torch.rand_like(batch[1])) * batch[1]).mean()
        self.mean(loss.detach())
        self.steps += 1
        return {"loss": loss}


@pytest.mark.filterwarnings("ignore:whether loss_fn is a mean")
def test_without_accumulation_parts_of_the_batch_are_read_without_a_trace() -> None:
    noise = NoiseCallback(every=5)
    torch.manual_seed(3)
    module = fit(noise, Collecting(), loader(96, 8))
    torch.manual_seed(3)
    alone = fit_alone(Collecting(), loader(96, 8))
    assert [reading.step for reading in noise.readings] == [0, 5, 10, 15, 20]
    assert [reading.n for reading in noise.readings] == [4] * 5
    assert noise.readings[0].approximate, "BatchNorm sees the parts"
    assert same_weights(module, alone)
    assert module.losses == alone.losses
    assert module.steps == alone.steps == 24
    assert module.mean.compute() == alone.mean.compute()
    assert all(torch.equal(a, b) for a, b in zip(module.buffers(), alone.buffers(), strict=True))
    assert "log" not in vars(module)


def test_parts_of_the_batch_give_the_readings_of_the_micro_batched_step() -> None:
    noise = NoiseCallback(every=1)
    fit(noise, batches=loader(batch_size=16))
    readings = plain_loop(4)[1]
    for found, expected in zip(noise.readings, readings, strict=True):
        assert found.grad_sq == pytest.approx(expected.grad_sq, rel=1e-9)
        assert found.noise_trace == pytest.approx(expected.noise_trace, rel=1e-9)
        assert (found.batch_size, found.step, found.lr) == (16, expected.step, 0.1)


def test_a_training_step_that_cannot_be_used_asks_for_a_loss() -> None:
    class Skips(Module):
        def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
            return 1.0

    with pytest.raises(TypeError, match=r"training_step gave float instead of a loss .* give NoiseCallback a loss_fn"):
        fit(NoiseCallback(every=1), Skips())


class ScaledDouble(MixedPrecision):
    """The GradScaler of 16-mixed, without the half precision that a CPU does not have."""

    def __init__(self) -> None:
        super().__init__("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=5))

    def autocast_context_manager(self) -> Any:
        return nullcontext()


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_the_factor_of_a_scaler_is_taken_out(micro_batches: int) -> None:
    scaled, bare = NoiseCallback(every=1), NoiseCallback(every=1)
    fit(scaled, accumulate_grad_batches=micro_batches, plugins=ScaledDouble(), gradient_clip_val=0.1)
    fit(bare, accumulate_grad_batches=micro_batches, gradient_clip_val=0.1)
    assert len(scaled.readings) == len(bare.readings) > 0
    for one, other in zip(scaled.readings, bare.readings, strict=True):
        assert one.grad_sq == pytest.approx(other.grad_sq, rel=1e-9)  # a power of two, up to torch's rounding of sums
        assert one.noise_trace == pytest.approx(other.noise_trace, rel=1e-9)


def test_a_run_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    whole, first, second = NoiseCallback(every=1), NoiseCallback(every=1), NoiseCallback(every=1)
    fit(whole, accumulate_grad_batches=3, epochs=4)
    begun = trainer(first, accumulate_grad_batches=3, epochs=2)
    begun.fit(Module(), loader())
    begun.save_checkpoint(tmp_path / "half.ckpt")
    again = trainer(second, accumulate_grad_batches=3, epochs=4)
    again.fit(Module(), loader(), ckpt_path=tmp_path / "half.ckpt")
    assert second.readings == whole.readings
    assert first.readings == whole.readings[:8]


def test_a_second_fit_begins_anew_unless_it_goes_on() -> None:
    noise = NoiseCallback(every=1)
    same = trainer(noise, accumulate_grad_batches=3)
    module = Module()
    same.fit(module, loader())
    same.fit_loop.max_epochs = 4
    same.fit(module, loader())
    assert [reading.step for reading in noise.readings] == list(range(16))
    fit(noise, accumulate_grad_batches=3)
    assert noise.readings == plain_loop(3)[1]


def test_scalars_go_to_the_logger(tmp_path: Path) -> None:
    class Slow(Module):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-4)  # so that G stays large, and is resolved

    logger = CSVLogger(tmp_path)
    run = trainer(NoiseCallback(every=1), accumulate_grad_batches=2, epochs=40, logger=logger, log_every_n_steps=5)
    run.fit(Slow(), loader())
    assert {"svag/noise_to_signal", "svag/critical_batch", "svag/distortion_2x"} <= set(run.callback_metrics)
    header, *rows = Path(logger.log_dir, "metrics.csv").read_text().splitlines()
    column = header.split(",").index("svag/noise_to_signal")
    steps = [int(row.split(",")[header.split(",").index("step")]) for row in rows if row.split(",")[column]]
    assert steps
    assert all((step + 1) % 5 == 0 for step in steps)


def test_only_each_so_many_steps_are_measured() -> None:
    noise = NoiseCallback(every=3)
    fit(noise, accumulate_grad_batches=3)
    assert noise.readings == plain_loop(3)[1][::3]


def test_only_the_given_parameters_are_measured() -> None:
    module = Module()
    noise = NoiseCallback(every=1, parameters=[next(module.parameters())])
    fit(noise, module, accumulate_grad_batches=3)
    assert noise.readings[0].param_sq == pytest.approx(
        float(next(net().parameters()).detach().square().sum()), rel=1e-9
    )


def test_removed_it_is_gone_and_the_readings_stay() -> None:
    class RemovesAtFour(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, *others: Any) -> None:
            if trainer.global_step == 4 and noise in trainer.callbacks:
                noise.remove()

    noise = NoiseCallback(every=1)
    run = trainer(RemovesAtFour(), noise, accumulate_grad_batches=3)
    run.fit(Module(), loader())
    assert len(noise.readings) == 4
    assert noise not in run.callbacks


@pytest.mark.parametrize("accumulated", [1, 3])
def test_a_compiled_network_gives_the_same_readings(accumulated: int) -> None:
    found = []
    for compiled in (True, False):
        module = Module()
        if compiled:
            module.net.compile(backend="eager")
        noise = NoiseCallback(every=4)
        fit(noise, module, accumulate_grad_batches=accumulated)
        found.append([(reading.grad_sq, reading.noise_trace) for reading in noise.readings])
    assert len(found[0]) == 24 // accumulated // 4
    assert found[0] == [pytest.approx(pair, rel=1e-9) for pair in found[1]]


class TwoOptimizers(Module):
    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(self.net[0].parameters(), lr=0.1), torch.optim.SGD(self.net[2].parameters(), lr=0.1)]


class NoOptimizer(Module):
    def configure_optimizers(self) -> Any:
        return None


def test_what_cannot_be_measured_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="measures the steps of one optimizer, and configure_optimizers gave 2"):
        fit(NoiseCallback(every=1), TwoOptimizers(micro_batches=2))
    with pytest.raises(ValueError, match="no optimizer: configure_optimizers"):
        fit(NoiseCallback(every=1), NoOptimizer())
    with pytest.raises(ValueError, match="accumulate_grad_batches went from 2 to 4, and the batch size with it"):
        trainer(NoiseCallback(every=1), GradientAccumulationScheduler({0: 2, 1: 4})).fit(Module(), loader())
    with pytest.raises(ValueError, match="a batch of 1 example cannot be cut into parts"):
        fit(NoiseCallback(every=1), batches=loader(batch_size=1))
    twice = trainer(NoiseCallback(every=1))
    twice.callbacks.append(NoiseCallback(every=1))
    with pytest.raises(ValueError, match="attached twice"):
        twice.fit(Module(), loader())
    with pytest.raises(ValueError, match="every"):
        NoiseCallback(every=0)
    with pytest.raises(TypeError, match=r"a batch must hold a tensor of examples, .* give batch_size="):
        fit(NoiseCallback(every=1), batches=[["a"], ["b"]])


def test_deepspeed_is_refused_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    run = trainer()
    for strategy, refused in ((DeepSpeedStrategy, True), (SingleDeviceStrategy, False)):
        monkeypatch.setattr(type(run), "strategy", strategy.__new__(strategy))
        with pytest.raises(TypeError, match="DeepSpeed") if refused else nullcontext():
            NoiseCallback(every=1).setup(run, Module(), "fit")


class Spoilt(Module):
    """One loss is NaN, and the gradients of that step are left out."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        return loss * torch.nan if (self.current_epoch, batch_idx) == (0, 7) else loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if any(p.grad is not None and not p.grad.isfinite().all() for p in self.parameters()):
            optimizer.zero_grad()


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_a_fit_survives_a_step_that_is_not_finite(micro_batches: int, tmp_path: Path) -> None:
    noise, logger = NoiseCallback(every=1), CSVLogger(tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(noise, Spoilt(), accumulate_grad_batches=micro_batches, logger=logger, log_every_n_steps=1, epochs=4)
    assert sum("are not finite" in str(one.message) for one in caught) == 1
    steps = 48 // micro_batches
    assert len(noise.readings) == steps - 1
    assert {reading.step for reading in noise.readings} == {*range(steps)} - {7 // micro_batches}
    *_, last = csv.DictReader(Path(logger.log_dir, "metrics.csv").read_text().splitlines())
    assert float(last["svag/skipped"]) == 1


class Diverged(Spoilt):
    """Every loss from the second epoch on is NaN."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = Module.training_step(self, batch, batch_idx)
        return loss * torch.nan if self.current_epoch else loss


def test_steps_that_are_not_finite_are_counted_when_no_reading_follows(tmp_path: Path) -> None:
    noise, logger = NoiseCallback(every=1), CSVLogger(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(noise, Diverged(), logger=logger, log_every_n_steps=1, epochs=3)
    *_, last = csv.DictReader(Path(logger.log_dir, "metrics.csv").read_text().splitlines())
    assert len(noise.readings) == 12
    assert float(last["svag/skipped"]) >= 23  # of 24: the last one may not be fetched yet


@pytest.mark.parametrize("accumulated", [1, 2])
def test_how_often_it_measures_is_chosen_said_and_kept(
    accumulated: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock by which a measured step takes 1.4 times as long: every 15th, after 150 that pay for the timed ones."""
    now, steps = [0.0], [*range(0, 50, 5), *range(150, 260, 15)]
    monkeypatch.setattr("svag.noise.cadence.perf_counter", lambda: now[0])

    class Timed(Module):
        def on_before_zero_grad(self, optimizer: Any) -> None:  # once a step, before its backward pass
            now[0] += 1.4 if self.global_step in steps else 1.0

    found = []
    for until, resume in ((230, False), (260, True)):
        noise = NoiseCallback()
        run = trainer(noise, epochs=None, max_steps=until, accumulate_grad_batches=accumulated)
        run.fit(Timed(), loader(), ckpt_path=tmp_path / "last.ckpt" if resume else None)
        run.save_checkpoint(tmp_path / "last.ckpt")
        found.append([reading.step for reading in noise.readings])
        assert ("16 readings" in capsys.readouterr().out) is not resume
    assert found == [steps[:-2], steps]


def test_a_quiet_callback_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    fit(NoiseCallback(verbose=False), epochs=20)
    assert capsys.readouterr().out == ""


class Skipping(Module):
    """Lightning takes None as: leave out this batch."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        return None if (self.current_epoch, batch_idx) in [(0, 0), (0, 7)] else loss


@pytest.mark.filterwarnings("ignore")  # Lightning warns of None, and the probe of a step without a reading
@pytest.mark.parametrize("rule", [False, True])
def test_a_batch_that_the_module_leaves_out_counts_as_skipped(rule: bool) -> None:
    noise = GainCallback(base_batch_size=4) if rule else NoiseCallback(every=1)
    module = fit(noise, Skipping(), **({"epochs": None, "max_steps": 24} if rule else {"epochs": 2}))
    assert [reading.step for reading in noise.readings] == [step for step in range(24) if step not in (0, 7)]
    assert noise._loop.probe is not None
    assert noise._loop.probe.skipped == 2
    alone = Skipping()
    trainer(epochs=2).fit(alone, loader())
    assert same_weights(module.net, alone.net)
