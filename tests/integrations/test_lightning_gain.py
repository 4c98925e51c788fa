"""GainCallback takes the steps of a plain loop with a GainRule, schedulers and checkpoints included."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from tests.integrations.loops import Decaying, Module, gained_loop, loader, same_weights, trainer
from tests.integrations.test_lightning import ScaledDouble
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau

from svag.integrations.lightning import GainCallback, NoiseCallback


class Watching(lightning.Callback):
    """Writes down gain and learning rate after every step; raises after `stop_at` steps."""

    def __init__(self, gain: GainCallback, stop_at: int | None = None) -> None:
        self.gain, self.stop_at = gain, stop_at
        self.gains: list[float] = []
        self.rates: list[float] = []

    def on_train_batch_end(self, trainer: Any, *others: Any) -> None:
        if trainer.global_step > len(self.gains):
            rule = self.gain.rule
            assert rule is not None
            assert rule.gain is not None
            self.gains.append(rule.gain)
            self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        if self.stop_at is not None and trainer.global_step >= self.stop_at:
            trainer.save_checkpoint(Path(trainer.default_root_dir, "half.ckpt"))
            trainer.should_stop = True


def fit(gain: GainCallback, module: Any = None, batches: Any = None, **options: Any) -> tuple[Any, Watching]:
    module, watching = Decaying() if module is None else module, Watching(gain, options.pop("stop_at", None))
    again = options.pop("ckpt_path", None)
    run = trainer(gain, watching, epochs=None, **{"max_steps": 60} | options)
    run.fit(module, batches or loader(batch_size=4), ckpt_path=again)
    return module, watching


def test_accumulation_takes_the_steps_of_a_plain_loop(capsys: pytest.CaptureFixture[str]) -> None:
    gain = GainCallback(base_batch_size=4)
    module, watching = fit(gain, accumulate_grad_batches=4)
    plain = gained_loop(base=4, base_steps=60, micro_batches=4, size=4)
    assert watching.gains == plain.gains
    assert watching.rates == pytest.approx(plain.rates, rel=1e-12)
    assert same_weights(module.net, plain.model)
    assert gain.rule is not None
    assert (gain.rule.time, gain.rule.done) == (60.0, True)
    assert 15 < len(plain.gains) < 60
    assert max(plain.gains) > 1
    assert plain.rates[-1] == pytest.approx(0.1 * 0.98**60)
    assert f"By the gain rule {len(plain.gains)} steps did the work of 60 steps" in capsys.readouterr().out


def test_prices_from_a_run_by_the_rule_do_not_take_the_rate_of_the_baseline_for_its_own() -> None:
    gain, noise = GainCallback(4), NoiseCallback(every=1)
    fit(gain, Module(), accumulate_grad_batches=4)
    trainer(noise, accumulate_grad_batches=4, epochs=9).fit(Module(), loader())
    assert {reading.lr for reading in gain.readings} == {0.1}
    assert gain.found.setting.lr is None
    assert noise.found.setting.lr == 0.1


@pytest.mark.parametrize("every", [1, 3])
def test_parts_beside_the_step_give_the_gains_of_parts_in_it(every: int) -> None:
    gain = GainCallback(4, every=every)
    module, watching = fit(gain, batches=loader(batch_size=16))
    plain = gained_loop(base=4, base_steps=60, every=every, accumulated=False)
    assert watching.gains == pytest.approx(plain.gains, rel=1e-9)
    assert len(gain.readings) == -(-len(plain.gains) // every)
    for one, other in zip(module.net.parameters(), plain.model.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize(("frequency", "length"), [(1, 12), (2, 24)])
def test_a_scheduler_of_epochs_counts_those_of_the_baseline(frequency: int, length: int) -> None:
    """48 examples at batch size 4."""
    gain = GainCallback(4)
    module = Decaying(interval="epoch", frequency=frequency)
    _, watching = fit(gain, module, accumulate_grad_batches=4)
    plain = gained_loop(base=4, base_steps=60, micro_batches=4, size=4, epoch=length)
    assert watching.rates == pytest.approx(plain.rates, rel=1e-12)
    assert plain.rates[-1] == pytest.approx(0.1 * 0.98 ** (60 // length))


class Plateau(Module):
    """The rate falls tenfold when a metric that never improves has not improved in 2 epochs."""

    def __init__(self, monitor: str = "flat") -> None:
        super().__init__()
        self.monitor = monitor

    def on_train_epoch_start(self) -> None:
        self.log("flat", 1.0)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = ReduceLROnPlateau(optimizer, patience=1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": self.monitor}}


def test_a_plateau_is_as_long_as_that_of_the_baseline() -> None:
    gain = GainCallback(4)
    module = Plateau()
    _, watching = fit(gain, module, accumulate_grad_batches=4)
    # 5 epochs of the baseline: the first sets the best, 2 more without improvement lower the rate, and so do the next 2
    assert watching.rates[-1] == pytest.approx(0.01)
    assert module.lr_schedulers().optimizer.param_groups[0]["lr"] == pytest.approx(0.001)
    with pytest.raises(ValueError, match="follows 'other', which was not logged"):
        fit(GainCallback(4), Plateau("other"), accumulate_grad_batches=4)


def test_one_cycle_ends_where_it_was_made_to_end() -> None:
    class Cycle(Module):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
            total = self.trainer.estimated_stepping_batches
            scheduler = OneCycleLR(optimizer, 0.1, total_steps=total)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    module, _ = fit(GainCallback(4), Cycle(), accumulate_grad_batches=4)
    assert module.lr_schedulers().last_epoch == 60


def test_a_skipped_step_takes_no_time_and_steps_no_scheduler() -> None:
    class Overflows(Decaying):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            return loss * torch.inf if len(self.losses) == 15 else loss

    gain = GainCallback(4)
    module, watching = fit(gain, Overflows(), accumulate_grad_batches=4, plugins=ScaledDouble())
    assert gain.rule is not None
    assert gain.rule.time == 60
    assert module.lr_schedulers().last_epoch == 60
    assert watching.rates[3] == watching.rates[2]
    assert watching.rates[4] < watching.rates[3]


def test_a_short_step_has_the_gain_of_its_size_and_at_least_one() -> None:
    """Batches of 16, 16 and 14, or 1: 46 or 33 examples, base 4."""
    for count, low, high in ((46, 1.0, 3.5), (33, 1.0, 1.0)):
        gain = GainCallback(4)
        _, watching = fit(gain, batches=loader(count, 16))
        shorts = watching.gains[2::3][:-1]
        assert all(low <= found <= high for found in shorts)
        assert gain.rule is not None
        assert gain.rule.time == 60
        assert gain.rule.price == pytest.approx(
            sum(4.0 if n % 3 != 2 else max(count - 32, 4) / 4 for n in range(len(watching.gains))) / 60
        )


def test_at_the_batch_of_the_baseline_it_is_the_ordinary_fit() -> None:
    gained, _ = fit(GainCallback(16), accumulate_grad_batches=4, max_steps=20)
    plain = Decaying()
    trainer(epochs=None, max_steps=20, accumulate_grad_batches=4).fit(plain, loader())
    assert same_weights(gained.net, plain.net)


def test_a_run_goes_on_from_a_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    options = {"accumulate_grad_batches": 4, "default_root_dir": tmp_path}
    whole, watching = fit(GainCallback(4), **options)
    fit(GainCallback(4), stop_at=6, **options)
    gain = GainCallback(4)
    rest, later = fit(gain, ckpt_path=tmp_path / "half.ckpt", **options)
    assert same_weights(rest.net, whole.net)
    assert later.gains[-1] == watching.gains[-1]
    assert later.rates[-1] == watching.rates[-1]
    assert len(gain.readings) == len(watching.gains)
    bare = trainer(epochs=1, accumulate_grad_batches=4)
    bare.fit(Decaying(), loader())
    bare.save_checkpoint(tmp_path / "bare.ckpt")
    with pytest.raises(ValueError, match="has no gain rule"):
        fit(GainCallback(4), ckpt_path=tmp_path / "bare.ckpt", **options)


def test_an_interrupted_fit_leaves_the_optimizer_as_it_was() -> None:
    class Fails(Decaying):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.trainer.global_step == 3:
                raise RuntimeError("out of memory")
            return super().training_step(batch, batch_idx)

    gain, module = GainCallback(4), Fails()
    with pytest.raises(RuntimeError, match="out of memory"):
        fit(gain, module, accumulate_grad_batches=4)
    fitted, watching = fit(gain, accumulate_grad_batches=4)
    assert watching.gains == gained_loop(base=4, base_steps=60, micro_batches=4, size=4).gains
    assert same_weights(fitted.net, gained_loop(base=4, base_steps=60, micro_batches=4, size=4).model)


def test_it_says_nothing_if_it_should_not(capsys: pytest.CaptureFixture[str]) -> None:
    fit(GainCallback(4, verbose=False), accumulate_grad_batches=4)
    trainer(NoiseCallback(every=1, verbose=False), accumulate_grad_batches=4).fit(Module(), loader())
    assert capsys.readouterr().out == ""


def test_what_it_cannot_step_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"give it max_steps=, the number of steps of the baseline"):
        trainer(GainCallback(4)).fit(Module(), loader())
    with pytest.raises(ValueError, match="leave out min_steps and min_epochs"):
        fit(GainCallback(4), min_steps=3)
    with pytest.raises(ValueError, match=r"use svag.GainRule with a svag.NoiseProbe in its training_step"):
        fit(GainCallback(4), Module(micro_batches=2))
    with pytest.raises(ValueError, match=r"averages 16 examples, fewer than base_batch_size=32.*svag.GainRule in a"):
        fit(GainCallback(32), accumulate_grad_batches=4)
    with pytest.raises(ValueError, match="attached twice"):
        trainer(GainCallback(4), NoiseCallback(every=1), epochs=None, max_steps=6).fit(Module(), loader())
    with pytest.raises(TypeError, match="every"):
        GainCallback(4, every="often")  # type: ignore[arg-type]
