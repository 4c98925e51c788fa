"""SVAG as a drop-in for one step of SGD, Adam or RMSprop in any training loop (eq:svag_iter, thm:sde_svag)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from svag.dynamics.gradient_pass import Batch, Before, GradientPass, LossFn, check_pair
from svag.dynamics.pair_noise import PairNoise
from svag.dynamics.refined_step import Clock, RefinedStep, RunningStatistics, refuse_other_model, refuse_strange_state
from svag.noise.batches import batch_size_of, refuse_swapped
from svag.noise.group import Group
from svag.noise.optimizer import settings_of, sgd_settings, trained_parameters, unwrapped, velocities
from svag.noise.parameters import batch_norms, refuse_sharded, refuse_sparse
from svag.noise.reading import Reading
from svag.noise.uninterrupted import Uninterrupted, completed
from svag.theory import domain
from svag.theory.optimizers import MomentumLimit
from svag.theory.weights import finite_population_weights, svag_weights


class SVAG:
    r"""Stochastic Variance Amplified Gradient around your own `torch.optim.SGD`, `Adam`, `AdamW` or `RMSprop`.

    $$x \leftarrow x - \frac{\eta}{l}\,\bigl(a\,\nabla L_{\gamma_1}(x) + b\,\nabla L_{\gamma_2}(x)\bigr),
      \qquad a, b = \tfrac12\bigl(1 \pm \sqrt{2l/m - 1}\bigr)$$

    where l is the argument `ell`, m is `split`, γ₁ and γ₂ are independent batches of B/m examples, and η is the
    optimizer's own `lr`, which does not change; the step applied is η/l. l such sub-steps are
    one effective step, the counterpart of one SGD step, with η (and momentum) read at its start and held. `ell=1` is
    SGD bit for bit and evaluates only the first batch; as `ell` grows the run approaches the Itô SDE of SGD.

    With Adam, AdamW or RMSprop, a sub-step is their own step with the same weighted gradient at

    $$\eta/\sqrt{l}, \quad 1-\beta \to (1-\beta)/l, \quad \epsilon\sqrt{l}, \quad \lambda/\sqrt{l}
      \text{ (decoupled)}$$

    Coupled weight decay and β₁ = 0 stay as they are. In a sub-step the second moment is l times Adam's, and l sub-steps
    count as one step; the state is in these units only while the optimizer steps. So `optimizer.state` always holds v
    in Adam's own units, and effective steps in `step`.

    >>> x = nn.Parameter(torch.tensor([1.0]))
    >>> model = nn.ParameterList([x])
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    >>> with SVAG(model, optimizer, ell=5) as sim:  # a, b = 2, −1
    ...     loss = sim.substep(lambda batch: (batch * x).mean(), torch.tensor([3.0]), torch.tensor([1.0]))
    >>> x.item(), optimizer.param_groups[0]["lr"]  # 1 − (0.5/5)(2·3 − 1·1)
    (0.5, 0.5)

    Args:
        model: the model; its BatchNorm running statistics are slowed to the same time scale while the context is open.
        optimizer: a `torch.optim.SGD`, `Adam`, `AdamW`, or an `RMSprop` that has taken some steps. Its learning rate
            stays visible as η and follows any scheduler.
        ell: SVAG's refinement, a whole number of at least 1.
        split: cut the batch of the SGD run into this many parts and draw batches of one part's size (at most 2·ell);
            SGD only.
        momentum_limit: "underdamped" or "overdamped", to be named when SGD has momentum.
        track_noise: keep a `Reading` of G and N from every pair, in `noise`. Complex parameters count as two real ones.
        check_finite: refuse a step whose loss is not finite. It waits for the device.
        chunks: cut every batch into this many equal parts that are back-propagated one after the other, to save
            memory; the loss must then be a mean over examples.
        population: number of examples, if every batch is drawn without replacement; makes `split` exact there.
        process_group: the ranks that share every batch, such as `torch.distributed.group.WORLD`. Each holds the same
            weights and passes its own share of both batches, of any size; the gradients are averaged over all examples
            in one message per sub-step (two with `track_noise`), and losses and readings are those of the whole
            batches.
        atomic: take back the whole effective step when something goes wrong in `step`, not only the sub-step that
            failed. It costs a copy of the weights and of the optimizer's state every effective step.

    **Errors and interrupts.** An error or a Ctrl-C (any signal whose handler raises) leaves the model, the state and
    the settings of the optimizer, the clock and the readings as they are between two sub-steps; with `atomic`, between
    two effective steps.

    - Before the optimizer moves the weights, the sub-step is taken back.
    - An interrupt that comes while they move waits until they have, and the sub-step is counted; so it is if a step
      post-hook of the optimizer fails. With `atomic`, what was done of the effective step is taken back all the same.
    - Only `atomic` takes back an update that fails halfway in the optimizer itself, as for lack of memory or at a
      second Ctrl-C, which does not wait. Without it nothing is counted, and settings, v and `step` are as they were,
      but some weights may have moved.

    Signals are held in the main thread; no other thread receives any. Gradients are cleared, and batches that were
    drawn from `pairs` are gone. Around Adam and RMSprop the memory of another v is taken while the optimizer steps.

    Reference: Li, Malladi, Arora (2021), eq:svag_iter; for Adam and RMSprop Malladi, Lyu, Panigrahi, Arora (2022), who
    write ℓ for √l; `split` and `momentum_limit` are ours.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        ell: int,
        split: int = 1,
        momentum_limit: MomentumLimit | None = None,
        track_noise: bool = False,
        check_finite: bool = False,
        *,
        chunks: int = 1,
        population: int | None = None,
        process_group: ProcessGroup | None = None,
        atomic: bool = False,
    ) -> None:
        self.ell = domain.refinement("ell", ell)
        self.split = domain.whole("split", split)
        self.momentum_limit = momentum_limit
        self._population = None if population is None else domain.whole("population", population)
        self._check_finite, self._atomic = check_finite, atomic
        corrected = population is not None and self.split > 1  # both weights differ from 0, even if ell is split
        self._independent_weights = svag_weights(self.ell, self.split)
        two_batches = self._independent_weights[1] != 0 or corrected
        if corrected and self.split == 2 * self.ell:
            raise ValueError(
                f"ell={ell}, split={split} has no weights for batches drawn without replacement, which population= "
                "stands for: draw them with_replacement and leave out population, or raise ell"
            )
        if track_noise and not two_batches:
            raise ValueError(
                f"track_noise needs the second batch, which ell={ell}, split={split} does not evaluate: "
                "svag.NoiseProbe measures an SGD run"
            )
        self._model = model
        self._group = Group(process_group, model)
        optimizer = unwrapped(optimizer)  # step it without its wrapper, which may skip or count sub-steps
        self._refined = RefinedStep(optimizer, self.ell, momentum_limit)
        self.optimizer = optimizer
        if self.split > 1:
            sgd_settings(optimizer, f"split={split}", "leave split at 1")
        if momentum_limit is not None:
            sgd = sgd_settings(optimizer, f"momentum_limit={momentum_limit!r}", "leave it out, betas have one limit")
            if not any(settings.momentum for settings in sgd):
                raise ValueError(f"momentum_limit={momentum_limit!r} was named, but the optimizer has no momentum")
        refuse_other_model(model, optimizer)
        self._cut = split > 1 or domain.whole("chunks", chunks) > 1
        self._refuse_cut_batch_norm()
        if track_noise:
            refuse_sharded(model)
            refuse_sparse(model, trained_parameters(self.optimizer))
        self._noise = PairNoise(self.ell, population) if track_noise else None
        self._statistics = RunningStatistics(model, updates=self.ell * (2 if two_batches else 1))
        self._add_gradient = GradientPass(model, chunks)
        self._clock = Clock(self.ell)
        self._open = self._whole = self._committed = False

    def __enter__(self) -> "SVAG":
        if self._open:
            raise RuntimeError("this svag.SVAG context is open already")
        with Uninterrupted():
            try:
                self._refined.__enter__()
                self._statistics.refine()
                self._open = True
            except BaseException:
                completed(self._close)
                raise
        return self

    def __exit__(self, *_: object) -> None:
        completed(self._close)

    def _close(self) -> None:
        self._open = False
        self._statistics.restore()
        self._refined.__exit__(None, None, None)

    @property
    def effective_step(self) -> int:
        """Effective steps that have ended: the number of plain optimizer steps this run corresponds to."""
        return self._clock.effective_step

    @property
    def time(self) -> float:
        """Σ η/l over all sub-steps, η of the first parameter group."""
        return self._clock.time

    @property
    def boundary(self) -> bool:
        """Whether an effective step has just ended."""
        return self._clock.boundary

    @property
    def noise(self) -> list[Reading]:
        """One `Reading` a sub-step if `track_noise`; fetching them waits for the device."""
        return self._noise.collect() if self._noise else []

    def step(self, loss_fn: LossFn, pairs: Iterator[tuple[Batch, Batch]]) -> Tensor:
        """Take one effective step: `ell` sub-steps on the next `ell` pairs. It replaces one step of the optimizer.

        Args:
            loss_fn: the mean loss of a batch, called as `loss_fn(batch)`.
            pairs: an iterator of pairs of independent batches, such as `svag.independent_pairs(loader)`.

        Returns:
            The mean loss of the evaluated batches, detached. If anything goes wrong, the sub-steps before it remain,
            and `substep` can finish the effective step; with `atomic` none remain.
        """
        self._refuse_closed()
        if not self.boundary:
            raise RuntimeError(
                f"step() begins an effective step, but {self._clock.substep} of {self.ell} sub-steps are done: "
                "finish it with substep()"
            )
        refuse_swapped(loss_fn, pairs)
        if iter(pairs) is not pairs:
            raise ValueError(
                f"pairs must be an iterator, got {type(pairs).__name__}, which would start again at every step: "
                "make svag.independent_pairs(loader) once, before the loop"
            )

        def substep(done: int) -> Tensor:
            return self._update(loss_fn, *self._next_pair(pairs, done))

        def all_substeps() -> Tensor:
            return torch.stack([substep(done) for done in range(self.ell)]).mean()

        if self._atomic:
            return self._transaction(all_substeps, whole=True)
        return torch.stack([self._transaction(partial(substep, done)) for done in range(self.ell)]).mean()

    def substep(self, loss_fn: LossFn, first: Batch, second: Batch = None) -> Tensor:
        """Take one SVAG update from two independent batches; `second` is not used when its weight is 0.

        The primitive under `step`, for loops that need to see every sub-step. Call schedulers, evaluation and the like
        when `boundary` is True.
        """
        self._refuse_closed()
        refuse_swapped(loss_fn, first)
        return self._transaction(partial(self._update, loss_fn, first, second))

    def state_dict(self) -> dict[str, Any]:
        """Where the run is. Save it next to the state of the model, the optimizer and the sampler."""
        return {
            "ell": self.ell,
            "split": self.split,
            "momentum_limit": self.momentum_limit,
            "clock": self._clock.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called; the readings in `noise` are not part of it."""
        refuse_strange_state(state, self.state_dict())
        for name, mine in (("ell", self.ell), ("split", self.split), ("momentum_limit", self.momentum_limit)):
            if state[name] != mine:
                raise ValueError(f"the state was saved with {name}={state[name]}, but this svag.SVAG has {name}={mine}")
        self._clock.load_state_dict(state["clock"])

    def __repr__(self) -> str:
        return f"SVAG(ell={self.ell}, split={self.split}, effective_step={self.effective_step}, time={self.time:g})"

    def _update(self, loss_fn: LossFn, first: Batch, second: Batch) -> Tensor:
        self._refined.begin(self._clock)
        self._refuse_cut_batch_norm()
        a, b = self._weights(first)
        if b == 0:
            if self._noise:
                raise ValueError(
                    f"track_noise needs the second batch, whose weight is 0 for ell={self.ell}, split={self.split} and "
                    f"population={self._population}: choose another ell or split"
                )
            self.optimizer.zero_grad()
            loss, _ = self._over_ranks(self._add_gradient(a, loss_fn, first, synchronise=True), first)
        else:
            check_pair(first, second)
            self.optimizer.zero_grad()
            # .grad = a ∇L_γ1 + b ∇L_γ2
            first_loss = self._add_gradient(a, loss_fn, first, synchronise=self._noise is not None)
            if self._noise:
                self._over_ranks(first_loss, first)
                self._noise.keep_first(trained_parameters(self.optimizer))
            second_loss = self._add_gradient(b, loss_fn, second, synchronise=True)
            loss, examples = self._over_ranks((first_loss + second_loss) / 2, first)
            if self._noise:
                size = self._run_batch_size(first) if examples is None else examples * self.split
                self._measure(self._noise, (a, b), size)
        if self._check_finite and not self._add_gradient.all_finite(loss):
            raise FloatingPointError(
                f"the loss is not finite in effective step {self.effective_step}: the step was not taken, lower the "
                "learning rate or look at the batch"
            )
        after = replace(self._clock)
        after.tick()
        with Uninterrupted():
            self._refined.step(partial(self._count, after))  # SGD: x ← x − (η/l) .grad
        return loss

    def _weights(self, batch: Batch) -> tuple[float, float]:
        if self._population is None or self.split == 1:
            return self._independent_weights
        return finite_population_weights(
            self.ell, self.split, batch_size=self._run_batch_size(batch), population=self._population
        )

    def _run_batch_size(self, batch: Batch) -> int:
        """B of the SGD run: every batch here is one of `split` parts of it, and every rank has its share."""
        examples = batch_size_of(batch) * self.split * self._add_gradient.ranks
        if self._group.size == 1:
            return examples
        device = trained_parameters(self.optimizer)[0].device
        return sum(row[0] for row in self._group.gathered([examples], device))

    def _over_ranks(self, loss: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Average `.grad` and the loss over the shares of all ranks; with several, also count their examples.

        The two batches of a pair have the same size on a rank, so one message is enough for their weighted sum.
        """
        if self._group.size == 1:
            return loss, None
        found = self._group.average_gradients(trained_parameters(self.optimizer), loss, batch_size_of(batch))
        return found.loss, found.weight

    def _measure(self, noise: PairNoise, weights: tuple[float, float], batch_size: int | Tensor) -> None:
        trained = trained_parameters(self.optimizer)
        noise.measure(
            trained,
            weights,
            batch_size=batch_size,
            step=self.effective_step,
            settings=replace(settings_of(self.optimizer, trained), lr=self._clock.lr),
            velocity=velocities(self.optimizer, trained),
        )

    def _transaction(self, take: Callable[[], Tensor], *, whole: bool = False) -> Tensor:
        """Undo everything unless the update is applied, or with `whole`, unless `take` finishes."""
        clock, before = replace(self._clock), Before(self._model, self.optimizer, weights=whole)
        self._whole, self._committed = whole, False
        try:
            loss = take()
            if whole:
                with Uninterrupted():
                    self._commit()
        except BaseException:

            def undo() -> None:
                if not self._committed:
                    before.restore()
                    self._clock = clock
                    if self._noise:
                        self._noise.settle(taken=False)
                self.optimizer.zero_grad()

            completed(undo)
            raise
        return loss

    def _count(self, after: Clock) -> None:
        """The weights have moved: from here on, an error or an interrupt leaves this sub-step taken and counted."""
        self._clock = after
        if not self._whole:
            self._commit()

    def _commit(self) -> None:
        try:
            if self._noise:
                self._noise.settle(taken=True)
        finally:
            self._committed = True

    def _next_pair(self, pairs: Iterator[tuple[Batch, Batch]], done: int) -> tuple[Batch, Batch]:
        pair: object = next(pairs, None)
        if pair is None:
            raise ValueError(
                f"pairs ended after {done} of the {self.ell} pairs of an effective step, "
                f"{'which was not taken' if self._atomic or not done else f'which was left after sub-step {done}'}: "
                "give an endless iterator, such as svag.independent_pairs over a svag.BatchSampler"
            )
        if not isinstance(pair, tuple) or len(pair) != 2:  # not a list, which is how a DataLoader returns one batch
            raise ValueError(
                f"pairs must yield two batches at a time as a tuple, got {type(pair).__name__}: "
                "svag.independent_pairs(loader) makes pairs"
            )
        return pair[0], pair[1]

    def _refuse_closed(self) -> None:
        if not self._open:
            raise RuntimeError("this svag.SVAG is not open: step inside `with svag.SVAG(...) as sim:`")

    def _refuse_cut_batch_norm(self) -> None:
        if self._cut and (layers := batch_norms(self._model)):
            raise ValueError(
                f"{type(layers[0]).__name__} normalises by the whole batch, which split and chunks would cut: "
                "use split=1 and chunks=1, or GroupNorm"
            )
