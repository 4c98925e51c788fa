"""Recorders of what a step adds to `.grad`, part by part, as the sums from which its reading is made.

The parts of a step are the micro-batches of one rank or of ranks that shard the model (`MicroBatches`), the
micro-batches of several ranks that share the batch (`SharedParts`), or those of every rank of a
DistributedDataParallel model (`svag.noise.group.DataParallelParts`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from weakref import ref

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.hooks import unserializable_hook

from svag.noise.batches import tensors_of
from svag.noise.group import DataParallelParts, Group, Shards
from svag.noise.optimizer import trained_parameters
from svag.noise.parameters import (
    LARGE_SCALE,
    FlatCopy,
    by_device,
    gradient_sums,
    is_sharded,
    on_this_rank,
    precise,
    refuse_sparse_gradients,
    refuse_stale,
    square_norm,
    total,
)
from svag.noise.pending import StepSums, sums_of_weights


class MicroBatches:
    """Collects the sums of a step from `.grad`, which is only read, never changed.

    A part's gradient is what `.grad` gained since the part before. That takes one vector of the size of the gradient
    and a few operations, however many parameters there are. In a sharded model every rank holds a shard of the gradient
    of all ranks together, and the ranks add up their sums when the step is closed.

    Args:
        parameters: those that are measured, by name.
        at_least: minimum number of parts per step; one gradient alone cannot tell signal from noise.
        shards: over which ranks the parameters are spread.
        model: which model they belong to, if it is sharded.
    """

    def __init__(
        self,
        parameters: dict[str, nn.Parameter],
        at_least: int = 2,
        shards: Shards | None = None,
        model: nn.Module | None = None,
    ) -> None:
        self._parameters, self._at_least, self._shards = list(parameters.values()), at_least, shards
        self._gained: list[_Gained] = []
        self._weights: list[float | None] = []
        self.scale = 1.0
        self._listening = True
        self._before: Tensor | float | None = None
        # one parameter that the loss uses tells whether gradients are zeroed; a sharded one has no such hook
        self._watched, look = self._parameters[-1:], self._before_pass()
        if model is None:
            self._handle = self._watched[0].register_hook(look)
        else:
            self._watched = self._parameters
            self._handle = model.register_forward_hook(partial(_call_before_pass, look))

    def listen(self, measured: bool) -> None:
        """Say whether the next step is measured: before one that is not, gradients may be left as they are."""
        self._listening = measured

    def _before_pass(self) -> Callable[[Tensor], None]:
        # the model must not keep an abandoned probe alive
        me = ref(self)

        def look(gradient: Tensor) -> None:
            recorder = me()
            if recorder is not None and recorder._listening and not recorder._weights:
                recorder._look()

        unserializable_hook(look)  # a model that is pickled for another process leaves the hook out
        return look

    def _look(self) -> None:
        """Before a backward pass adds to `.grad`, keep the least norm that it had before any pass of the first part.

        The first part may have several passes, and passes before it may belong to a step that is not measured.
        """
        gradients, least = [p.grad for p in self._watched if p.grad is not None], self._before
        if not gradients:
            self._before = 0.0
        elif not isinstance(least, float):
            square = self.whole(square_norm(gradients))
            self._before = square if least is None else torch.minimum(least, square)

    def _refuse_stale(self) -> None:
        """At the first micro-batch of a step, refuse gradients that were there before it."""
        if self._shards is None and self._watched[0].grad is None:  # the loss does not use it: watch another
            self._handle.remove()
            self._watched = [p for p in self._parameters if p.grad is not None][-1:]
            self._handle = self._watched[0].register_hook(self._before_pass())
        before, self._before = self._before, None
        refuse_stale(before if isinstance(before, Tensor) else None)

    def micro_batch(self, scale: float, weight: float | None = None) -> None:
        """Record a back-propagated micro-batch, of this `weight` in the step, with its loss multiplied by `scale`."""
        if self._parameters[0].grad is None and all(parameter.grad is None for parameter in self._parameters):
            reduced = "" if self._shards is None else ", with gradient synchronisation on for every micro-batch"
            raise ValueError(f"there is no gradient yet: call micro_batch() after backward(){reduced}")
        if not self._weights:
            self._refuse_stale()
        if not self._gained:
            self._gained = [_Gained(group, self._shards is not None) for group in by_device(self._parameters)]
        for gained in self._gained:
            gained.add_part(len(self._weights), scale)
        self._weights.append(weight)
        self.scale = scale

    def close(self, loss: Tensor | None = None, examples: int | None = None) -> StepSums:
        """Return the sums of the step and start the next one; `loss` and `examples` are those of this rank."""
        weights, scale, parts = self._weights, self.scale, len(self._weights)
        try:
            if parts < self._at_least:
                raise ValueError(
                    f"a step needs at least {self._at_least} micro-batches, got {parts}: call micro_batch() after each "
                    "one's backward()"
                )
            weighted = sums_of_weights(weights)
            found = [gained.sums(parts, scale) for gained in self._gained]
        finally:
            self.forget()
        product, norms = found[0] if len(found) == 1 and self._shards is None else self._together(found)
        return StepSums(
            product=product,
            norms=norms,
            # without weights each loss was divided by their number, so that .grad is the mean of the parts' gradients
            times=parts if weighted is None else 1,
            parts=parts,
            own_parts=parts,
            scaled=scale != 1.0,
            loss=loss,
            weights=None if weighted is None else norms.new_tensor(weighted),
        )

    def _together(self, found: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Combine the sums of several devices and of all shards: products and squares add up."""
        added = self.whole(total([torch.cat([product.view(1), norms.square()]) for product, norms in found]))
        return added[0], added[1:].sqrt()

    def skip(self, loss: Tensor, weight: float) -> Tensor:
        """End a step that is not measured, which counts as `weight` of all ranks' together; return its mean loss."""
        self.forget()
        return loss

    def whole(self, number: Tensor) -> Tensor:
        """Add up the sums of all shards."""
        return number if self._shards is None else self._shards.total(number)

    def forget(self) -> None:
        """Drop what was recorded since the last step."""
        self._weights, self.scale, self._before = [], 1.0, None

    def remove(self) -> None:
        """Stop recording, and take the hook off the model."""
        self._weights, self._gained = [], []
        self._handle.remove()


