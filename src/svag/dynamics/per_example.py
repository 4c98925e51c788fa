"""Whether an example has a loss of its own: what a weighted pass over the data takes for granted."""

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.data import DataLoader, IterableDataset

from svag.dynamics.batch import Batch
from svag.dynamics.gradient_pass import LossFn
from svag.noise.batches import batch_size_of, split, tensors_of
from svag.noise.refusals import batch_norms


def refuse_layers(model: nn.Module) -> None:
    """Refuse a model with layers that mix examples or draw random numbers."""
    if layers := batch_norms(model):
        raise ValueError(
            f"{type(layers[0]).__name__} normalises by the batch, so an example has no loss of its own: "
            "use GroupNorm, or eval() it"
        )
    for name, module in model.named_modules():
        if isinstance(module, _DropoutNd) and module.training and module.p > 0:
            raise ValueError(
                f"{name} ({type(module).__name__}) draws a new mask in every pass, so the pass is not of one function: "
                "set its p to 0 or eval() it"
            )


def per_example_losses(losses_fn: LossFn, chunk: Batch) -> Tensor:
    """Losses of a chunk, one for every example, or refuse."""
    losses: object = losses_fn(chunk)
    if not isinstance(losses, Tensor) or losses.shape != (batch_size_of(chunk),):
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(
            f"losses_fn must return one loss for each of the {batch_size_of(chunk)} examples of a chunk, got {shape}: "
            "use reduction='none' and average over all but the first dimension"
        )
    return losses


def refuse_random(losses_fn: LossFn, chunk: Batch) -> None:
    """Evaluate one chunk twice, and its first example alone, and refuse losses that differ."""
    with torch.no_grad():
        once, again = per_example_losses(losses_fn, chunk), per_example_losses(losses_fn, chunk)
        if not _alike(once, again):
            raise ValueError(
                "losses_fn gave two answers for the same chunk, so the pass is not of one function: "
                "switch off random augmentation (augment once, before training) and dropout"
            )
        alone = split(chunk, batch_size_of(chunk))[0]
        if not _alike(once[:1], per_example_losses(losses_fn, alone)):
            raise ValueError(
                "the loss of an example depends on the other examples of its chunk, so it has none of its own: "
                "use GroupNorm or LayerNorm and a loss that looks at one example at a time"
            )


def refuse_random_dataset(chunks: object) -> None:
    """Refuse a DataLoader whose dataset gives two versions of its first example."""
    if not isinstance(chunks, DataLoader) or isinstance(chunks.dataset, IterableDataset):
        return
    once, again = tensors_of(chunks.dataset[0]), tensors_of(chunks.dataset[0])
    if not all(torch.equal(one, other) for one, other in zip(once, again, strict=True)):
        raise ValueError(
            "the dataset gave two versions of its first example: switch off random augmentation "
            "(augment once, before training), because noisy gradient descent needs the same data in every pass"
        )


def _alike(one: Tensor, other: Tensor) -> bool:
    tolerance = math.sqrt(torch.finfo(one.dtype).eps)
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
