"""Whether a loss is a mean over examples: only then do the parts of a batch have the gradient of the whole."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from svag.noise.batches import gradients_of, mean_loss
from svag.noise.parameters import inner_product, square_norm
from svag.noise.throughput import out_of_memory
from svag.noise.undisturbed import undisturbed

Batch = TypeVar("Batch")

# Gradients of the parts and of the whole batch that differ by more than this, relative to the whole, are not the same.
TOLERANCE = 0.01
# They may always differ by this many times the rounding error of the gradient: half precision is not accurate to 1%.
_ROUNDING = 10.0
# A factor on the loss that is not a power of two, so that every number is rounded differently.
_OTHER_ROUNDING = 0.7
# The whole gradient of a sum is `parts` times as long as that of the parts, however large the noise of each example. Of
# a mean it is as long, or √parts times if a batch has noise in common: this power of `parts` is between them.
_BETWEEN = 0.75
# With a GradScaler, losses are scaled by this: enough for half precision, and far from an overflow.
_SCALE = 1024.0


class LossKind(IntEnum):
    """What the gradients of a batch and of its parts say about a loss; from SUM on, parts would change training."""

    MEAN = 0
    NOT_FINITE = 1
    RANDOM = 2
    OUT_OF_MEMORY = 3
    FAILED = 4
    SUM = 5
    UNEQUAL_WEIGHTS = 6
    ACROSS_EXAMPLES = 7


@dataclass(frozen=True)
class LossFound:
    """What `check_loss` found.

    Attributes:
        kind: the answer.
        parts: in how many parts the batch was cut.
        difference: |whole − parts| / |whole|, of the gradients.
        ratio: the gradient of the whole batch over that of the parts, along the latter.
        error: what the loss raised, if it failed.
    """

    kind: LossKind
    parts: int
    difference: float = 0.0
    ratio: float = 1.0
    error: str = ""

    @property
    def refused(self) -> bool:
        """Whether training in parts would differ from the training that was asked for."""
        return self.kind >= LossKind.SUM

    def __str__(self) -> str:
        off = f"the gradient computed in {self.parts} parts is off by {self.difference:.0%}"
        unchecked = "whether loss_fn is a mean over examples was not checked, because"
        skip = "check_loss=False skips this check"
        return {
            LossKind.MEAN: "loss_fn is a mean over examples",
            LossKind.NOT_FINITE: f"{unchecked} the gradients of the first steps are not finite; {skip}",
            LossKind.RANDOM: f"{unchecked} it draws random numbers even with dropout off: make sure that it is; {skip}",
            LossKind.OUT_OF_MEMORY: f"{unchecked} the batch does not fit in memory as a whole; {skip}",
            LossKind.FAILED: f"{unchecked} in eval mode it raised {self.error}; {skip}",
            LossKind.SUM: (
                f"loss_fn is a sum over examples, not their mean (the gradient of the whole batch is {self.ratio:.3g} "
                f"times the mean over its {self.parts} parts): divide the loss by the number of examples in its batch"
            ),
            LossKind.UNEQUAL_WEIGHTS: (
                f"loss_fn does not weight all examples alike (padding, ignore_index or class weights do that), so {off}"
                ": pass weights= to probe.backward, the number of tokens or the total weight of each example"
            ),
            LossKind.ACROSS_EXAMPLES: (
                f"loss_fn compares the examples of a batch with each other, as contrastive losses do, so {off}: "
                "measure with probe.micro_batch() in a loop that accumulates, or with svag.measure_noise on whole "
                "batches (check_loss=False trains in parts all the same)"
            ),
        }[self.kind]


class NotAMean(ValueError):  # noqa: N818  # named after what it says of a loss
    """The parts of a batch do not have the gradient of the whole; `found` says why."""

    def __init__(self, found: LossFound, said: str = "") -> None:
        super().__init__(said or str(found))
        self.found = found


def check_loss(
    model: nn.Module,
    loss_fn: Callable[[Batch], Tensor],
    batch: Batch,
    parts: Sequence[tuple[Batch, float]],
    scaled: bool = False,
) -> LossFound:
    """Compare the gradient of a batch with the weighted sum of its parts' gradients, and leave no trace.

    Dropout is off and BatchNorm in eval mode, so that both are gradients of the same function; a loss that fails in
    eval mode is tried in the mode it trains in. It costs a forward and a backward pass of the batch, another one in
    parts, and for that time the memory of two gradients; compiled models run uncompiled, since other sizes would make
    them compile again. Generators of the loss's own cannot be put back. Nothing is raised: a loss that fails here may
    work in the step, and if it fails in the step as well, that error is raised there.

    Args:
        model: the model that trains.
        loss_fn: takes a batch, returns what should be its mean loss.
        batch: a whole batch.
        parts: the same in parts, each with its weight; the weights add up to 1.
        scaled: a GradScaler is used, because gradients in half precision would vanish.
    """
    found = None
    for evaluated in (True, False):
        try:
            with undisturbed(model), _plain(model, evaluated):
                trained = [p for p in model.parameters() if p.requires_grad]
                tried = _compare(trained, loss_fn, batch, parts, scaled, alike=evaluated)
                return found if found is not None and tried.kind is LossKind.RANDOM else tried
        except Exception as error:
            kind = LossKind.OUT_OF_MEMORY if out_of_memory(error) else LossKind.FAILED
            found = found or LossFound(kind, len(parts), error=f"{type(error).__name__}: {error}"[:200])
    assert found is not None
    return found


def _compare(
    trained: Sequence[nn.Parameter],
    loss_fn: Callable[[Batch], Tensor],
    batch: Batch,
    parts: Sequence[tuple[Batch, float]],
    scaled: bool,
    *,
    alike: bool,
) -> LossFound:
    """Find the kind of a loss; unless whole and parts are `alike` but for their size, only tell a mean from a sum."""

    def gradient(examples: Batch, factor: float = 1.0) -> list[Tensor]:
        loss = mean_loss(loss_fn, examples) * (factor * (_SCALE if scaled else 1.0))
        return [g.to(torch.promote_types(g.dtype, torch.float32)) for g in gradients_of(loss, trained)]

    def found(kind: LossKind) -> LossFound:
        return LossFound(kind, len(parts), difference, ratio)

    whole, together = gradient(batch), [torch.zeros_like(p, dtype=torch.float32) for p in trained]
    for part, weight in parts:
        together = [one + weight * other for one, other in zip(together, gradient(part), strict=True)]
    length, square = _norm(whole), float(square_norm(together))
    difference = _norm(_minus(whole, together)) / length if length else float(square > 0)
    ratio = float(inner_product(whole, together)) / square if square else 0.0
    if not (math.isfinite(difference) and math.isfinite(ratio)):
        difference, ratio = 0.0, 1.0
        return found(LossKind.NOT_FINITE)
    if difference <= TOLERANCE:
        return found(LossKind.MEAN)
    repeated = gradient(batch)
    if not alike or _norm(_minus(whole, repeated)) > TOLERANCE * length:
        other = _norm(repeated)
        ratio = min(length, other) / math.sqrt(square) if square else 1.0
        clear = float(inner_product(whole, repeated)) > length * other / 2  # there is more than noise
        return found(LossKind.SUM if clear and ratio > len(parts) ** _BETWEEN else LossKind.RANDOM)
    again = [tensor / _OTHER_ROUNDING for tensor in gradient(batch, _OTHER_ROUNDING)]
    allowed = max(TOLERANCE, _ROUNDING * _norm(_minus(whole, again)) / length) if length else TOLERANCE
    if difference <= allowed:
        return found(LossKind.MEAN)
    if _norm(_minus(whole, [len(parts) * tensor for tensor in together])) <= allowed * length:
        return found(LossKind.SUM)
    # if the loss is a mean with unequal weights, the whole gradient is some other weighted sum of the parts' gradients
    each = torch.stack([torch.cat([g.reshape(-1).cpu() for g in gradient(part)]) for part, _ in parts], dim=1).double()
    target = torch.cat([g.reshape(-1).cpu() for g in whole]).double()
    rest = target - each @ torch.linalg.lstsq(each.T @ each, each.T @ target, driver="gelsd").solution
    unequal = float(rest.norm()) <= allowed * length
    return found(LossKind.UNEQUAL_WEIGHTS if unequal else LossKind.ACROSS_EXAMPLES)


def _minus(one: Sequence[Tensor], other: Sequence[Tensor]) -> list[Tensor]:
    return [a - b for a, b in zip(one, other, strict=True)]


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(float(square_norm(tensors)))


@contextmanager
def _plain(model: nn.Module, evaluated: bool) -> Iterator[None]:
    """Run without compilation and, if `evaluated`, without dropout and normalisation by the batch.

    `undisturbed` puts the modes back.
    """
    if evaluated:
        model.eval()
    # without running statistics, BatchNorm would normalise by the batch in eval mode too
    bare = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.running_mean is None]
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        try:
            for module in bare:
                like = next(module.parameters(), next(model.parameters()))
                module.running_mean = torch.zeros(module.num_features, dtype=like.dtype, device=like.device)
                module.running_var = torch.ones_like(module.running_mean)
            yield
        finally:
            for module in bare:
                module.running_mean = module.running_var = None
