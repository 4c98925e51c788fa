"""What is trained and on what: the data of a spec, its network, its optimizer, its loss, and the ranks that share them.

Here is also what a spec alone cannot know: whether it fits its data, and whether so many ranks can share its batches.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import SGD

from svag.lab.data.load import DataSet, load_data
from svag.lab.models.build import build_model, lay_out, memory_layout
from svag.lab.models.own import check_network
from svag.lab.ranks import ALONE, Ranks
from svag.lab.streams import LabelledBatch, stream
from svag.noise.optimizer import trained_parameters
from svag.noise.parameters import batch_norms
from svag.records.fields import SpecError
from svag.records.parts import FULL_PASS, DataSpec, InRunProbe
from svag.records.spec import RunSpec, check_spec, cuts_batches, smallest_batch

# A few images are enough to see that a network takes them; two at least, for BatchNorm.
_TRIAL = 4


def load_inputs(data: DataSpec, data_dir: str | Path | None, device: torch.device) -> DataSet:
    """Load what a spec names, fetching it when it is not there."""
    return load_data(data.name, path=data.path, data_dir=data_dir, subset=data.subset, pool=data.pool, device=device)


def check_inputs(spec: RunSpec, data: DataSet) -> None:
    """Refuse a spec that does not fit its data: too large a batch, images too small to be shifted."""
    check_spec(spec, len(data.train_x))
    if spec.data.augment is None or not spec.data.augmented:
        return
    side = min(data.image_size)
    if side == 1:
        raise SpecError("data.augment", "shifts and flips images, and this data set has vectors: set it to false")
    if spec.data.augment.pad >= side:
        raise SpecError("data.augment.pad", f"must be smaller than the {side} pixels of an image")


@dataclass(frozen=True, eq=False)
class Training:
    """A network with its optimizer and data, and the spec that they were made from."""

    spec: RunSpec
    data: DataSet
    model: nn.Module
    optimizer: SGD
    ranks: Ranks = ALONE

    @property
    def examples(self) -> int:
        """Number of training examples."""
        return len(self.data.train_x)

    @property
    def population(self) -> int | None:
        """Number of examples if those of a batch are distinct; None where that makes no difference."""
        distinct = self.spec.sampling != "with_replacement" and self.spec.batch_size < self.examples
        return self.examples if distinct else None

    def loss(self, batch: LabelledBatch) -> Tensor:
        """The mean loss of a batch that this rank has for itself."""
        images, labels = batch
        return nn.functional.cross_entropy(self.model(images), labels)

    def losses(self, batch: LabelledBatch) -> Tensor:
        """The loss of every example of a batch."""
        images, labels = batch
        return nn.functional.cross_entropy(self.model(images), labels, reduction="none")

    def share(self, batch: LabelledBatch, parts: int | None = None) -> LabelledBatch:
        """The examples of a batch that are this rank's; those of whole parts, if the batch comes in equal parts."""
        if self.ranks.size == 1:
            return batch
        images, labels = batch
        size = 1 if parts is None else len(labels) // parts
        mine = self.ranks.share(len(labels) // size)
        rows = slice(mine.start * size, mine.stop * size)
        return images[rows], labels[rows]

    def shared_loss(self, batch: LabelledBatch) -> Tensor:
        """A loss whose mean over the ranks is the mean loss of the batch: each rank looks at its share."""
        weight = self.ranks.weight(len(batch[1]))
        loss = self.loss(self.share(batch))
        return loss if weight == 1 else weight * loss

    def average_gradients(self, loss: Tensor, examples: int) -> Tensor:
        """Put into `.grad` the gradient of the whole batch, from the shares of all ranks, and return its loss."""
        if self.ranks.size == 1:
            return loss
        return self.ranks.group.average_gradients(trained_parameters(self.optimizer), loss, examples).loss

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the optimizer."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def prepare(spec: RunSpec, data: DataSet, ranks: Ranks = ALONE) -> Training:
    """Build the network of a spec, with its first weights from the spec's seed, and its optimizer."""
    try:
        model = _network(spec, data)
    except ValueError as error:
        raise SpecError("model.arch", " ".join(str(error).split())) from error
    layout = memory_layout(model, data.device)
    model, data = lay_out(model, layout), data.laid_out(layout)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = SGD(trained, lr=spec.lr, momentum=spec.optimizer.momentum, weight_decay=spec.weight_decay)
    return Training(spec, data, model.train(), optimizer, ranks)


def _network(spec: RunSpec, data: DataSet) -> nn.Module:
    model = build_model(
        spec.model.arch,
        norm=spec.model.norm,
        width=spec.model.width,
        in_channels=data.in_channels,
        num_classes=data.num_classes,
        scale_invariant=spec.model.scale_invariant,
        image_size=data.image_size,
        generator=stream(spec.seed, "first weights"),
    ).to(data.device)
    check_network(model, data.train_x[:_TRIAL], data.num_classes, scale_invariant=spec.model.scale_invariant)
    return model


def pick_device(name: str) -> torch.device:
    """The device of `auto`, `cpu` or `cuda`.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    if name not in {"auto", "cpu", "cuda"}:
        raise ValueError(f"device must be auto, cpu or cuda, got {name!r}")
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ValueError("device is cuda, but this torch sees no CUDA device: use cpu or auto")
    return torch.device("cuda" if available and name != "cpu" else "cpu")


def refuse_small_shares(training: Training) -> None:
    """Refuse more ranks than there are examples, or parts of a measured batch, to share."""
    spec, ranks = training.spec, training.ranks
    size = training.examples if isinstance(spec.process, FULL_PASS) else smallest_batch(spec)
    if size < ranks.size:
        raise SpecError(
            "batch_size", f"{ranks.size} processes cannot share a batch of {size} examples: start at most {size}"
        )
    if local_batch_norms(training.model) and size < 2 * ranks.size:
        raise SpecError(
            "model.norm",
            f"batch norm needs two examples in each of {ranks.size} processes, and a batch has {size}: start at most "
            f"{size // 2}, or use group",
        )
    if isinstance(spec.probe, InRunProbe) and cuts_batches(spec):
        _refuse_parts(spec.probe.parts, ranks, training.model)


def _refuse_parts(parts: int, ranks: Ranks, model: nn.Module) -> None:
    if parts < ranks.size:
        raise SpecError(
            "probe.parts",
            f"{ranks.size} processes cannot share {parts} parts: start at most {parts}, or measure more parts",
        )
    # its ranks meet in every forward pass: one with a part more would wait for the others for ever
    if parts % ranks.size and any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
        raise SpecError(
            "probe.parts",
            f"SyncBatchNorm needs equally many parts in each of {ranks.size} processes, got {parts} in all: use a "
            f"multiple of {ranks.size}",
        )


def note_on_batch_norm(training: Training) -> str:
    """What to tell a user whose network has BatchNorm; empty for others."""
    ranks = training.ranks
    if ranks.size == 1 or not local_batch_norms(training.model):
        return ""
    return (
        f"Note: BatchNorm normalises by the examples of each of the {ranks.size} processes, not by the whole batch, so "
        "this is not the run of one process: see docs/data_parallel.md for synchronised statistics."
    )


def local_batch_norms(model: nn.Module) -> list[nn.Module]:
    """BatchNorm modules whose statistics are those of one rank."""
    return [module for module in batch_norms(model) if not isinstance(module, nn.SyncBatchNorm)]
