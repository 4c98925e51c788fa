"""attach() reads what the formulas say of the Trainer's own micro-batches, and the Trainer trains what it trained."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.integrations.loops import examples, mse, net, plain_loop, same_weights
from tests.integrations.texts import Recording, arguments, texts, tiny_gpt2
from torch import Tensor, nn
from transformers import Trainer

from svag.integrations import huggingface
from svag.integrations.huggingface import attach
from svag.noise.loss_check import LossFound, LossKind, NotAMean, check_loss


class Regression(nn.Module):
    """An ordinary model: the mean loss of its batch, however many there are in a step."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": mse(self.net, [x, labels])}


def regression(folder: Path, count: int = 48, **options: Any) -> Trainer:
    data = examples(count)
    model = Regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    chosen = {"lr_scheduler_type": "constant"} | options
    return Trainer(model, arguments(folder, **chosen), train_dataset=data, optimizers=(optimizer, None))


def language(
    folder: Path, data: Any = None, kind: type[Trainer] = Recording, dropout: float = 0.0, **options: Any
) -> Any:
    chosen = {"learning_rate": 1e-2} | options
    return kind(tiny_gpt2(dropout), arguments(folder, **chosen), train_dataset=data or texts())


@pytest.mark.parametrize(("clip", "short"), [(0.0, False), (0.1, False), (0.1, True)])
def test_accumulated_micro_batches_are_the_parts(
    tmp_path: Path, clip: float, short: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    count = 5 if short else 3
    trainer = regression(tmp_path, gradient_accumulation_steps=count, max_grad_norm=clip)
    noise = attach(trainer, every=1)
    trainer.train()
    model, readings = plain_loop(count, clip=clip or None)
    assert len(readings) == (4 if short else 8)
    for found, expected in zip(noise.readings, readings, strict=True):
        # where the last step is short, the Trainer divides by its own number, and the paths part
        if not short or found.step in (0, 1):
            assert found.grad_sq == pytest.approx(expected.grad_sq, rel=1e-9)
            assert found.noise_trace == pytest.approx(expected.noise_trace, rel=1e-9)
        assert (found.batch_size, found.step, found.population) == (4 * count, expected.step, 48)
        assert (found.optimizer, found.lr, found.weight_decay) == ("SGD", 0.1, 0.01)
    assert short or all(
        torch.allclose(a, b, rtol=1e-9) for a, b in zip(trainer.model.parameters(), model.parameters(), strict=True)
    )
    assert "Too few readings" in capsys.readouterr().out


def weighted_estimate(steps: list[Any], population: int, batch_size: int, equal: bool = False) -> tuple[float, float]:
    """G and N from the micro-batches of one step, by hand: gradients of token losses over the tokens of the step."""
    targets_of, squares, total = [], [], torch.zeros(())
    for _, weights, inputs, items in steps:
        model = tiny_gpt2()
        model.load_state_dict(weights)
        logits, targets = model(inputs["input_ids"]).logits[:, :-1], inputs["labels"][:, 1:]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
        gradients = torch.autograd.grad(loss / items, list(model.parameters()))
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        targets_of.append(1 if equal else int((targets != -100).sum()))
        squares.append(float(flat.square().sum()))
        total = total + flat
    whole = float(total.square().sum())
    signal = (whole - sum(squares)) / (1 - sum((count / sum(targets_of)) ** 2 for count in targets_of))
    noise, taken = whole - signal, batch_size / population
    return signal + taken * noise, (1 - taken) * noise


@pytest.mark.parametrize("accumulated", [1, 3])
def test_token_weighted_losses_count_by_their_tokens(tmp_path: Path, accumulated: int) -> None:
    trainer = language(tmp_path, gradient_accumulation_steps=accumulated)
    noise = attach(trainer, every=1)
    trainer.train()
    assert len(noise.readings) == 24 // accumulated
    for reading in noise.readings:
        steps = [one for one in trainer.seen if one[0] == reading.step]
        assert len(steps) == reading.n == (4 if accumulated == 1 else 3)
        expected = weighted_estimate(steps, 48, 4 * accumulated)
        assert (reading.grad_sq, reading.noise_trace) == pytest.approx(expected, rel=1e-6)
        assert weighted_estimate(steps, 48, 4 * accumulated, equal=True) != pytest.approx(expected, rel=1e-4)


def test_a_batch_that_is_cut_trains_as_the_whole_one(tmp_path: Path) -> None:
    for data in (texts(), None):
        runs = []
        for measured in (True, False):
            trainer = language(tmp_path, data) if data else regression(tmp_path)
            if measured:
                noise = attach(trainer, every=2)
            losses = trainer.train().training_loss
            runs.append((trainer.model, losses))
        (cut, cut_loss), (whole, whole_loss) = runs
        assert [reading.step for reading in noise.readings] == list(range(0, 24, 2))
        assert cut_loss == pytest.approx(whole_loss, rel=1e-6)
        for one, other in zip(cut.parameters(), whole.parameters(), strict=True):
            assert torch.allclose(one, other, rtol=1e-6, atol=1e-7)


def a_sum(errors: Tensor, x: Tensor) -> Tensor:
    return errors.sum()


def unequal_weights(errors: Tensor, x: Tensor) -> Tensor:
    counts = (x[:, :1] > 0).double()
    return (errors.reshape(len(x), -1) * (counts + 0.1)).sum() / (counts + 0.1).sum()


def across_examples(errors: Tensor, x: Tensor) -> Tensor:
    return errors.mean() + errors.std()


class NotTheMean(Regression):
    """Its loss is not the mean over its examples."""

    def __init__(self, reduce: Any) -> None:
        super().__init__()
        self.reduce = reduce

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": self.reduce((self.net(x) - labels.reshape(len(x), -1)).square(), x)}


@pytest.mark.parametrize(
    ("reduce", "kind"),
    [
        (a_sum, LossKind.SUM),
        (unequal_weights, LossKind.UNEQUAL_WEIGHTS),
        (across_examples, LossKind.ACROSS_EXAMPLES),
    ],
)
def test_a_loss_that_is_not_a_mean_is_refused_before_the_first_step(
    tmp_path: Path, reduce: Any, kind: LossKind
) -> None:
    def trainer(**options: Any) -> Trainer:
        torch.manual_seed(0)
        chosen = arguments(tmp_path, per_device_train_batch_size=8, learning_rate=1e-3, **options)
        return Trainer(NotTheMean(reduce), chosen, train_dataset=examples(48))

    measured = trainer()
    noise = attach(measured, every=1)
    with pytest.raises(NotAMean, match="check_loss=False") as refused:
        measured.train()
    assert refused.value.found.kind == kind
    assert refused.value.found.difference > 0.01
    assert not noise.readings
    assert same_weights(measured.model, trainer().model)
    assert all(parameter.grad is None for parameter in measured.model.parameters())
    trusted = trainer()
    noise = attach(trusted, every=1, check_loss=False)
    trusted.train()
    assert len(noise.readings) == 12
    accumulated = trainer(gradient_accumulation_steps=2)  # nothing is cut
    noise = attach(accumulated, every=1)
    accumulated.train()
    assert len(noise.readings) == 6


def test_checking_the_loss_leaves_no_trace_and_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[LossFound] = []
    ends, compare = [], check_loss

    def noted(*arguments: Any, **more: Any) -> LossFound:
        calls.append(compare(*arguments, **more))
        return calls[-1]

    monkeypatch.setattr(huggingface, "compare_loss", noted)
    for check in (True, False):
        trainer = language(tmp_path, kind=Trainer, dropout=0.2)
        attach(trainer, every=1, check_loss=check)
        torch.manual_seed(1)
        trainer.train()
        ends.append(trainer.model)
    assert [found.kind for found in calls] == [LossKind.MEAN]
    assert same_weights(*ends)


@pytest.mark.parametrize("wrong", [1, None, "yes"])
def test_a_check_that_is_no_bool_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ValueError, match="check_loss"):
        attach(regression(tmp_path), check_loss=wrong)


