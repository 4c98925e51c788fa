"""What a page calls things: an optimizer and its rule by their names, and a text by its bits per character."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.experiments.on_disk import BASE, TEXT, readings_at, write_run
from torch.optim import SGD, Adam, AdamW, RMSprop

from svag.lab.experiments.compare import Compare
from svag.lab.experiments.experiment import Experiment, described
from svag.lab.experiments.from_runs import from_specs
from svag.lab.experiments.ladder import Ladder, rung
from svag.lab.experiments.sde_limit import Limit
from svag.lab.records.record import load_records
from svag.lab.report.content import Report
from svag.lab.report.write import build_report, report_of
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import RunSpec
from svag.noise.reading import Reading

SIZES, SEEDS, ELLS = (16, 32, 64), (0, 1), (1, 4)
# by batch size; above 2% of the lowest at 64, and far below 20% of it
BITS = {16: 2.0, 32: 2.01, 64: 2.2}


def readings_of_adamw(spec: RunSpec) -> list[Reading]:
    noise = 160 / spec.batch_size
    known = {"optimizer": "AdamW", "momentum": None, "betas": (0.98, 0.99), "eps": 1e-8, "dimension": 100}
    found = readings_at(spec, 1.0, noise, count=384)
    return [replace(one, **known, second_moment=1 + noise) for one in found]  # type: ignore[arg-type]


def text_ladder(root: Path) -> Ladder:
    for size in SIZES:
        for seed in SEEDS:
            spec = rung(TEXT, size).edited({"seed": seed})
            write_run(root, spec, BITS[size] + 0.002 * seed, readings=readings_of_adamw(spec))
    return Ladder.of(TEXT, SIZES, SEEDS, name=described(TEXT), file=Path("text.yaml"))


def comparison(root: Path, base: RunSpec, final: float) -> Compare:
    found = Compare.of(base, ELLS, SEEDS, name=described(base), file=Path("mine.yaml"))
    for spec in found.runs():
        write_run(root, spec, final + 0.001 * spec.seed)
    return found


def texts(report: Report) -> Iterator[str]:
    """Everything of a page that people read, the drawn names among it."""
    yield from (report.title, report.subject, report.method, *map(str, report.answers), *report.warnings)
    yield from (answer.spark_of for answer in report.answers)
    for figure in report.figures:
        yield from (figure.heading, figure.sentence, *(table.title for table in figure.tables))
        yield json.dumps(figure.chart.to_dict(), ensure_ascii=False)


def told(experiment: Experiment, root: Path) -> str:
    return "\n".join(texts(report_of(experiment, load_records(root))))


def test_a_ladder_of_adamw_on_text_speaks_of_neither_sgd_nor_images_nor_theorems(tmp_path: Path) -> None:
    found = text_ladder(tmp_path)
    report = report_of(found, load_records(tmp_path))
    page = "\n".join(texts(report))
    for foreign in ("SGD", "inear", "test error", "heorem", 'ccuracy"', "def:lsi"):
        assert foreign not in page, foreign
    (answer,) = report.answers
    figures = {figure.name: figure for figure in report.figures}
    error = figures["panel1-error"]
    assert {
        report.title: report.subject,
        error.title: error.tables[0].title,
        "lowest": dict(answer.numbers)["lowest test loss"],
    } == {
        "How far can this batch grow?": "Square-root scaling from text.yaml",
        "Test loss (bits per character) along the square-root rule": "test losses",
        "lowest": "2.001 bits per character at batch size 16",
    }
    assert report.method.startswith("Batch size and learning rate grow together, by the square-root scaling rule.")
    for said in (dict(answer.numbers)["test loss"], error.sentence):
        assert re.search(r" 2% .* 35\b", said)
    drawn = json.dumps(error.chart.to_dict())
    assert '"region": "test loss +2%"' in drawn
    assert "sharp bound" not in drawn
    assert "paper" not in figures["panel1-ratio"].sentence
    assert '"B = 16"' in json.dumps(figures["panel1-curves"].chart.to_dict())


def test_the_sde_limit_of_a_text_has_no_percent(tmp_path: Path) -> None:
    (panel,) = text_ladder(tmp_path).find(load_records(tmp_path)).panels
    first = replace(panel.rungs[0], sde=Limit(2.125, 2.0, 2.25, "fit", (1, 4), 0))
    said = dict(replace(panel, rungs=(first, *panel.rungs[1:])).answer().numbers)
    assert re.findall(r"[\d.]+%?", said["SDE limit of the loss"]) == ["2.125", "2", "2.25", "16"]
    images = dict(replace(panel, rungs=(first, *panel.rungs[1:]), metric="test_accuracy").answer().numbers)
    assert re.findall(r"[\d.]+%?", images["SDE limit of the error"]) == ["212.50%", "200.00%", "225.00%", "16"]


def test_the_tolerance_of_a_text_is_its_own_unless_another_is_asked_for() -> None:
    assert Ladder.of(TEXT, SIZES, 1).tolerance == 0.02
    assert Ladder.of(TEXT, SIZES, 1, tolerance=0.005).asked().endswith("tolerance 0.5%, C² = 2")
    assert Ladder.of(BASE, SIZES, 1).tolerance == 0.2
    assert Ladder.of(BASE.edited({"optimizer": {"kind": "adamw"}}), (32, 64), 1).tolerance == 0.2, "of images"
    assert from_specs(Ladder, Ladder.of(TEXT, SIZES, 1).runs(), "t").tolerance == 0.02
    stored = Ladder.of(TEXT, SIZES, 1, tolerance=0.2)
    assert Ladder.model_validate(stored.model_dump(mode="json")) == stored


@pytest.mark.parametrize(("kind", "name"), [("adam", "Adam"), ("adamw", "AdamW")])
def test_a_comparison_calls_its_optimizer_by_name(tmp_path: Path, kind: str, name: str) -> None:
    found = comparison(tmp_path, TEXT.edited({"optimizer": {"kind": kind}}), 2.0)
    report = report_of(found, load_records(tmp_path))
    page = "\n".join(texts(report))
    assert "SGD" not in page
    assert "nats" not in page
    (answer,) = report.answers
    assert [said for said, _ in answer.in_card] == [f"{name} − SDE", "SDE limit", name, "SVAG ell=4"]
    gap, curves, limit = report.figures
    assert (report.title, report.subject, answer.headline, answer.spark_of, gap.title) == (
        f"Does the SDE describe this {name}?",
        f"{name} and SVAG from mine.yaml",
        f"Yes: {name} ends where its SDE ends, to within ±0.01 bits per character.",
        f"test loss (bits per character) of {name}, seed 0",
        f"The gap between {name} and its SDE, and the margin",
    )
    assert all(name in said for said in (report.method, answer.next))
    assert '"in bits per character"' in json.dumps(gap.chart.to_dict())
    assert f'"{name}"' in json.dumps(curves.chart.to_dict())
    assert f"'{name}'" in json.dumps(limit.chart.to_dict())
    arms = [arm for panel in report.finding["panels"] for arm in panel["results"]]
    assert [(arm["arm"], arm["kind"]) for arm in arms] == [(name, "sgd"), ("SVAG ell=4", "svag")]


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw", "rmsprop"])
def test_an_optimizer_is_called_what_torch_calls_it(kind: str) -> None:
    spec = BASE.edited({"optimizer": {"kind": kind}})
    assert spec.optimizer.title == {"sgd": SGD, "adam": Adam, "adamw": AdamW, "rmsprop": RMSprop}[kind].__name__
    assert [str(arm) for arm, _ in Ladder.of(spec, (32, 36), 1).panels[0].arms()] == [spec.optimizer.title] * 2


def test_the_words_for_sgd_are_what_they_were(tmp_path: Path) -> None:
    page = told(comparison(tmp_path, BASE, 0.8), tmp_path)
    assert page.startswith(
        "Does the SDE describe this SGD?\nSGD and SVAG from mine.yaml\nSVAG replaces each step of SGD by ell smaller"
    )
    assert all(said in page for said in ("\n  SGD − SDE: ", "test accuracy of SGD, seed 0"))
    assert "linear" in Ladder.of(BASE, (32, 64), 1).asks()[1]


def test_what_is_missing_or_refused_is_named_too() -> None:
    finding = Compare.of(TEXT, ELLS, 1).find([])
    (warning,) = finding.warnings
    assert (warning.partition("; ")[0], finding.panels[0].answer().headline) == (
        "Incomplete: 2 of the runs asked for have no result: AdamW B=16 seed 0 (not run)",
        "No answer yet: AdamW and SVAG both need results.",
    )
    with pytest.raises(SpecError, match=r"^ell:"):
        Compare.of(TEXT, [1], 1).runs()
    svag = TEXT.edited({"process": {"kind": "svag", "ell": 2}})
    with pytest.raises(SpecError, match=r"^process\.kind:"):
        Compare.of(svag, ELLS, 1).runs()


def test_a_mere_folder_calls_runs_by_their_optimizer(tmp_path: Path) -> None:
    comparison(tmp_path, TEXT, 2.0)
    page = "\n".join(texts(build_report(tmp_path)))
    for named in ("adamw B=16 seed=0 (", "adamw svag B=16 seed=0 (", "(bits per character): 2 (adamw"):
        assert named in page
    assert "sgd" not in page
    assert "accuracy" not in page
