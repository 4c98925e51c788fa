"""Building what a spec describes: data, network, optimizer and loss, and the ranks that share them.

The checks here need more than the spec: whether it fits its data, and whether the ranks can share its batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from svag.lab.data.load import DataSet, load_data, load_text
from svag.lab.networks.architectures import build_transformer
from svag.lab.networks.build import build_model, lay_out, memory_layout
from svag.lab.networks.own import check_network
from svag.lab.specs.fields import SpecError, shown
from svag.lab.specs.optimizers import AdamOptimizer, AdamwOptimizer, SgdOptimizer
from svag.lab.specs.parts import FULL_PASS, DataSpec, InRunProbe
from svag.lab.specs.spec import RunSpec, check_spec, cuts_batches, smallest_batch
from svag.lab.specs.text import TextSpec, TransformerSpec
from svag.lab.training.ranks import ALONE, Ranks
from svag.lab.training.streams import LabelledBatch, stream
from svag.noise.optimizer import trained_parameters
from svag.noise.parameters import batch_norms

# Number of images on which a network is tried; BatchNorm needs at least two.
_TRIAL = 4


def load_inputs(data: DataSpec | TextSpec, data_dir: str | Path | None, device: torch.device) -> DataSet:
    """Load the data of a spec, downloading it if necessary."""
    if isinstance(data, TextSpec):
        return load_text(data.name, data.context, subset=data.subset, device=device)
    return load_data(data.name, path=data.path, data_dir=data_dir, subset=data.subset, pool=data.pool, device=device)


def check_inputs(spec: RunSpec, data: DataSet) -> None:
    """Refuse a spec that does not fit its data: a batch larger than the data set, or images too small to be shifted."""
    check_spec(spec, len(data.train_x))
    if spec.data.augment is None or not spec.data.augmented:
        return
    side = min(data.image_size)
    if side == 1:
        raise SpecError("data.augment", "shifts and flips images, and this data set has vectors: set it to false")
    if spec.data.augment.pad >= side:
        raise SpecError("data.augment.pad", f"must be smaller than the {side} pixels of an image")


def cross_entropy(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """The loss of a batch, with one term per image, or one per character of a text."""
    return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction=reduction)


@dataclass(frozen=True, eq=False)
class Training:
    """A network with its optimizer and data, and the spec that they were made from.

    Attributes:
        spec: the spec.
        data: the data, on the device.
        model: the network.
        optimizer: its optimizer.
        forward: what losses call: the model itself, or its compiled form.
        ranks: the ranks that share every batch.
    """

    spec: RunSpec
    data: DataSet
    model: nn.Module
    optimizer: Optimizer
    forward: Callable[[Tensor], Tensor]
    ranks: Ranks = ALONE

    @property
    def examples(self) -> int:
        """Number of training examples."""
        return len(self.data.train_x)

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that are trained."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    @property
    def population(self) -> int | None:
        """Number of training examples if batches are drawn without replacement; None if that makes no difference."""
        distinct = self.spec.sampling != "with_replacement" and self.spec.batch_size < self.examples
        return self.examples if distinct else None

    def loss(self, batch: LabelledBatch) -> Tensor:
        """The mean loss of a batch, all of it on this rank."""
        inputs, labels = batch
        return cross_entropy(self.forward(inputs), labels)

    def losses(self, batch: LabelledBatch) -> Tensor:
        """The loss of every example of a batch."""
        inputs, labels = batch
        losses = cross_entropy(self.forward(inputs), labels, reduction="none")
        return losses if labels.dim() == 1 else losses.view_as(labels).mean(dim=1)

    def share(self, batch: LabelledBatch, parts: int | None = None) -> LabelledBatch:
        """This rank's examples of a batch; whole parts of it, if the batch consists of equal parts."""
        if self.ranks.size == 1:
            return batch
        inputs, labels = batch
        size = 1 if parts is None else len(labels) // parts
        mine = self.ranks.share(len(labels) // size)
        rows = slice(mine.start * size, mine.stop * size)
        return inputs[rows], labels[rows]

    def shared_loss(self, batch: LabelledBatch) -> Tensor:
        """The loss of this rank's share of a batch, weighted so that the mean over ranks is the mean loss."""
        weight = self.ranks.weight(len(batch[1]))
        loss = self.loss(self.share(batch))
        return loss if weight == 1 else weight * loss

    def average_gradients(self, loss: Tensor, examples: int) -> Tensor:
        """Average `.grad` over the shares of all ranks, and return the loss of the whole batch."""
        if self.ranks.size == 1:
            return loss
        return self.ranks.group.average_gradients(trained_parameters(self.optimizer), loss, examples).loss

    def clip_gradients(self) -> None:
        """Clip the gradient of the whole batch to the spec's `clip_norm`, if there is one."""
        if self.spec.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(trained_parameters(self.optimizer), self.spec.clip_norm)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the optimizer."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def prepare(spec: RunSpec, data: DataSet, ranks: Ranks = ALONE) -> Training:
    """Build the network of a spec, initialised from its seed, and its optimizer."""
    try:
        model = _network(spec, data)
    except SpecError:
        raise
    except ValueError as error:
        raise SpecError("model.arch", " ".join(str(error).split())) from error
    layout = memory_layout(model, data.device)
    model, data = lay_out(model, layout), data.laid_out(layout)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.train()
    return Training(spec, data, model, _optimizer(spec, trained), compiled(model) if spec.compile else model, ranks)


def compiled(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The compiled form of a network; the network itself and the names of its weights do not change.

    Every batch size has its own graph. A graph shared by several sizes would depend on which came first, and so would
    the last bits of a run that was stopped and continued. Evaluation, which uses other sizes, is not compiled.
    """
    found: Callable[[Tensor], Tensor] = torch.compile(model, dynamic=False)
    return found


def _optimizer(spec: RunSpec, trained: list[nn.Parameter]) -> Optimizer:
    """The optimizer of a spec, in the form that is fastest on a CPU; another form would change the last bits."""
    lr, decay = spec.lr, spec.weight_decay
    match spec.optimizer:
        case SgdOptimizer(momentum=momentum):
            return SGD(trained, lr=lr, momentum=momentum, weight_decay=decay)
        case AdamOptimizer(betas=betas, eps=eps):
            return Adam(trained, lr=lr, betas=betas, eps=eps, weight_decay=decay, fused=True)
        case AdamwOptimizer(betas=betas, eps=eps):
            return AdamW(trained, lr=lr, betas=betas, eps=eps, weight_decay=decay, fused=True)
    return RMSprop(trained, lr=lr, alpha=spec.optimizer.alpha, eps=spec.optimizer.eps, weight_decay=decay, foreach=True)


def _network(spec: RunSpec, data: DataSet) -> nn.Module:
    generator = stream(spec.seed, "first weights")
    if isinstance(spec.model, TransformerSpec):
        return build_transformer(spec.model, data.num_classes, data.in_channels, generator).to(data.device)
    model = build_model(
        spec.model.arch,
        norm=spec.model.norm,
        width=spec.model.width,
        in_channels=data.in_channels,
        num_classes=data.num_classes,
        scale_invariant=spec.model.scale_invariant,
        image_size=data.image_size,
        generator=generator,
    ).to(data.device)
    check_network(model, data.train_x[:_TRIAL], data.num_classes, scale_invariant=spec.model.scale_invariant)
    if spec.model.init_scale != 1:
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.mul_(spec.model.init_scale)
    return model


def pick_device(name: str) -> torch.device:
    """The device of `auto`, `cpu` or `cuda`.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    given: object = name
    if not isinstance(given, str) or given not in {"auto", "cpu", "cuda"}:
        raise ValueError(f"device must be auto, cpu or cuda, got {shown(name)}")
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
    # SyncBatchNorm synchronises in every forward pass, so a rank with one more part would wait forever
    if parts % ranks.size and any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
        raise SpecError(
            "probe.parts",
            f"SyncBatchNorm needs equally many parts in each of {ranks.size} processes, got {parts} in all: use a "
            f"multiple of {ranks.size}",
        )


def note_on_batch_norm(training: Training) -> str:
    """A note for several ranks and a network with BatchNorm; empty otherwise."""
    ranks = training.ranks
    if ranks.size == 1 or not local_batch_norms(training.model):
        return ""
    return (
        f"Note: BatchNorm normalises by the examples of each of the {ranks.size} processes, not by the whole batch, so "
        "this is not the run of one process: see docs/cluster.md for synchronised statistics."
    )


def local_batch_norms(model: nn.Module) -> list[nn.Module]:
    """BatchNorm modules whose statistics are those of one rank."""
    return [module for module in batch_norms(model) if not isinstance(module, nn.SyncBatchNorm)]