def test_with_a_loss_of_the_user_the_step_is_left_alone(tmp_path: Path) -> None:
    alone = language(tmp_path, texts(ragged=False), Trainer, dropout=0.1)
    alone.train()
    measured = language(tmp_path, texts(ragged=False), Trainer, dropout=0.1)
    noise = attach(measured, loss_fn=lambda batch: measured.model(**batch).loss, every=4)
    measured.train()
    assert [reading.step for reading in noise.readings] == list(range(0, 24, 4))
    assert same_weights(alone.model, measured.model)


def test_a_short_last_batch_leaves_its_step_out(tmp_path: Path) -> None:
    trainer = regression(tmp_path, count=46)
    noise = attach(trainer, every=1)
    trainer.train()
    assert [reading.step for reading in noise.readings] == [step for step in range(24) if step % 12 != 11]


def test_the_factor_of_a_scaler_is_taken_out(tmp_path: Path) -> None:
    found = []
    for scaled in (True, False):
        trainer = regression(tmp_path, gradient_accumulation_steps=3, max_grad_norm=0.0)
        if scaled:
            trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
        noise = attach(trainer, every=1)
        trainer.train()
        found.append([(reading.grad_sq, reading.noise_trace) for reading in noise.readings])
    assert found[0] == [pytest.approx(pair, rel=1e-9) for pair in found[1]]


