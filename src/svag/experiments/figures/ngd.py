"""The figures that put Gaussian noise in the place of SGD's (sec:app_ngd_exps), as rows."""

from dataclasses import dataclass

from svag.experiments.figures.bases import CIFAR, FASHION, PLAIN, Edits, decays, network
from svag.experiments.ngd import Ngd, NgdPanel
from svag.records.spec import RunSpec

SEEDS = 3
INTERVALS = {"evaluate": {"every": 100}}  # train curves are averages over 100 steps

SMALL: Edits = {"data": {"name": "fashion-small", "subset": 2000}, "budget": 2500} | INTERVALS


def decayed_at(step: int) -> Edits:
    """×0.1 at an effective step, which is 80% of the budget: the paper does not print how long it went on."""
    return {"budget": step * 10 // 8, **decays(step)}


@dataclass(frozen=True)
class NgdRow:
    """A figure of one panel.

    Attributes:
        label: in the paper.
        title: what it shows.
        paper: name of the network and what it changes in the base.
        small: the same for a laptop.
        note: how this differs from the paper's.
    """

    label: str
    title: str
    paper: tuple[str, Edits]
    small: tuple[str, Edits]
    note: str

    def at_paper_size(self) -> Ngd:
        """The paper's own setting."""
        panels = _panel(CIFAR.edited(PLAIN | INTERVALS), *self.paper)
        return Ngd(title=self.title, label=self.label, size="paper", seeds=tuple(range(SEEDS)), panels=panels)

    def at_small_size(self) -> Ngd:
        """For a laptop."""
        panels = _panel(FASHION.edited(SMALL), *self.small)
        return Ngd(
            title=self.title,
            label=self.label,
            size="small",
            note=self.note,
            seeds=tuple(range(SEEDS)),
            panels=panels,
        )


def _panel(base: RunSpec, name: str, edits: Edits) -> tuple[NgdPanel]:
    return (NgdPanel(name=name, base=base.edited(edits)),)


_NOTE = "2,000 images of Fashion-MNIST at 14×14 for CIFAR-10, {}, the paper's schedule over {} steps"

ROWS = (
    NgdRow(
        "fig:ngd_sgd_accs",
        "NGD with matching covariance does what SGD does; GD does not",
        paper=(
            "PreResNet-32 4× GN",
            network("preresnet32", "group", 4) | {"batch_size": 125, "lr": 0.8} | decayed_at(24_000),
        ),
        small=("PreResNet-8 GN", {"data.pool": 2, "batch_size": 25, "lr": 0.4, "budget": 1500}),
        note="2,000 images of Fashion-MNIST at 7×7 for CIFAR-10, PreResNet-8 at half width for PreResNet-32 4×, B = 25 "
        "for 125, the paper's schedule over 1,500 steps",
    ),
    NgdRow(
        "fig:ngd_sgd_b500",
        "NGD does what SGD does at B = 500",
        paper=("PreResNet-32 GN", network("preresnet32", "group") | {"batch_size": 500, "lr": 3.2} | decayed_at(8_000)),
        small=("PreResNet-8 GN", network("preresnet8", "group", 0.25) | {"batch_size": 250, "lr": 0.8, "budget": 1250}),
        note=_NOTE.format("PreResNet-8 at a quarter of the width for PreResNet-32, B = 250 for 500", "1,250"),
    ),
    NgdRow(
        "fig:ngd_sgd_b125",
        "NGD does what SGD does at B = 125; GD does not",
        paper=(
            "PreResNet-32 GN",
            network("preresnet32", "group") | {"batch_size": 125, "lr": 0.8} | decayed_at(32_000),
        ),
        small=("PreResNet-8 GN", network("preresnet8", "group", 0.25) | {"batch_size": 125, "lr": 0.4}),
        note=_NOTE.format("PreResNet-8 at a quarter of the width for PreResNet-32", "2,500"),
    ),
    NgdRow(
        "fig:ngd_sgd_vgg",
        "NGD does what SGD does for VGG-16; GD does not",
        paper=("VGG-16 GN", network("vgg16", "group") | {"batch_size": 125, "lr": 0.8} | decayed_at(32_000)),
        small=("VGG-11 GN", network("vgg11", "group", 0.25) | {"batch_size": 125, "lr": 0.4, "budget": 2000}),
        note=_NOTE.format("VGG-11 at a quarter of the width for VGG-16", "2,000"),
    ),
)
