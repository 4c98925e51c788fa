"""What the pages show as output is what their commands, examples and code print."""

from functools import cache
from pathlib import Path

import pytest
from tests.docs.outputs import cells, close, differences, names_of, printed, shown
from tests.docs.tools import ROOT


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def example(name: str) -> str:
    return printed(ROOT / "examples" / name)


def tables(text: str, *left_out: str) -> list[list[str]]:
    return [line for line in cells(text, *left_out) if len(line) > 1]


def test_the_price_list_of_the_front_page() -> None:
    first, _, _ = example("price_list.py").partition("\nWith the speed")
    assert differences(cells(shown(page("README.md"))), cells(first)) == []


def test_the_training_of_the_front_page() -> None:
    assert differences(cells(shown(page("README.md"), "rule.due")), cells(example("gain_rule.py"))) == []


def test_the_price_list_of_the_home_page_apart_from_its_times() -> None:
    found = example("price_list.py").partition("machine:\n")[2]
    assert differences(tables(shown(page("docs/index.md")), "time"), tables(found, "time")) == []


def test_the_plans_from_parts_of_a_baseline() -> None:
    assert differences(cells(shown(page("docs/train.md"), "Record all")), cells(example("gain_planned.py"))) == []


def test_the_first_price_list_of_its_page() -> None:
    text = page("docs/howto_batch.md")
    found = str(names_of(text, before="import random")["found"].prices([64, 128, 256, 512]))
    assert differences(tables(shown(text)), tables(found)) == []


def test_the_answers_of_the_page_about_adam() -> None:
    text = page("docs/adam.md")
    names = names_of(text)
    found = names["svag"].price_list(names["train"](32, steps=1200, **names["settings"]))
    assert differences(cells(shown(text, "steps=1200")), cells(str(found))) == []
    assert differences(cells(shown(text, "print(found.linear)")), cells(str(found.linear))) == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the first spec of the page about specs."""
    spec = page("docs/run.md").partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "base.yaml").write_text(spec)
    return tmp_path


def test_the_first_run(folder: Path) -> None:
    printed("-m", "svag", "run", "base.yaml", "--out", "runs/a", cwd=folder)
    assert (
        differences(cells(shown(page("docs/run.md"))), cells(printed("-m", "svag", "list", "runs", cwd=folder))) == []
    )


def test_the_plan_of_the_page_about_clusters(folder: Path) -> None:
    text = page("docs/cluster.md")
    command = text.partition("```bash\nsvag ")[2].partition("\n")[0]
    found = printed("-m", "svag", *command.split(), cwd=folder)
    assert shown(text).partition(" examples")[0] in found


@pytest.mark.slow
def test_the_comparison_to_a_given_accuracy(tmp_path: Path) -> None:
    text = page("docs/howto_sde.md")
    (tmp_path / "small.yaml").write_text(text.partition("```yaml\n")[2].partition("```")[0])
    command = ["compare", "small.yaml", "--within", "0.5", "--workers", "1"]
    found = cells(printed("-m", "svag", *command, cwd=tmp_path, columns=160))
    for line in cells(shown(text)):
        (same,) = (other for other in found if other[0].partition(":")[0] == line[0].partition(":")[0])
        # differences of a few points between runs that another processor rounds otherwise
        assert differences([line], [same], elsewhere=0.5) == []


def test_the_first_checks_of_a_theorem() -> None:
    found = cells(printed("-m", "svag", "verify", "app:lem:ito_taylor"))[1:]  # after how many pass
    said = cells(shown(page("docs/theorems.md"), "The second command"))
    assert differences(said, found[: len(said)]) == []


def test_settings_beside_those_of_the_paper() -> None:
    found = cells(printed("-m", "svag", "reproduce", "fig:svag_accs", "--spec", columns=160))
    said = cells(shown(page("docs/experiments.md"), "reproduce LABEL --spec"))
    assert [line for line in said if line not in found] == []


def test_a_number_that_differs_is_seen() -> None:
    said = cells("Batch 128: 1.5× the examples\n\nbatch size  time  steps\n  64  0.6×  ÷1.7")
    assert differences(said, said) == []
    assert differences(said, cells("Batch 128: 1.5× the examples\n\nbatch size  time  steps\n  64  0.6×  ÷2.7"))
    assert differences(said, cells("Batch 256: 1.5× the examples\n\nbatch size  time  steps\n  64  0.6×  ÷1.7"))
    assert differences(said, said[:-1])
    assert cells("batch size  time  steps\n  64  0.6×  ÷1.7", "time") == [["batch size", "steps"], ["64", "÷1.7"]]
    assert close("0.322", "0.33")
    assert not close("0.322", "0.37")