def test_a_quiet_callback_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = language(tmp_path, kind=Trainer, gradient_accumulation_steps=2, num_train_epochs=2)
    attach(trainer, every=1, verbose=False)
    trainer.train()
    said = capsys.readouterr().out
    assert "price list" not in said
    assert "readings" not in said


def test_the_defaults_of_the_trainer_get_a_price_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """AdamW with decayed and other weights, linear decay, gradients clipped at 1."""
    options = {"gradient_accumulation_steps": 2, "num_train_epochs": 25, "weight_decay": 0.01, "logging_steps": 50}
    trainer = language(tmp_path, kind=Trainer, train_sampling_strategy="random", **options)
    noise = attach(trainer, every=1)
    trainer.train()
    assert trainer.args.max_grad_norm == 1.0
    assert len(noise.readings) == 150
    found = noise.found
    rule = found.linear
    assert (rule.rule, rule.basis, found.setting.optimizer) == ("square_root", "second_moment", "AdamW")
    printed = capsys.readouterr().out
    assert printed.startswith("This run has 150 steps, and a price list needs about 200")
    assert str(found) in printed
    wide = [line for line in printed.splitlines() if len(line) > 80 and line[:1] not in " {"]
    assert not wide
    losses, ours = (
        [row for row in trainer.state.log_history if key in row] for key in ("loss", "svag/noise_to_signal")
    )
    assert [row["step"] for row in losses] == [50, 100, 150]
    assert [row["step"] for row in ours] == [100, 150], "what is not resolved is not logged"
    assert {"svag/critical_batch", "svag/b_simple", "svag/distortion_2x", "svag/gain_2x"} <= set(ours[-1])


@pytest.mark.parametrize("replaced", [False, True])
def test_removed_the_trainer_is_what_it_was(tmp_path: Path, replaced: bool) -> None:
    trainer = regression(tmp_path, gradient_accumulation_steps=3)
    if replaced:
        trainer.training_step = trainer.training_step
    before, callbacks = dict(vars(trainer)), list(trainer.callback_handler.callbacks)
    noise = attach(trainer, every=1)
    assert vars(trainer) != before
    noise.remove()
    assert vars(trainer) == before
    assert trainer.callback_handler.callbacks == callbacks
    noise = attach(trainer, every=1)
    trainer.train()
    noise.remove()
    assert len(noise.readings) == 8
    trainer.train()
    assert len(noise.readings) == 8


def test_a_second_training_begins_anew(tmp_path: Path) -> None:
    trainer = regression(tmp_path, gradient_accumulation_steps=3)
    noise = attach(trainer, every=1)
    trainer.train()
    first = noise.readings
    trainer.train()
    assert [reading.step for reading in noise.readings] == [reading.step for reading in first]
    assert noise.readings != first


