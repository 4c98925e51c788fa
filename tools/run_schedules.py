"""Trains with a batch that grows, and with two others that take as many examples, all by the measured gain rule.

    python tools/run_schedules.py results/gain/planned/gn_cosine --seeds 2 --into results/gain/schedules.json

The folder is a ladder by the gain rule: its smallest batch is the baseline, and the readings there make the schedule.

- schedule: `batch_schedule(max_price=1.1)`
- constant: one batch size throughout
- ramp: a batch size that grows linearly in baseline time

The last two are sized so that their announced price is that of the schedule. A run that is in the file already is not
repeated.
"""

import argparse
import json
import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

import svag
from svag.lab.experiments import load_experiment
from svag.lab.experiments.gain_finding import LAST, baseline_history
from svag.lab.experiments.ladder import Ladder
from svag.lab.experiments.runs import gather
from svag.lab.records.record import load_records
from svag.lab.specs.spec import RunSpec
from svag.lab.training.streams import BatchStream
from svag.lab.training.training import load_inputs, prepare
from svag.prices.batch_schedule import BatchSchedule, batch_schedule
from svag.prices.history import History

MAX_PRICE = 1.1
PARTS = 4
SizeAt = Callable[[float], int]


def price_of(history: History, size_at: SizeAt, steps: int) -> tuple[float, float]:
    """Announced price of batch sizes along baseline time, and the share of the baseline's steps that they take."""
    starts = [0, *(phase.start for phase in history.phases[1:]), steps]
    examples = updates = 0.0
    for index, (start, end) in enumerate(pairwise(starts)):
        for size, many in Counter(size_at(step) for step in range(start, end)).items():
            gain = history.gains(size / history.batch_size)[index]
            updates += many / gain
            examples += many * size / history.batch_size / gain
    return examples / steps, updates / steps


def sized(make: Callable[[float], SizeAt], price: Callable[[SizeAt], float], target: float) -> SizeAt:
    """The member of a family of batch sizes whose price is the target, by bisection."""
    low, high = 1.0, 1024.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if price(make(middle)) < target else (low, middle)
    return make(low)


def arms(history: History, schedule: BatchSchedule, steps: int) -> dict[str, SizeAt]:
    """The three ways to choose a batch size from baseline time."""
    base = history.batch_size

    def by_schedule(time: float) -> int:
        return [row.batch_size for row in schedule.rows if row.from_step <= time][-1]

    def constant(kappa: float) -> SizeAt:
        return lambda _: max(base, PARTS * round(base * kappa / PARTS))

    def ramp(kappa: float) -> SizeAt:
        return lambda time: max(base, PARTS * round(base * (1 + (kappa - 1) * 2 * time / steps) / PARTS))

    def price(size_at: SizeAt) -> float:
        return price_of(history, size_at, steps)[0]

    target = price(by_schedule)
    return {"schedule": by_schedule, "constant": sized(constant, price, target), "ramp": sized(ramp, price, target)}


def train(spec: RunSpec, steps: int, size_at: SizeAt) -> dict[str, Any]:
    """One run; batches are joined from small independent ones."""
    torch.set_num_threads(1)
    training = prepare(spec, load_inputs(spec.data, None, torch.device("cpu")))
    base = spec.batch_size
    batches = BatchStream(training.data, spec, "batches", PARTS)
    probe = svag.NoiseProbe(training.model, training.optimizer, batch_size=base)
    rule = svag.GainRule(probe, base_batch_size=base, base_steps=steps)
    examples, updates, late, span = 0, 0, 0.0, 0.0
    while not rule.done:
        drawn = [batches.draw() for _ in range(size_at(rule.time) // PARTS)]
        inputs, labels = torch.cat([x for x, _ in drawn]), torch.cat([y for _, y in drawn])
        training.set_rate(spec.learning_rate(int(rule.time), training.examples))
        training.optimizer.zero_grad()
        probe.batch_size = len(labels)
        loss = probe.backward(training.loss, (inputs, labels), PARTS)
        before = rule.time
        training.optimizer.step()
        examples, updates = examples + len(labels), updates + 1
        if before >= (1 - LAST) * steps:
            late, span = late + float(loss) * (rule.time - before), span + rule.time - before
    return {"final_loss": late / span, "examples": examples, "updates": updates}


def main(folder: Path, seeds: int, into: Path) -> None:
    """Run what the file lacks."""
    experiment, records = load_experiment(folder), load_records(folder)
    assert isinstance(experiment, Ladder)
    panel, runs = experiment.panels[0], gather(experiment, records, "train_loss")[0][0]
    history, spec = baseline_history(panel, runs), panel.baseline
    assert history is not None
    steps = max(one.steps for one in records if one.spec and one.spec.batch_size == spec.batch_size)
    schedule = batch_schedule(history, MAX_PRICE)
    rows = json.loads(into.read_text()) if into.exists() else []
    for seed in range(seeds):
        for arm, size_at in arms(history, schedule, steps).items():
            if any((row["ladder"], row["arm"], row["seed"]) == (folder.name, arm, seed) for row in rows):
                continue
            price, share = price_of(history, size_at, steps)
            rows.append(
                {
                    "ladder": folder.name,
                    "arm": arm,
                    "seed": seed,
                    "base_batch_size": spec.batch_size,
                    "base_steps": steps,
                    "batch_sizes": sorted({size_at(step) for step in range(steps)}),
                    "announced_price": round(price, 4),
                    "announced_steps": round(share * steps),
                    **train(spec.edited({"seed": seed}), steps, size_at),
                }
            )
            into.parent.mkdir(parents=True, exist_ok=True)
            into.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--into", type=Path, default=Path("results/gain/schedules.json"))
    given = parser.parse_args()
    main(given.folder, given.seeds, given.into)
