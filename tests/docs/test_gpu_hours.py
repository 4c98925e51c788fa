"""What docs/cluster.md says that the figures cost at the paper's size is what their plans say."""

import pytest
from tests.docs.tools import ROOT, load

PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")


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


def test_speeds_are_measured_on_the_network_itself(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = PLANS["fig:svag_accs"][0].edited({"model.arch": "preresnet8", "model.width": 0.25})
    speed = tool.measured(tiny, "cpu")
    both, _ = tool.operations_of_an_image(tiny.model, "cifar10")
    said = capsys.readouterr().out
    rate = float(said.split(" images/s")[0].split(": ")[1].replace(",", ""))
    assert speed.tflops == pytest.approx(rate * both / 1e12, rel=0.01)
    assert f"{speed.update_ms:.3g} ms for an update at B = 2" in said
