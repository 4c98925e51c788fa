"""What docs/cluster.md says that the figures cost at the paper's size is what their plans say."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


tool = load("gpu_hours")
PLANS = tool.paper_plans()
ROWS = {f"`{label}`": specs for label, specs in PLANS.items()} | {"all, shared runs once": tool.each_once(PLANS)}


@pytest.mark.parametrize("name", ROWS)
def test_runs_updates_and_images_of_a_figure(name: str) -> None:
    cells = tool.planned_cells(name, sum(map(tool.amounts, ROWS[name]), tool.Price()))
    assert f"\n{cells} " in PAGE, f"run `python tools/gpu_hours.py`: {cells}"


def test_the_networks_are_those_of_the_plans() -> None:
    every = dict.fromkeys((spec.model, spec.data.name) for spec in ROWS["all, shared runs once"])
    wanted = [f"| {model.arch}, {model.norm}, width {model.width:g} | {data} |" for model, data in every]
    said = [line for line in PAGE.splitlines() if ", width " in line]
    assert [line.split(" | ")[:2] for line in said] == [line.removesuffix(" |").split(" | ") for line in wanted]
