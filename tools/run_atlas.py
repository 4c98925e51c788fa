"""Trains one ladder of the atlas under the rules that the price list prints, and under those that it is compared with.

    python tools/run_atlas.py results/atlas/specs/vgg_group.yaml --base 16 --out atlas-runs
    python tools/run_atlas.py … --only baseline  # stop after the baseline, and note what it predicts
    python tools/run_atlas.py … --kappas 16 --only planned  # other batches than 8 and 32 times the baseline's

Folders of the same ladder below `--out`, each of which continues where it stopped:

- planned: the baseline, and κ = 8 and 32 times its batch by the plan of its readings
- on_line: the same batches, with the gain measured while training
- linear: κ = 32 by the rule of the optimizer (linear, square-root), with the examples of the plan
- one_gain: κ = 32 at the one gain that takes as many examples as the plan
- betas, only if asked for: the planned batches of Adam or AdamW with betas that follow the gain

The probe of the spec is replaced by one that measures from the first step: a plan needs the start of training.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from svag.lab import Execution, RunSpec, load_records, run
from svag.lab.execution.conduct import carry_out
from svag.lab.execution.plan import plan_runs
from svag.lab.experiments import load_experiment
from svag.lab.experiments.gain_finding import baseline_prices, final_loss
from svag.lab.experiments.ladder import Ladder, rung
from svag.lab.records.record import RUNS, RunRecord
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import plan_of
from svag.prices.plan import GainPlan

KAPPAS, LARGEST = (8, 32), 32
ARMS = ("planned", "on_line", "linear", "one_gain", "betas")
LEAST_BETA2 = 0.95


def run_ladder(file: Path, base: int, seeds: int, out: Path, only: str | None, kappas: Sequence[int] = KAPPAS) -> None:
    """Carry out all arms of one ladder, or only one of them."""
    spec = RunSpec.of(file).edited({"probe": {"kind": "none"}})
    folders = {arm: out / arm / file.stem for arm in ARMS}

    def by_gain(*, measured: bool) -> Ladder:
        sizes = [base * kappa for kappa in (1, *kappas)]
        return Ladder.of(spec, sizes, seeds, rule="gain", measured=measured, file=file)

    here = Execution(workers=1, device="cpu")
    planned = folders["planned"]
    for baseline in by_gain(measured=False).runs():  # the other rungs have no plan yet
        run(baseline, folder_of(baseline, planned))
    if only == "baseline":
        note_prediction(by_gain(measured=False), load_records(planned), out / "predictions.json")
    if only in (None, "planned"):
        carry_out(by_gain(measured=False), planned, here)
    if only in (None, "on_line"):
        _share_baseline(planned, folders["on_line"], base)
        carry_out(by_gain(measured=True), folders["on_line"], here)
    if only == "betas":
        for kappa in kappas:
            large, plan, steps = planned_run(planned, base * kappa)
            following = with_betas(large, kappa / plan.price(steps))
            for seed in range(seeds):
                run(one := following.edited({"seed": seed}), folder_of(one, folders["betas"]))
    if only in (None, "linear", "one_gain"):
        large, plan, steps = planned_run(planned, base * LARGEST)
        for arm, control in (
            ("linear", with_rule(spec, base, large, plan.steps(steps))),
            ("one_gain", with_one_gain(large, plan.kappa / plan.price(steps))),
        ):
            if only in (None, arm):
                run(control, folder_of(control, folders[arm]))


def note_prediction(ladder: Ladder, records: Sequence[RunRecord], into: Path) -> None:
    """Write down what the baseline says of the larger batches, before any of them has run."""
    panel = ladder.panels[0]
    known = json.loads(into.read_text()) if into.exists() else {}
    known[panel.name] = {
        "base_batch_size": panel.sizes[0],
        "final_loss": {one.spec.seed: round(final_loss(one), 5) for one in records if one.spec is not None},
        "examples": {str(size): round(price, 4) for size, price in baseline_prices(ladder, records).items()},
    }
    into.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def folder_of(spec: RunSpec, out: Path) -> Path:
    """Where an experiment in `out` keeps the run of a spec."""
    (planned,) = plan_runs([spec], out)
    return planned.folder


def _share_baseline(planned: Path, other: Path, base: int) -> None:
    """The baselines of two arms are the same runs: copy those that the other arm lacks."""
    for record in load_records(planned):
        target = other / RUNS / record.path.name
        if record.spec is not None and record.spec.batch_size == base and record.ended and not target.exists():
            shutil.copytree(record.path, target)


def planned_run(folder: Path, size: int) -> tuple[RunSpec, GainPlan, int]:
    """The first seed of the planned arm at a batch size, its plan, and the steps of the baseline."""
    experiment = load_experiment(folder)
    assert isinstance(experiment, Ladder)
    spec = next(one for one in experiment.runs() if one.batch_size == size and one.seed == experiment.seeds[0])
    plan, baseline = plan_of(spec), experiment.panels[0].baseline.batch_size
    assert plan is not None
    steps = max(one.steps for one in load_records(folder) if one.spec and one.spec.batch_size == baseline)
    return spec, plan, steps


def with_rule(spec: RunSpec, base: int, large: RunSpec, updates: int) -> RunSpec:
    """The rule of the optimizer at the batch size of a planned run, with as many updates.

    Betas that are too small to be scaled are kept: the gain rule at gain κ throughout does that.
    """
    try:
        scaled = rung(rung(spec, base), large.batch_size)
    except SpecError:
        return large.edited({"process.plan": [[0, LARGEST]], "budget": updates * LARGEST})
    return scaled.edited({"budget": updates, "seed": large.seed, "probe": large.probe.model_dump()})


def with_betas(large: RunSpec, gain: float) -> RunSpec:
    """A planned run whose betas follow its average gain, 1 − β → gain·(1 − β), with a floor."""
    first, second = (1 - gain * (1 - beta) for beta in large.to_dict()["optimizer"]["betas"])
    return large.edited({"optimizer.betas": [max(first, 0.0), max(second, LEAST_BETA2)]})


def with_one_gain(large: RunSpec, gain: float) -> RunSpec:
    """A planned run with the average of its gains instead, which takes as many examples."""
    return large.edited({"process.plan": [[0, gain]]})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("spec", type=Path)
    parser.add_argument("--base", type=int, required=True, help="batch size of the baseline")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("atlas-runs"))
    parser.add_argument("--only", choices=["baseline", *ARMS])
    parser.add_argument("--kappas", type=int, nargs="+", default=KAPPAS, help="larger batches, over the baseline's")
    given = parser.parse_args()
    run_ladder(given.spec, given.base, given.seeds, given.out, given.only, given.kappas)
