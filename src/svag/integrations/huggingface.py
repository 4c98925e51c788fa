"""Hugging Face: `attach(trainer)` measures every step of a `transformers.Trainer`, logs, and prints the price list.

With `base_batch_size` it also trains by the gain rule.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ReduceLROnPlateau

from svag.dynamics.gain_rule import GainRule
from svag.integrations import BatchLoss, LoopProbe, parts_of
from svag.noise.batches import in_pieces
from svag.noise.cadence import Every
from svag.noise.loss_check import LossKind, NotAMean
from svag.noise.loss_check import check_loss as compare_loss
from svag.noise.reading import Reading
from svag.prices.price_list import PriceList

try:
    from transformers import Trainer, TrainerCallback
    from transformers.loss.loss_utils import ForCausalLMLoss
    from transformers.optimization import GreedyLR
    from transformers.trainer_utils import IntervalStrategy, SaveStrategy
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"svag.integrations.huggingface needs transformers ({error}): pip install -c constraints.txt '.[huggingface]'"
    ) from error

# The label of a token that the loss leaves out.
_IGNORED = -100
# Key of the run's state in trainer_state.json, beside that of the Trainer's own callbacks.
_STATE = "svag"


class AttachedNoise(TrainerCallback):
    """What `attach` returns: the readings of a Trainer's run, and `remove()`, which restores the trainer."""

    def __init__(self, trainer: Trainer, loop: LoopProbe) -> None:
        self._trainer, self._loop = trainer, loop
        self._own_step: Callable[..., Tensor] = trainer.training_step
        self._own_samples: Callable[..., tuple[list[Any], Any]] = trainer.get_batch_samples
        self._wrappers = {"training_step": self._training_step, "get_batch_samples": self._get_batch_samples}
        # methods that other code has set on the trainer instance are restored by remove()
        self._before = {name: value for name, value in vars(trainer).items() if name in self._wrappers}
        self._cut, self._check = 1, False
        self._targets: float | None = None
        vars(trainer).update(self._wrappers)
        trainer.add_callback(self)

    @property
    def readings(self) -> Sequence[Reading]:
        """The readings so far, oldest first; this waits for the device."""
        return self._loop.readings

    @property
    def found(self) -> PriceList:
        """What larger batches cost, from the readings so far."""
        return self._loop.found

    @property
    def rule(self) -> GainRule | None:
        """The gain rule that takes the steps, from the first batch on; None without `base_batch_size`."""
        return self._loop.rule

    def remove(self) -> None:
        """Stop measuring and leave the trainer as it was; the readings stay."""
        self._loop.close()
        self._trainer.remove_callback(self)
        for name, wrapper in self._wrappers.items():
            if vars(self._trainer).get(name) == wrapper:
                del vars(self._trainer)[name]
        vars(self._trainer).update(self._before)

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Begin a run, possibly from a checkpoint with its readings and the rule."""
        loop = self._loop
        loop.restart(continued=False)
        if state.global_step > 0 and _STATE in state.stateful_callbacks:
            loop.load_state_dict(state.stateful_callbacks[_STATE]["attributes"])
        if loop.base_batch_size is not None:
            self._refuse_schedule(args)
            loop.base_steps = args.max_steps
            if state.global_step > 0 and not loop.restored_time:
                raise ValueError(
                    "the checkpoint has no gain rule: resume with one that was saved with base_batch_size="
                )
            if loop.restored_time >= args.max_steps:
                raise ValueError(
                    f"the run in this checkpoint has ended, at baseline step {loop.restored_time:.0f}: nothing is left "
                    "to train, unless max_steps grows"
                )
        if state.is_world_process_zero and state.global_step == 0:
            loop.announce(state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Step the scheduler as often as the baseline would have, stop where it ended, and keep the state."""
        rule = self._loop.rule
        if rule is not None:
            # the trainer itself has taken one of them, unless a GradScaler skipped the step
            for _ in range(rule.due - 1):
                self._trainer.lr_scheduler.step()
            if rule.done and not control.should_training_stop:
                # what the trainer does at max_steps
                control.should_training_stop = True
                control.should_evaluate |= args.eval_strategy == IntervalStrategy.STEPS
                control.should_save |= args.save_strategy == SaveStrategy.STEPS
        self._keep_state(state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Save the state for checkpoints at the end of an epoch."""
        self._keep_state(state, control)

    def _keep_state(self, state: Any, control: Any) -> None:
        if control.should_save:
            state.stateful_callbacks[_STATE] = {"args": {}, "attributes": self._loop.state_dict()}

    def _refuse_schedule(self, args: Any) -> None:
        if args.max_steps <= 0:
            raise ValueError(
                "with base_batch_size the run ends where the baseline ended, and the Trainer does not know where that "
                "is: give TrainingArguments max_steps=, the number of steps of the baseline (its epochs × examples / "
                "base_batch_size)"
            )
        if isinstance(self._trainer.lr_scheduler, ReduceLROnPlateau | GreedyLR):
            raise ValueError(
                f"{type(self._trainer.lr_scheduler).__name__} follows evaluations, which the Trainer counts in steps "
                "at the larger batch: choose another lr_scheduler_type, or use svag.GainRule in a loop of your own"
            )

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **others: Any) -> None:
        """Log whenever the trainer logs its loss, to wherever it does."""
        if logs is not None and "loss" in logs and (found := self._loop.scalars()):
            self._trainer.log(found)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Print the price list."""
        self._loop.close()
        if state.is_world_process_zero:
            self._loop.print_found()

    def _get_batch_samples(self, *values: Any, **named: Any) -> tuple[list[Any], Any]:
        """Replace `Trainer.get_batch_samples`: do the same, and count the targets that the losses of a step share."""
        trainer = self._trainer
        samples, items = self._own_samples(*values, **named)
        self._targets = None
        if items is not None and trainer.loss_is_scaled_for_ga is not False:
            targets = torch.tensor(
                float(sum(self._targets_of(inputs) for inputs in samples)), device=trainer.args.device
            )
            if trainer.args.average_tokens_across_devices:
                targets = trainer.accelerator.reduce(targets, reduction="sum")
            else:  # each rank divides by its own number, and the ranks are averaged
                targets = targets * trainer.args.world_size
            self._targets = float(targets)
        return samples, items

    def _targets_of(self, inputs: Mapping[str, Any]) -> int:
        """The number of tokens over which the loss of a micro-batch is summed."""
        if "shift_labels" in inputs:
            return int((inputs["shift_labels"] != _IGNORED).sum())
        model = self._trainer.model
        # computed by the model: the Trainer's own count, which only scales the loss, is wrong for GPT-2
        shifts = getattr(model, "loss_function", None) is ForCausalLMLoss and not model.config.is_encoder_decoder
        return int(((inputs["labels"][..., 1:] if shifts else inputs["labels"]) != _IGNORED).sum())

    def _training_step(self, model: nn.Module, inputs: Mapping[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Replace `Trainer.training_step`: the same gradients, from parts of the batch if a step is one batch."""
        trainer, loop = self._trainer, self._loop
        loop.see(inputs, trainer.accelerator.gradient_state.end_of_dataloader)
        if loop.probe is None:
            self._start(model)
        step, scaler, parts = trainer.state.global_step, trainer.accelerator.scaler, [inputs]
        if self._cut > 1:
            if not loop.measures(step):
                return self._own_step(model, inputs, num_items_in_batch)
            if loop.loss_fn is not None:
                loop.measure(model, self._loss, trainer._prepare_inputs(inputs), step=step, scaler=scaler)
                return self._own_step(model, inputs, num_items_in_batch)
            parts = in_pieces(inputs, self._cut)
            if self._check:
                self._check = False
                self._refuse_other_losses(model, inputs, parts, num_items_in_batch)
        losses, steps = [], trainer.current_gradient_accumulation_steps
        try:
            trainer.current_gradient_accumulation_steps = steps * self._cut  # by which it divides an ordinary loss
            for part in parts:
                losses.append(self._own_step(model, part, num_items_in_batch))
                share = None if self._targets is None else self._targets_of(part) / self._targets
                loop.micro_batch(1.0 if scaler is None else scaler.get_scale(), share)
        finally:
            trainer.current_gradient_accumulation_steps = steps
        if trainer.accelerator.sync_gradients:
            loop.end_step(step)
        return torch.stack(losses).sum()

    def _refuse_other_losses(
        self, model: nn.Module, inputs: Mapping[str, Any], parts: Sequence[Any], items: Any
    ) -> None:
        """Refuse a loss whose parts have another gradient than the batch, as `svag.NoiseProbe.backward` does."""
        trainer = self._trainer

        def loss_of(part: Any) -> Tensor:
            prepared = trainer._prepare_inputs(dict(part))
            with trainer.compute_loss_context_manager():
                loss: Tensor = trainer.compute_loss(model, prepared, num_items_in_batch=items)
            return loss

        scaled = trainer.loss_is_scaled_for_ga
        if scaled is None:  # as Trainer.training_step finds out whether a part is a share of the step's mean already
            scaled = (trainer.model_accepts_loss_kwargs and items is not None) or trainer.compute_loss_func is not None
        weight = 1.0 if scaled else 1 / len(parts)
        found = compare_loss(
            trainer.model,
            loss_of,
            inputs,
            [(part, weight) for part in parts],
            scaled=trainer.accelerator.scaler is not None,
        )
        if found.refused:
            raise NotAMean(
                found,
                f"the loss of this Trainer is not a mean over examples ({found.kind.name.lower().replace('_', ' ')}), "
                f"and the gradient computed in {found.parts} parts is off by {found.difference:.0%}: give attach() a "
                "loss_fn= that is one, or accumulate gradients over micro-batches, which are then measured as they are "
                "(check_loss=False trains in parts all the same)",
            )
        if found.kind != LossKind.MEAN:
            warnings.warn(str(found), stacklevel=2)

    def _loss(self, part: Any) -> Tensor:
        """The user's own loss, in the precision of the run."""
        assert self._loop.loss_fn is not None
        with self._trainer.accelerator.autocast():
            return self._loop.loss_fn(part)

    def _start(self, model: nn.Module) -> None:
        trainer, loop = self._trainer, self._loop
        if trainer.optimizer is None:
            raise ValueError("the trainer has no optimizer yet: call trainer.train(), which makes it")
        ranks, accumulated = trainer.args.world_size, trainer.args.gradient_accumulation_steps
        self._cut = parts_of(loop.size) if ranks * accumulated == 1 else 1
        self._check = loop.checks_loss and loop.loss_fn is None  # with loss_fn, the probe does
        loop.start(
            model if isinstance(model, DistributedDataParallel) else trainer.model,
            trainer.optimizer,
            micro_batches=accumulated * self._cut,
            ranks=ranks,
            loader=trainer.callback_handler.train_dataloader,
            in_parts=self._cut > 1,
        )


def attach(
    trainer: Trainer,
    *,
    batch_size: int | None = None,
    population: int | None = None,
    parameters: Iterable[Tensor] | None = None,
    every: Every = "auto",
    loss_fn: BatchLoss | None = None,
    base_batch_size: int | None = None,
    check_loss: bool = True,
    verbose: bool = True,
) -> AttachedNoise:
    """Measure G, N and R in every step of a `transformers.Trainer`, log them, and print the price list at the end.

    Call it before `trainer.train()`. Gradients are read before they are clipped. The parts of a step are its
    micro-batches (`gradient_accumulation_steps`) and the ranks of a data-parallel run. Without either, a step that is
    measured is back-propagated in parts of its batch: the same gradient, with other random draws for dropout. Where the
    loss is averaged over the tokens of the whole step, a micro-batch counts by its tokens.

    `svag/noise_to_signal` and the others go to whatever `report_to` names, each time that the trainer logs its loss.

    With `base_batch_size`, `svag.GainRule` takes the steps. Set learning rate, scheduler, warm-up and `max_steps` as
    for the baseline, the run at that batch size, and change only the batch size. The scheduler counts baseline steps,
    and training stops where the baseline ends, after fewer steps than `max_steps`. `svag/gain`, `svag/price` and
    `svag/baseline_step` are logged too. Checkpoints hold the rule and the readings.

    Returns an object with the `readings`, `found`, the price list, `rule`, and `remove()`, which restores the trainer.

    >>> import tempfile, transformers
    >>> class Line(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.slope = nn.Parameter(torch.ones(1))
    ...     def forward(self, x):
    ...         return {"loss": (self.slope * x).mean()}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     options = transformers.TrainingArguments(
    ...         folder, per_device_train_batch_size=2, num_train_epochs=1, report_to="none", save_strategy="no",
    ...         disable_tqdm=True, use_cpu=True, dataloader_pin_memory=False
    ...     )
    ...     trainer = Trainer(Line(), options, train_dataset=[{"x": 1.0}, {"x": 3.0}])
    ...     noise = attach(trainer, population=10**9)
    ...     _ = trainer.train()
    This run has 1 steps, and a price list needs about 200: train longer.
    {'train_runtime': ...
    No price list yet from batch size 2...
    >>> print(noise.readings[0])
    G = 3, N = 1 at batch size 2, R = 1 (2 gradients)

    Args:
        trainer: the trainer, before it trains.
        batch_size: examples averaged by one optimizer step, over all micro-batches and ranks; by default the leading
            dimension of the first tensor of the first batch, times their number.
        population: size of the data set when the examples of a batch are distinct; by default that of the DataLoader.
        parameters: measure only these, for example the weights that decay.
        every: measure every `every`-th step; the rule holds its averages in between. "auto" times the first 50 steps,
            chooses so that the run slows by about 3%, and says how many readings that gives; with `base_batch_size` it
            is every step, since training must not depend on a clock.
        loss_fn: takes a batch and returns its mean loss; only used where a step is one backward pass on one device. The
            step is then left as it is, and the parts are back-propagated beside it and without a trace.
        base_batch_size: batch size of the baseline that optimizer and `max_steps` are set for; None: only measure.
        check_loss: where a batch is cut into parts, compare its gradient with that of the parts at the first step, and
            refuse a loss that is not a mean over examples, as `svag.NoiseProbe` does.
        verbose: print whether the run is long enough at its start, what "auto" chose, and the price list, or what the
            run by the rule has cost, at the end.
    """
    if trainer.is_deepspeed_enabled:
        raise TypeError("DeepSpeed keeps its gradients to itself: measure a run without it")
    if any(isinstance(callback, AttachedNoise) for callback in trainer.callback_handler.callbacks):
        raise ValueError("this trainer is measured already: attach() once, or remove() the first")
    loop = LoopProbe(
        batch_size=batch_size,
        population=population,
        parameters=parameters,
        every=every,
        loss_fn=loss_fn,
        base_batch_size=base_batch_size,
        check_loss=check_loss,
        verbose=verbose,
    )
    return AttachedNoise(trainer, loop)
