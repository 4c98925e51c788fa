"""What a mere folder of runs asks: the kind of experiment and its panels, from the specs alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from svag.experiments.base import Compare, ComparePanel, Ladder, LadderPanel, Ngd, NgdPanel
from svag.experiments.runs import on_ladder
from svag.records.fields import SpecError
from svag.records.parts import GlsrSpec, NgdSpec, SgdSpec, SvagSpec
from svag.records.record import RunRecord
from svag.records.spec import RunSpec
from svag.theory.optimizers import MomentumLimit

# At so many batch sizes SVAG beside SGD is the SDE limit along a ladder; at fewer they are panels of a comparison.
_LADDER_WITH_SVAG = 3


@dataclass(frozen=True)
class _Family:
    """Specs that differ in process and seed, and in the batch size only along the linear rule."""

    specs: tuple[RunSpec, ...]

    @property
    def sizes(self) -> list[int]:
        return sorted({spec.batch_size for spec in self.specs})

    @property
    def kind(self) -> Literal["compare", "ladder", "ngd"] | None:
        """What it asks; None for SGD at one batch size, which asks nothing."""
        kinds = {spec.process.kind for spec in self.specs if not _is_sgd(spec)}
        if kinds & {"svag", "glsr"}:
            return "ladder" if len(self.sizes) >= _LADDER_WITH_SVAG else "compare"
        if kinds & {"ngd", "gd"}:
            return "ngd"
        return "ladder" if len(self.sizes) > 1 else None

    def base(self, size: int) -> RunSpec:
        """The SGD run at this batch size, or what it would be."""
        here = [spec for spec in self.specs if spec.batch_size == size]
        first = next((spec for spec in here if _is_sgd(spec)), here[0])
        return first.model_copy(update={"process": SgdSpec(), "seed": 0})

    def ells(self, size: int | None = None) -> tuple[int, ...]:
        here = [spec.process for spec in self.specs if size in (None, spec.batch_size) and not _is_sgd(spec)]
        return tuple(sorted({process.ell for process in here if isinstance(process, SvagSpec)}))

    def parts(self, size: int) -> tuple[int, ...]:
        here = [spec.process for spec in self.specs if spec.batch_size == size]
        return tuple(sorted({process.parts for process in here if isinstance(process, GlsrSpec)} - {1}))

    @property
    def svag(self) -> list[SvagSpec]:
        """The processes of the SVAG arms."""
        return [spec.process for spec in self.specs if isinstance(spec.process, SvagSpec) and not _is_sgd(spec)]

    def split(self) -> int:
        """The split of the SVAG arms, of which there may be only one."""
        splits = sorted({process.split for process in self.svag})
        if len(splits) > 1:
            shown = ", ".join(map(str, splits))
            raise SpecError("", f"the SVAG runs have split = {shown}, whose limits are approached differently: put "
                            "each split in a folder of its own")  # fmt: skip
        return splits[0] if splits else 1

    def limit(self) -> MomentumLimit | None:
        """The limit that the SVAG arms of a base with momentum follow, of which there may be only one."""
        limits = sorted({process.momentum_limit for process in self.svag if process.momentum_limit is not None})
        if len(limits) > 1:
            shown = ", ".join(limits)
            raise SpecError("", f"the SVAG runs have momentum_limit = {shown}, which are two SDEs: put each limit in a "
                            "folder of its own")  # fmt: skip
        return limits[0] if limits else None


def experiment_of(records: Sequence[RunRecord], title: str = "runs of a folder") -> Compare | Ladder | Ngd:
    """Infer the experiment whose runs these are, or refuse in one sentence what is none.

    Runs that share all but process and seed are a `compare` or an `ngd`, runs along the linear scaling rule a `ladder`.
    Margin, tolerance and C² are the defaults of the experiment. Runs of SGD without company are left to be strangers.
    """
    specs = [record.spec for record in records if record.spec is not None]
    if not specs:
        raise SpecError("", "there are no runs here that can be read: give a folder that svag has written")
    families = [family for family in _families(specs) if family.kind is not None]
    kinds = sorted({family.kind for family in families if family.kind is not None})
    if not kinds:
        raise SpecError(
            "",
            "all runs are SGD at one batch size each, which compares nothing: read a baseline with svag predict, or "
            "add runs with svag compare, svag ladder or svag ngd",
        )
    if len(kinds) > 1:
        raise SpecError("", f"the runs belong to different questions ({', '.join(kinds)}): put each in its own folder")
    seeds = tuple(sorted({spec.seed for family in families for spec in family.specs}))
    match kinds[0]:
        case "ladder":
            ladders = [_ladder(family, name) for family, name in zip(families, _names(families), strict=True)]
            return Ladder(title=title, seeds=seeds, panels=tuple(ladders))
        case "ngd":
            panels = [NgdPanel(name=name, base=family.base(size)) for family, size, name in _settings(families)]
            return Ngd(title=title, seeds=seeds, panels=tuple(panels))
    compared = [_compare(family, size, name) for family, size, name in _settings(families)]
    return Compare(title=title, seeds=seeds, panels=tuple(compared))


def _families(specs: Sequence[RunSpec]) -> list[_Family]:
    grouped: list[list[RunSpec]] = []
    for spec in specs:
        home = next((group for group in grouped if on_ladder(group[0], spec)), None)
        if home is None:
            grouped.append([spec])
        else:
            home.append(spec)
    return [_Family(tuple(group)) for group in grouped]


def _ladder(family: _Family, name: str) -> LadderPanel:
    sizes = tuple(family.sizes)
    return LadderPanel(
        name=name,
        base=family.base(sizes[0]),
        batch_sizes=sizes,
        ells=family.ells(),
        split=family.split(),
        momentum_limit=family.limit(),
    )


def _compare(family: _Family, size: int, name: str) -> ComparePanel:
    return ComparePanel(
        name=name,
        base=family.base(size),
        ells=(1, *family.ells(size)),
        split=family.split(),
        glsr=family.parts(size),
        ngd=any(isinstance(spec.process, NgdSpec) for spec in family.specs if spec.batch_size == size),
        momentum_limit=family.limit(),
    )


def _settings(families: Sequence[_Family]) -> list[tuple[_Family, int, str]]:
    """Every family at every batch size, with a name."""
    names = _names(families)
    return [
        (family, size, f"{name}, B={size}")
        for family, name in zip(families, names, strict=True)
        for size in family.sizes
    ]


def _names(families: Sequence[_Family]) -> list[str]:
    """Network and data, numbered where that does not tell the families apart."""
    names = [f"{base.model.arch} {base.model.norm} on {base.data.name}" for base in (f.specs[0] for f in families)]
    return [
        f"{name} ({names[:at].count(name) + 1})" if names.count(name) > 1 else name for at, name in enumerate(names)
    ]


def _is_sgd(spec: RunSpec) -> bool:
    process = spec.process
    return isinstance(process, SgdSpec) or (isinstance(process, SvagSpec) and process.is_sgd)