def test_what_cannot_be_measured_is_refused_in_a_sentence(tmp_path: Path) -> None:
    trainer = regression(tmp_path)
    noise = attach(trainer, every=1)
    with pytest.raises(ValueError, match=r"measured already: attach\(\) once, or remove\(\) the first"):
        attach(trainer, every=1)
    noise.remove()
    trainer.is_deepspeed_enabled = True
    with pytest.raises(TypeError, match="DeepSpeed keeps its gradients to itself"):
        attach(trainer, every=1)
    early = Trainer(Regression(), arguments(tmp_path))
    attach(early)
    with pytest.raises(ValueError, match=r"no optimizer yet: call trainer.train\(\)"):
        early.training_step(early.model, {"x": torch.ones(4, 4)})
    single = regression(tmp_path, per_device_train_batch_size=1)
    attach(single)
    with pytest.raises(ValueError, match="a batch of 1 example cannot be cut into parts"):
        single.train()
    with pytest.raises(ValueError, match="every"):
        attach(regression(tmp_path), every=0)


def test_batches_of_changing_size_are_refused(tmp_path: Path) -> None:
    class Changing(Trainer):
        def get_train_dataloader(self) -> Any:
            sizes = [[*range(4)], [*range(4, 8)], [*range(8, 14)], [*range(14, 18)]]
            collate = self.data_collator
            return torch.utils.data.DataLoader(self.train_dataset, batch_sampler=sizes, collate_fn=collate)

    data = examples()
    trainer = Changing(Regression(), arguments(tmp_path), train_dataset=data)
    attach(trainer, every=1)
    with pytest.raises(ValueError, match="a batch of 6 examples came after batches of 4"):
        trainer.train()


@pytest.mark.parametrize("accumulated", [3, 1])
def test_a_resumed_run_keeps_its_readings(tmp_path: Path, accumulated: int) -> None:
    """Those of the run that was not interrupted, in the same order; its own are in the checkpoint too."""
    options: dict[str, Any] = {"gradient_accumulation_steps": accumulated, "max_steps": 8}
    options |= {"save_strategy": "steps", "save_steps": 4}
    whole = regression(tmp_path, **options)
    expected = attach(whole, every=2)
    whole.train()
    again = regression(tmp_path, **options)
    noise = attach(again, every=2)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert [reading.step for reading in noise.readings] == [0, 2, 4, 6]
    assert noise.readings == expected.readings
    assert same_weights(again.model, whole.model)


@pytest.mark.parametrize("in_parts", [True, False])
def test_how_often_it_measures_is_chosen_said_and_kept(
    tmp_path: Path, in_parts: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock by which a measured step takes 1.4 times as long: every 15th, after 150 that pay for the timed ones."""
    now, steps = [0.0], [*range(0, 50, 5), *range(150, 260, 15)]
    monkeypatch.setattr("svag.noise.cadence.perf_counter", lambda: now[0])

    def run(until: int, resume: bool = False) -> Any:
        trainer = regression(
            tmp_path,
            gradient_accumulation_steps=1 if in_parts else 2,
            max_steps=until,
            save_strategy="steps",
            save_steps=230,
        )
        noise = attach(trainer)
        own = trainer.training_step

        def timed(*values: Any) -> Tensor:
            cost = 1.4 if trainer.state.global_step in steps else 1.0
            ends = trainer.accelerator.sync_gradients
            # what is measured in the step itself is over when the probe closes it, what is measured beside it is not
            now[0] += cost if ends and not in_parts else 0.0
            loss: Tensor = own(*values)
            now[0] += cost if ends and in_parts else 0.0
            return loss

        trainer.training_step = timed
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-230") if resume else None)
        return noise

    first = run(260)
    assert [reading.step for reading in first.readings] == steps
    said = capsys.readouterr().out
    assert "18 readings" in said
    assert "every 15 steps" in said
    assert [reading.step for reading in run(260, resume=True).readings] == steps


def test_by_the_gain_rule_no_clock_has_a_say(tmp_path: Path) -> None:
    trainer = regression(tmp_path, gradient_accumulation_steps=3, max_steps=12)
    noise = attach(trainer, base_batch_size=4)
    trainer.train()
    assert [reading.step for reading in noise.readings] == list(range(trainer.state.global_step))
