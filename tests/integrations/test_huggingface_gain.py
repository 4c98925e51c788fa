"""attach(trainer, base_batch_size=…) takes the steps of a plain loop with a GainRule, checkpoints included."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.integrations.loops import examples, gained_loop, same_weights
from tests.integrations.test_huggingface import Regression, language
from tests.integrations.texts import arguments
from torch.optim.lr_scheduler import ExponentialLR
from transformers import Trainer, TrainerCallback

from svag.integrations.huggingface import attach


class Watching(TrainerCallback):
    """Writes down gain and learning rate after every step; stops after `stop_at` of them."""

    def __init__(self, noise: Any, trainer: Trainer, stop_at: int | None = None) -> None:
        self.noise, self.trainer, self.stop_at = noise, trainer, stop_at
        self.gains: list[float] = []
        self.rates: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.gains.append(self.noise.rule.gain)
        self.rates.append(self.trainer.optimizer.param_groups[0]["lr"])
        if self.stop_at is not None and state.global_step >= self.stop_at:
            control.should_training_stop = True


def gained(folder: Path, base: int = 4, stop_at: int | None = None, **options: Any) -> tuple[Trainer, Any, Watching]:
    """A trainer whose learning rate decays at every step of the baseline."""
    model = Regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    measured = {name: options.pop(name) for name in ("every", "verbose", "population") if name in options}
    chosen = {"max_steps": 60, "max_grad_norm": 0.0} | options
    schedulers = (optimizer, ExponentialLR(optimizer, 0.98))
    trainer = Trainer(model, arguments(folder, **chosen), train_dataset=examples(), optimizers=schedulers)
    noise = attach(trainer, base_batch_size=base, **measured)
    watching = Watching(noise, trainer, stop_at)
    trainer.add_callback(watching)
    return trainer, noise, watching


def test_accumulation_takes_the_steps_of_a_plain_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer, noise, watching = gained(tmp_path, gradient_accumulation_steps=4)
    trainer.train()
    plain = gained_loop(base=4, base_steps=60, micro_batches=4, size=4)
    assert watching.gains == pytest.approx(plain.gains, rel=1e-9)
    assert watching.rates == pytest.approx(plain.rates, rel=1e-12)
    for one, other in zip(trainer.model.net.parameters(), plain.model.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-9)
    assert (noise.rule.time, noise.rule.done) == (60.0, True)
    assert 15 < trainer.state.global_step == len(plain.gains) < 60
    assert f"By the gain rule {len(plain.gains)} steps did the work of 60 steps" in capsys.readouterr().out


@pytest.mark.parametrize("every", [1, 3])
def test_a_batch_that_is_cut_takes_the_steps_of_a_plain_loop(tmp_path: Path, every: int) -> None:
    trainer, noise, watching = gained(tmp_path, per_device_train_batch_size=16, every=every)
    trainer.train()
    plain = gained_loop(base=4, base_steps=60, every=every, accumulated=False)
    assert watching.gains == pytest.approx(plain.gains, rel=1e-9)
    assert watching.rates == pytest.approx(plain.rates, rel=1e-12)
    assert len(noise.readings) == -(-len(plain.gains) // every)


def test_at_the_batch_of_the_baseline_it_is_the_ordinary_run(tmp_path: Path) -> None:
    trainer, noise, _ = gained(tmp_path, base=16, gradient_accumulation_steps=4, max_steps=12)
    trainer.train()
    other, measured, _ = gained(tmp_path, base=16, gradient_accumulation_steps=4, max_steps=12)
    measured.remove()
    other.remove_callback(Watching)
    other.train()
    assert noise.rule.time == trainer.state.global_step == 12
    assert same_weights(trainer.model, other.model)


def test_a_skipped_step_takes_no_time_and_steps_no_scheduler(tmp_path: Path) -> None:
    trainer, noise, watching = gained(tmp_path, gradient_accumulation_steps=4)
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    forward, seen = trainer.model.forward, []

    def overflows(x: Any, labels: Any) -> Any:
        seen.append(1)
        found = forward(x, labels)
        return {"loss": found["loss"] * torch.inf} if len(seen) == 15 else found

    trainer.model.forward = overflows
    trainer.train()
    assert watching.rates[3] == watching.rates[2]
    assert watching.rates[4] < watching.rates[3]
    assert trainer.lr_scheduler.last_epoch == noise.rule.time == 60


@pytest.mark.parametrize("strategy", ["steps", "epoch"])
def test_a_run_goes_on_from_a_checkpoint_bit_for_bit(tmp_path: Path, strategy: str) -> None:
    options: dict[str, Any] = {"gradient_accumulation_steps": 4, "save_strategy": strategy, "save_steps": 6}
    whole, all_of_it, watching = gained(tmp_path / "whole", gradient_accumulation_steps=4)
    whole.train()
    begun, _, _ = gained(tmp_path / "half", stop_at=8, **options)
    begun.train()
    again, noise, later = gained(tmp_path / "half", **options)
    again.train(resume_from_checkpoint=str(tmp_path / "half" / "checkpoint-6"))
    assert later.gains == watching.gains[6:]
    assert later.rates == watching.rates[6:]
    assert same_weights(again.model, whole.model)
    assert noise.readings == all_of_it.readings
    begun.train(resume_from_checkpoint=str(tmp_path / "half" / "checkpoint-6"))
    assert begun.state.global_step == 8, "the same object goes on from the checkpoint, not from where it was"
    assert begun.optimizer.param_groups[0]["lr"] == watching.rates[7]


def test_the_end_of_the_baseline_is_saved_as_max_steps_would_be(tmp_path: Path) -> None:
    options: dict[str, Any] = {"gradient_accumulation_steps": 4, "save_strategy": "steps", "save_steps": 500}
    trainer, _, _ = gained(tmp_path, **options)
    trainer.train()
    last = tmp_path / f"checkpoint-{trainer.state.global_step}"
    assert last.is_dir()
    again, _, _ = gained(tmp_path, **options)
    with pytest.raises(ValueError, match="has ended, at baseline step 60"):
        again.train(resume_from_checkpoint=str(last))


def test_a_language_model_by_the_defaults_of_the_trainer(tmp_path: Path) -> None:
    """AdamW, linear decay, clipped gradients, a loss averaged over the tokens of a step."""
    trainer = language(tmp_path, kind=Trainer, gradient_accumulation_steps=4, max_steps=60, logging_steps=5)
    noise = attach(trainer, base_batch_size=4)
    trainer.train()
    assert noise.rule is not None
    assert noise.rule.done
    assert trainer.lr_scheduler.last_epoch == 60
    assert trainer.optimizer.param_groups[0]["lr"] == 0
    logged = [row for row in trainer.state.log_history if "svag/gain" in row]
    assert logged
    assert {"svag/price", "svag/baseline_step"} <= logged[-1].keys()
    assert logged[-1]["svag/price"] >= 1


def test_what_it_cannot_step_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give TrainingArguments max_steps=, the number of steps of the baseline"):
        gained(tmp_path, max_steps=-1)[0].train()
    with pytest.raises(ValueError, match="averages 16 examples, fewer than base_batch_size=32"):
        gained(tmp_path, base=32, gradient_accumulation_steps=4)[0].train()
    options = {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps"}
    chosen = arguments(tmp_path, max_steps=20, gradient_accumulation_steps=4, **options)
    plateau = Trainer(Regression(), chosen, train_dataset=examples(), eval_dataset=examples())
    attach(plateau, base_batch_size=4)
    with pytest.raises(ValueError, match="ReduceLROnPlateau follows evaluations"):
        plateau.train()
    bare, noise, _ = gained(tmp_path, gradient_accumulation_steps=4, save_strategy="steps", save_steps=3, max_steps=3)
    noise.remove()
    bare.remove_callback(Watching)
    bare.train()
    again, _, _ = gained(tmp_path, gradient_accumulation_steps=4)
    with pytest.raises(ValueError, match="has no gain rule"):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    with pytest.raises(TypeError, match="every"):
        gained(tmp_path, every="often")
