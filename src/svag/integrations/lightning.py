"""Lightning: `Trainer(callbacks=[NoiseCallback()])` measures every step, logs, and prints the price list at the end.

`GainCallback` also trains by the gain rule.
"""

import copy
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from svag.dynamics.gain_rule import GainRule
from svag.integrations import BatchLoss, LoopProbe, parts_of
from svag.noise.batches import epoch_size
from svag.noise.cadence import Every
from svag.noise.reading import Reading
from svag.prices.price_list import PriceList

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.strategies import DeepSpeedStrategy
    from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
    from torchmetrics import Metric
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"svag.integrations.lightning needs Lightning ({error}): pip install -c constraints.txt '.[lightning]'"
    ) from error


class NoiseCallback(Callback):
    """Measure G, N and R in a run of `lightning.pytorch.Trainer`, log them, and print the price list when it ends.

    The parts of a step are its micro-batches (`accumulate_grad_batches`, or several `manual_backward` before one
    `optimizer.step`) and the ranks of a data-parallel run; nothing is computed twice. Without either, each reading
    cuts the batch into parts and back-propagates them beside the step, through `loss_fn` or the `training_step` of
    the module, and leaves no trace: gradients, buffers, generators, metrics, and what the module logs stay as they
    were. That doubles the time of a step; `every="auto"` measures so few that the run slows by about 3%.

    Steps that an epoch cuts short are trained and not measured. With manual optimization the first step only tells how
    many micro-batches there are; divide their losses by that number, as Lightning does by itself. The readings are part
    of checkpoints.

    >>> import torch, lightning
    >>> class Line(lightning.LightningModule):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.slope = nn.Parameter(torch.ones(1))
    ...     def training_step(self, batch):
    ...         return (self.slope * batch).mean()
    ...     def configure_optimizers(self):
    ...         return torch.optim.SGD(self.parameters(), lr=0.5)
    >>> noise = NoiseCallback(population=10**9)
    >>> trainer = lightning.Trainer(
    ...     accelerator="cpu", max_epochs=1, callbacks=[noise], accumulate_grad_batches=2, logger=False,
    ...     enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    ... )
    >>> trainer.fit(Line(), torch.utils.data.DataLoader(torch.tensor([1.0, 3.0])))
    This run has 1 steps, and a price list needs about 200: train longer.
    No price list yet from batch size 2...
    >>> print(noise.readings[0])
    G = 3, N = 1 at batch size 2, R = 1 (2 gradients)

    Args:
        batch_size: examples averaged by one optimizer step, over all micro-batches and ranks; by default the leading
            dimension of the first tensor of the first batch, times their number.
        population: size of the data set when the examples of a batch are distinct; by default that of the DataLoader.
        parameters: measure only these, for example the weights that decay.
        every: measure every `every`-th step; "auto" times the first 50 and chooses, so that the fit slows by about 3%,
            and says how many readings that gives.
        loss_fn: takes a batch and returns its mean loss; only used where a step is one backward pass on one device, and
            by default the `training_step` of the module. With manual optimization it is needed there.
        check_loss: where a batch is cut into parts, compare its gradient with that of the parts at the first step, and
            refuse a loss that is not a mean over examples, as `svag.NoiseProbe` does.
        verbose: print whether the fit is long enough at its start, what "auto" chose, and the price list at the end.
    """

    def __init__(
        self,
        *,
        batch_size: int | None = None,
        population: int | None = None,
        parameters: Iterable[Tensor] | None = None,
        every: Every = "auto",
        loss_fn: BatchLoss | None = None,
        check_loss: bool = True,
        verbose: bool = True,
    ) -> None:
        self._loop = LoopProbe(
            batch_size=batch_size,
            population=population,
            parameters=parameters,
            every=every,
            loss_fn=loss_fn,
            check_loss=check_loss,
            verbose=verbose,
        )
        self._in_parts = False
        self._accumulates: int | None = None
        self._trainer: Trainer | None = None

    @property
    def readings(self) -> Sequence[Reading]:
        """The readings so far, oldest first; this waits for the device."""
        return self._loop.readings

    @property
    def found(self) -> PriceList:
        """What larger batches cost, from the readings so far."""
        return self._loop.found

    def remove(self) -> None:
        """Stop measuring and leave the trainer; the readings stay."""
        self._loop.close()
        if self._trainer is not None:
            # a new list: this may be called from a hook, while the trainer walks through the old one
            self._trainer.callbacks = [callback for callback in self._trainer.callbacks if callback is not self]
            self._trainer = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse what cannot be measured, before anything runs."""
        if stage != "fit":
            return
        if isinstance(trainer.strategy, DeepSpeedStrategy):
            raise TypeError(
                "DeepSpeed keeps its gradients to itself: measure a run with strategy='auto' or strategy='ddp'"
            )
        if sum(isinstance(callback, NoiseCallback) for callback in trainer.callbacks) > 1:
            raise ValueError("NoiseCallback is attached twice to this trainer: keep one of them")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a fit: continue the readings of the checkpoint, or of the previous fit if this one continues it."""
        # Lightning replaces a missing one by an empty one
        if not any(optimizer.param_groups for optimizer in trainer.optimizers):
            raise ValueError("there is no optimizer: configure_optimizers must return the one whose steps are measured")
        if len(trainer.optimizers) > 1:
            raise ValueError(
                f"NoiseCallback measures the steps of one optimizer, and configure_optimizers gave "
                f"{len(trainer.optimizers)}: use svag.NoiseProbe in training_step"
            )
        self._trainer = trainer
        self._loop.restart(continued=trainer.global_step > 0)
        self._accumulates = None
        if trainer.is_global_zero and not self._loop.readings:
            self._loop.announce(trainer.estimated_stepping_batches)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Before the forward pass, make the probe if this is the first batch, and measure its parts if that is due."""
        loop = self._loop
        if self._accumulates is None:
            manual, alone = not pl_module.automatic_optimization, trainer.world_size == 1
            self._accumulates = trainer.accumulate_grad_batches
            self._in_parts = alone and (loop.loss_fn is not None if manual else self._accumulates == 1)
        if trainer.accumulate_grad_batches != self._accumulates:
            raise ValueError(
                f"accumulate_grad_batches went from {self._accumulates} to {trainer.accumulate_grad_batches}, and the "
                "batch size with it: measure each of them in a fit of its own"
            )
        loop.see(batch, trainer.is_last_batch)
        if loop.probe is None and (pl_module.automatic_optimization or self._in_parts):
            self._start(trainer, pl_module, parts_of(loop.size) if self._in_parts else self._accumulates)
        if self._in_parts and loop.measures(trainer.global_step):
            self._measure(trainer, pl_module, batch, batch_idx)

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count a backward pass, while gradients are still scaled by a GradScaler."""
        if self._in_parts:
            return
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        counted = self._loop.micro_batch(1.0 if scaler is None else scaler.get_scale())
        if pl_module.automatic_optimization and counted == self._accumulates:
            self._loop.end_step(trainer.global_step)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        """Before gradients are clipped, end the step if it is a manual one or was cut short by the epoch."""
        if self._in_parts or not self._loop.counted:
            return
        counted = self._loop.end_step(trainer.global_step)
        if self._loop.probe is None:
            self._start(trainer, pl_module, counted)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log at the same steps as Lightning."""
        due = trainer.log_every_n_steps and trainer.global_step % trainer.log_every_n_steps == 0
        if due and (found := self._loop.scalars()):
            self.log_dict(found, on_step=True, on_epoch=False)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the price list."""
        if trainer.is_global_zero:
            self._loop.print_found()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the probe off the model, also after an error."""
        if stage == "fit":
            self._loop.close()

    def state_dict(self) -> dict[str, Any]:
        """The content of a checkpoint: the readings."""
        return self._loop.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the readings of a checkpoint."""
        self._loop.load_state_dict(state_dict)

    def _start(self, trainer: Trainer, pl_module: LightningModule, micro_batches: int) -> None:
        wrapped = trainer.strategy.model
        self._loop.start(
            wrapped if isinstance(wrapped, DistributedDataParallel) else pl_module,
            trainer.optimizers[0],
            micro_batches=micro_batches,
            ranks=trainer.world_size,
            loader=trainer.train_dataloader,
            in_parts=self._in_parts,
        )

    def _measure(self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Measure the parts of a batch through `loss_fn`, or otherwise the `training_step` of the module."""
        given = self._loop.loss_fn

        def loss_fn(part: Any) -> Tensor:
            if given is None:
                return _loss_of_step(trainer, module, part, batch_idx)
            with trainer.precision_plugin.train_step_context():
                return given(part)

        with _as_it_was(module):
            scaler = getattr(trainer.precision_plugin, "scaler", None)
            self._loop.measure(module, loss_fn, batch, step=trainer.global_step, scaler=scaler)


class GainCallback(NoiseCallback):
    """Train at a larger batch and end where the run at a smaller one, the baseline, ended: `svag.GainRule` for a fit.

    Set optimizer, schedulers and `Trainer(max_steps=…)` as for the baseline, and change only the batch size of the
    loader, the accumulation or the number of devices. Each step is then taken at the settings of the gain rule, which
    are measured as `NoiseCallback` does. Schedulers are stepped by this callback, at every baseline step, or at every
    epoch of the baseline (`interval`, `frequency`), and training stops where the baseline ends, after fewer steps than
    `max_steps`. `svag/gain`, `svag/price` and `svag/baseline_step` are logged too. Checkpoints hold
    the rule and the readings.

    A step that an epoch cuts short has the gain of its own size, or on several ranks the gain of a whole step.

    >>> import torch, lightning
    >>> class Line(lightning.LightningModule):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.slope = nn.Parameter(torch.ones(1))
    ...     def training_step(self, batch):
    ...         return (self.slope * batch).mean()
    ...     def configure_optimizers(self):
    ...         return torch.optim.SGD(self.parameters(), lr=0.5)
    >>> gain, module = GainCallback(base_batch_size=2, population=10**9), Line()
    >>> trainer = lightning.Trainer(
    ...     accelerator="cpu", max_steps=2, callbacks=[gain], accumulate_grad_batches=2, logger=False,
    ...     enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    ... )
    >>> trainer.fit(module, torch.utils.data.DataLoader(torch.tensor([1.0, 1.0, 3.0, 3.0] * 2), batch_size=2))
    By the gain rule 2 steps did the work of 2 steps at batch size 2, with 2 times the examples.
    >>> round(gain.rule.gain, 6), module.slope.item()  # gains 1.25 and, where the baseline ends, .75: 2 steps of .5 · 2
    (0.75, -1.0)

    Args:
        base_batch_size: batch size of the baseline.
        batch_size: as in `NoiseCallback`, and so are the others.
        population: size of the data set.
        parameters: measure only these.
        every: measure every `every`-th step; the rule holds its averages in between.
        loss_fn: takes a batch and returns its mean loss.
        check_loss: as for `NoiseCallback`.
        verbose: print what the run has cost, at the end.
    """

    def __init__(
        self,
        base_batch_size: int,
        *,
        batch_size: int | None = None,
        population: int | None = None,
        parameters: Iterable[Tensor] | None = None,
        every: int = 1,
        loss_fn: BatchLoss | None = None,
        check_loss: bool = True,
        verbose: bool = True,
    ) -> None:
        super().__init__()
        self._loop = LoopProbe(
            batch_size=batch_size,
            population=population,
            parameters=parameters,
            every=every,
            loss_fn=loss_fn,
            base_batch_size=base_batch_size,
            check_loss=check_loss,
            verbose=verbose,
        )
        # schedulers with their intervals in baseline steps, and the time up to which each kind was stepped
        self._schedulers: list[tuple[Any, float]] = []
        self._stepped = {"plain": 0.0, "plateau": 0.0}

    @property
    def rule(self) -> GainRule | None:
        """The gain rule that takes the steps, from the first batch on."""
        return self._loop.rule

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse what the rule cannot step, before anything runs."""
        super().setup(trainer, pl_module, stage)
        if stage != "fit":
            return
        if not pl_module.automatic_optimization:
            raise ValueError(
                "GainCallback steps a module with automatic optimization, and this one optimizes by itself: use "
                "svag.GainRule with a svag.NoiseProbe in its training_step"
            )
        if trainer.max_steps <= 0:
            raise ValueError(
                "the run ends where the baseline ended, and the Trainer does not know where that is: give it max_steps="
                ", the number of steps of the baseline (its epochs × examples / base_batch_size), instead of max_epochs"
            )
        if trainer.min_steps or trainer.min_epochs:
            raise ValueError("the run ends with the baseline, at max_steps of it: leave out min_steps and min_epochs")
        self._loop.base_steps = trainer.max_steps

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a fit: take over the schedulers, and continue the rule of the checkpoint if there is one."""
        super().on_train_start(trainer, pl_module)
        time = self._loop.restored_time
        if trainer.global_step > 0 and not time:
            raise ValueError("the checkpoint has no gain rule: resume one that was saved with GainCallback")
        if time >= trainer.max_steps:
            trainer.should_stop = True
        if not time:
            self._stepped = {"plain": 0.0, "plateau": 0.0}
        self._schedulers = []
        for config in trainer.lr_scheduler_configs:
            unit = 1 if config.interval == "step" else self._base_epoch(trainer)
            self._schedulers.append((config, unit * config.frequency))
            config.frequency = sys.maxsize  # Lightning would count steps and epochs at the larger batch

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Step the schedulers as often as the baseline would have; stop where it ended."""
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        self._step_schedulers(trainer, pl_module, "plain")
        if self.rule is not None and self.rule.done:
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Step the schedulers that follow a metric, which is known after validation."""
        self._step_schedulers(trainer, pl_module, "plateau")

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take rule and probe off, also after an error."""
        super().teardown(trainer, pl_module, stage)
        self._schedulers = []

    def state_dict(self) -> dict[str, Any]:
        """The content of a checkpoint: the readings, the rule, and how far the schedulers are."""
        return {**super().state_dict(), "stepped": dict(self._stepped)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self._stepped = dict(state_dict["stepped"])
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "stepped"})

    def _base_epoch(self, trainer: Trainer) -> int:
        """Steps of an epoch of the baseline."""
        loader = trainer.train_dataloader
        population = self._loop.population or (epoch_size(loader) if isinstance(loader, Iterable) else None)
        if population is None:
            raise ValueError(
                "a scheduler is stepped at every epoch, and how long one of the baseline is depends on the size of the "
                "data set: give population=, or an interval of 'step' in configure_optimizers"
            )
        rounded = math.floor if getattr(loader, "drop_last", False) else math.ceil
        return max(1, rounded(population / (self._loop.base_batch_size or 1)))

    def _step_schedulers(self, trainer: Trainer, module: LightningModule, kind: str) -> None:
        if self.rule is None:
            return
        before, now = self._stepped[kind], self.rule.time
        self._stepped[kind] = now
        for config, unit in self._schedulers:
            if config.reduce_on_plateau != (kind == "plateau"):
                continue
            for _ in range(math.floor(now / unit) - math.floor(before / unit)):
                metric = trainer.callback_metrics.get(config.monitor) if config.reduce_on_plateau else None
                if config.reduce_on_plateau and metric is None:
                    if config.strict:
                        raise ValueError(
                            f"the scheduler follows {config.monitor!r}, which was not logged: log it in every epoch"
                        )
                    continue
                module.lr_scheduler_step(config.scheduler, metric)


