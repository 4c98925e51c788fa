"""A chart as data: its layers, and the rows each draws."""

from typing import Any

import altair as alt

from svag.lab.report.save import specification


def layers(chart: alt.TopLevelMixin) -> list[dict[str, Any]]:
    """Every mark of a chart with its encoding and its rows, however deep it sits."""
    spec = specification(chart)
    return list(_walk(spec, spec.get("datasets", {}), None))


def _walk(view: dict[str, Any], datasets: dict[str, Any], inherited: Any) -> Any:
    data = view.get("data", inherited)
    for key in ("layer", "hconcat", "vconcat"):
        for child in view.get(key, []):
            yield from _walk(child, datasets, data)
    if "spec" in view:
        yield from _walk(view["spec"], datasets, data)
    if "mark" in view:
        rows = datasets[data["name"]] if "name" in data else data["values"]
        mark = view["mark"] if isinstance(view["mark"], dict) else {"type": view["mark"]}
        yield {"mark": mark, "encoding": view.get("encoding", {}), "rows": rows, "view": view}


def marks(chart: alt.TopLevelMixin) -> list[str]:
    """The kinds of marks, in drawing order."""
    return [layer["mark"]["type"] for layer in layers(chart)]


def of_kind(chart: alt.TopLevelMixin, mark: str) -> list[dict[str, Any]]:
    """The layers with one kind of mark."""
    return [layer for layer in layers(chart) if layer["mark"]["type"] == mark]