def _call_before_pass(look: Callable[[Tensor], None], model: nn.Module, given: object, output: object) -> None:
    """Let `look` be called before a backward pass through what a model has returned."""
    for tensor in tensors_of(output):
        if tensor.requires_grad:
            tensor.register_hook(look)


class _Gained:
    """What `.grad` has gained on one device since the last part, kept in one copy.

    After a backward pass the caches hold none of this data, so a probe costs as much as it has operations, especially
    different ones. Norms are therefore written straight to the rows from which the step is summed, and little else is
    done.
    """

    def __init__(self, parameters: list[nn.Parameter], sharded: bool) -> None:
        self._parameters, self._sharded = parameters, sharded
        copy = FlatCopy(on_this_rank(parameters))
        self._rows, self._views = copy.rows, copy.views
        # two rows that `sums` fills, and a row of norms for each part
        self._room = self._rows.new_zeros(2 + 8, len(self._rows))
        self._lines, self._used = list(self._room.unbind()), self._room

    def add_part(self, number: int, scale: float) -> None:
        """Take the norms of what was gained since the part before, or since the beginning of the step."""
        if number + 2 == len(self._lines):
            self._room = torch.cat([self._room, torch.zeros_like(self._room)])
            self._lines, self._used = list(self._room.unbind()), self._room
        norms, rows, views = self._lines[number + 2], self._rows, self._views
        present = [gradient for parameter in self._parameters if (gradient := parameter.grad) is not None]
        if len(present) < len(views):
            views = [
                view for view, parameter in zip(views, self._parameters, strict=True) if parameter.grad is not None
            ]
            if number == 0:
                rows.zero_()
        if self._sharded:
            present = on_this_rank(present)
        # no autograd here, even for gradients with a graph of their own (create_graph=True); cheaper than no_grad()
        with torch._C._AutoDispatchBelowAutograd():
            try:
                if number:
                    torch._foreach_sub_(views, present)  # minus the part
                    _norms_of(rows, scale, norms)
                torch._foreach_copy_(views, present)
            except RuntimeError:
                refuse_sparse_gradients(present)
                raise
            if not number:
                _norms_of(rows, scale, norms)
                if scale > LARGE_SCALE:
                    torch._foreach_copy_(views, present)

    def sums(self, parts: int, scale: float) -> tuple[Tensor, Tensor]:
        """⟨x, Σc_i⟩, and |x|, |Σc_i| and every |c_i|, of what the parts added, over `scale`; uses up the copy."""
        rows, views = self._rows, self._views
        weights: list[Tensor] = on_this_rank(self._parameters) if self._sharded else [*self._parameters]
        of_weights, of_sum = self._lines[:2]
        if len(self._used) != 2 + parts:
            self._used = self._room[: 2 + parts]
        with torch._C._AutoDispatchBelowAutograd():
            _norms_of(rows, scale, of_sum)
            torch._foreach_mul_(views, weights)
            product = rows.sum()  # torch adds up in pairs and nothing is subtracted, so single precision is enough
            if scale != 1.0 and scale <= LARGE_SCALE:
                product /= scale
            torch._foreach_copy_(views, weights)
            torch.linalg.vector_norm(rows, dim=1, out=of_weights)
        return product, torch.linalg.vector_norm(self._used, dim=1, dtype=precise(rows.device))