def _loss_of_step(trainer: Trainer, module: LightningModule, part: Any, batch_idx: int) -> Tensor:
    """The loss that `training_step` returns for a part of a batch."""
    if is_param_in_hook_signature(module.training_step, "dataloader_iter", explicit=True):
        raise TypeError(
            "training_step takes its batches from a dataloader_iter and not in parts: give NoiseCallback a loss_fn="
        )
    numbered = is_param_in_hook_signature(module.training_step, "batch_idx", min_args=2)
    output = trainer.strategy.training_step(part, batch_idx) if numbered else trainer.strategy.training_step(part)
    if output is None:  # Lightning skips such a batch: gradients that are not finite are no reading, but counted
        skipped: Tensor = next(p for p in module.parameters() if p.requires_grad).sum() * math.nan
        return skipped
    loss = output.get("loss") if isinstance(output, Mapping) else output
    if not isinstance(loss, Tensor):
        raise TypeError(
            f"training_step gave {type(loss).__name__} instead of a loss for a part of the batch: give NoiseCallback a "
            "loss_fn="
        )
    return loss


@contextmanager
def _as_it_was(module: LightningModule) -> Iterator[None]:
    """Run a `training_step` without effect: restore the logs and metrics of the module afterwards."""
    kept = dict(vars(module))
    collected = {
        name: copy.copy(value)
        for name, value in kept.items()
        if isinstance(value, list | dict | set) and not name.startswith("_")
    }
    metrics = [
        (vars(metric), copy.deepcopy(_state(metric))) for metric in module.modules() if isinstance(metric, Metric)
    ]
    vars(module).update(collected, log=_unlogged)
    try:
        yield
    finally:
        vars(module).clear()
        vars(module).update(kept)
        for attributes, state in metrics:
            attributes.update(state)


def _state(metric: nn.Module) -> dict[str, Any]:
    names = {*metric._defaults, "_update_count", "_computed", "_forward_cache"}  # type: ignore[misc]
    return {name: value for name, value in vars(metric).items() if name in names}


def _unlogged(*values: object, **options: object) -> None:
    """Replaces `LightningModule.log`."""
