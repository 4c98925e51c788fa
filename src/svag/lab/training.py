"""What is trained and on what: a network, its optimizer, the data, and the two forms of the loss.

The data of a spec, and what a spec alone cannot know about it.

What is trained and on what: a network, its optimizer, the data, and the two forms of the loss.
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
from svag.lab.streams import Batch, stream
from svag.records.fields import SpecError
from svag.records.parts import DataSpec
from svag.records.spec import RunSpec, check_spec


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


# A few images are enough to see that a network takes them; two at least, for BatchNorm.
_TRIAL = 4


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

    def loss(self, batch: Batch) -> Tensor:
        """The mean loss of a batch; with several ranks, the mean over them is: each looks at its share."""
        images, labels = batch
        share, weight = self.ranks.share(len(labels)), self.ranks.weight(len(labels))
        loss = self.whole_loss((images[share], labels[share]))
        return loss if weight == 1 else weight * loss

    def whole_loss(self, batch: Batch) -> Tensor:
        """The mean loss of a batch that this rank has for itself."""
        images, labels = batch
        return nn.functional.cross_entropy(self.model(images), labels)

    def losses(self, batch: Batch) -> Tensor:
        """The loss of every example of a batch; with several ranks, times their number, for they are averaged."""
        images, labels = batch
        losses = nn.functional.cross_entropy(self.model(images), labels, reduction="none")
        return losses if self.ranks.size == 1 else self.ranks.size * losses

    def average_gradients(self) -> None:
        """Put into `.grad` the gradient of the whole batch, from the shares of all ranks."""
        if self.ranks.size > 1:
            self.ranks.average_gradients([p for group in self.optimizer.param_groups for p in group["params"]])

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