def _norms_of(rows: Tensor, scale: float, norms: Tensor) -> None:
    """Write the norms of the rows divided by `scale`; if it is large, divide the rows in place first."""
    if scale > LARGE_SCALE:
        rows /= scale
    torch.linalg.vector_norm(rows, dim=1, out=norms)
    if scale != 1.0 and scale <= LARGE_SCALE:
        norms /= scale


class SharedParts(MicroBatches):
    """Collects the sums of a step whose parts are spread over the ranks of a process group.

    Closing the step averages `.grad` over the ranks, in one message, and adds up Σ|g_i|² in double precision, in a
    second message of two numbers. Ranks may have different numbers of parts; all parts must have the same size.

    Args:
        parameters: those that are measured, by name.
        trained: all whose gradients are averaged.
        group: the ranks.
    """

    def __init__(self, parameters: dict[str, nn.Parameter], trained: Sequence[nn.Parameter], group: Group) -> None:
        super().__init__(parameters, at_least=1)
        self._trained, self._group = trained, group

    def micro_batch(self, scale: float, weight: float | None = None) -> None:
        """Record a micro-batch that was back-propagated on this rank, with its loss multiplied by `scale`."""
        if weight is not None:
            raise ValueError("ranks that share a batch (process_group) have parts of one size: leave out weight")
        super().micro_batch(scale)

    def close(self, loss: Tensor | None = None, examples: int | None = None) -> StepSums:
        """Average `.grad` over the ranks, return the sums of the step and start the next one."""
        scale, mine = self.scale, super().close()
        shared = self._group.average_gradients(
            self._trained,
            loss=torch.zeros(()) if loss is None else loss,
            weight=mine.own_parts if examples is None else examples,
            parts=mine.own_parts,
        )
        square, _, product = gradient_sums(self._parameters, scale)
        own = mine.norms[2:].square().sum() * mine.times**2
        # |g|² of the same gradient on all ranks: averaged, so that it is the same to the last bit
        sum_sq, ranks_sq = self._group.total(torch.stack([own, square.to(own)])).unbind()
        sq_sum = ranks_sq / self._group.size * shared.parts**2
        return StepSums(
            product=product,
            norms=torch.stack([mine.norms[0], sq_sum.sqrt(), sum_sq.sqrt()]),
            parts=shared.parts,
            own_parts=mine.own_parts,
            scaled=mine.scaled,
            loss=None if loss is None else shared.loss,
        )

    def skip(self, loss: Tensor, weight: float) -> Tensor:
        """Average `.grad` over the ranks, so that a step can be taken without being measured."""
        self.forget()
        return self._group.average_gradients(self._trained, loss, weight).loss


@dataclass(frozen=True)
class Recording:
    """How the steps of a model are recorded.

    Attributes:
        recorder: what records them.
        ranks: how many ranks have a share of every batch.
        first: whether this is the first of them.
        at_least: minimum number of parts per rank.
        shared: whether the ranks share the batch by `process_group`, in shares that may differ in size.
        group: the ranks, where each has the whole gradient; of a sharded model, this one alone.
        shards: those of a sharded model.
    """

    recorder: MicroBatches | DataParallelParts
    ranks: int = 1
    first: bool = True
    at_least: int = 2
    shared: bool = False
    group: Group = field(default_factory=lambda: Group(None))
    shards: Shards | None = None

    def of_first(self, number: int, device: torch.device) -> int:
        """Send what the first rank has chosen to all ranks, and return it."""
        return (self.shards or self.group).of_first(number, device)


def recording_of(
    model: nn.Module,
    parameters: dict[str, nn.Parameter],
    optimizers: Sequence[Optimizer],
    process_group: ProcessGroup | None = None,
) -> Recording:
    """Choose the recorder for how a model is trained: alone, sharded, wrapped, or by ranks that share the batch."""
    group = Group(process_group, model)
    if is_sharded(model.parameters()):
        if group.process_group is not None:
            raise ValueError("fully_shard averages the gradients by itself: leave out process_group")
        shards = Shards(parameters)
        return Recording(
            MicroBatches(parameters, shards=shards, model=model), shards.ranks, shards.is_first, shards=shards
        )
    if group.size > 1:
        # all parameters that the loss may reach, those of the optimizer first: their gradients are averaged
        trained = [parameter for optimizer in optimizers for parameter in trained_parameters(optimizer)]
        ids = {id(parameter) for parameter in trained}
        trained += [p for p in model.parameters() if p.requires_grad and id(p) not in ids]
        recorder = SharedParts(parameters, trained, group)
        return Recording(recorder, group.size, group.rank == 0, at_least=1, shared=True, group=group)
    if isinstance(model, DistributedDataParallel) and dist.get_world_size(model.process_group) > 1:
        ranks, rank = dist.get_world_size(model.process_group), dist.get_rank(model.process_group)
        together = Group(model.process_group)
        return Recording(DataParallelParts(model, parameters), ranks, rank == 0, at_least=1, group=together)
    return Recording(MicroBatches(parameters))
