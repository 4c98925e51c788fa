"""What the findings of all experiments have in common: panels, runs that are missing, records that belong to none."""

from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from svag.findings.experiments.runs import MissingRun
from svag.findings.experiments.wording import not_used


class PanelFinding(Protocol):
    """What an experiment asks of the finding of a panel."""

    @property
    def missing(self) -> tuple[MissingRun, ...]:
        """Runs without a result."""
        ...

    def to_dict(self) -> dict[str, object]:
        """Return the panel for a JSON document."""
        ...


Panel = TypeVar("Panel", bound=PanelFinding, covariant=True)


@dataclass(frozen=True)
class ExperimentFinding(Generic[Panel]):
    """What an experiment found; each kind is a class of its own, so that readers can tell them apart.

    Attributes:
        title: of the experiment.
        panels: one finding each.
        strangers: records that belong to no panel, each a sentence.
    """

    kind: ClassVar[str]
    title: str
    panels: tuple[Panel, ...]
    strangers: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[MissingRun, ...]:
        """Runs without a result, over all panels."""
        return tuple(run for panel in self.panels for run in panel.missing)

    def to_dict(self) -> dict[str, object]:
        """Return the finding for a JSON document; the fields of a single panel stand at the top as well."""
        panels = [panel.to_dict() for panel in self.panels]
        top = panels[0] if len(panels) == 1 else {}
        return {"kind": self.kind, "title": self.title, **top, "panels": panels, "strangers": list(self.strangers)}

    def __str__(self) -> str:
        return "\n\n".join([*not_used(self.strangers, self.missing), *(str(panel) for panel in self.panels)])
