"""Folders of runs that nobody trained: the records that a run leaves, with numbers made up for the case at hand."""

import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from svag.lab.experiments import save_experiment
from svag.lab.experiments.compare import Compare, ComparePanel
from svag.lab.experiments.ladder import Ladder, LadderPanel
from svag.lab.experiments.ngd import Ngd, NgdPanel
from svag.lab.records.identity import NUMERICS_VERSION
from svag.lab.records.record import RUNS
from svag.lab.records.storage import METRICS, OUTCOME, SPEC, digest
from svag.lab.specs.spec import RunSpec

BASE = RunSpec.from_yaml(
    "{data: {name: fashion-small, augment: {pad: 1, flip: true}}, model: {arch: preresnet8, norm: group, width: 0.5,"
    " scale_invariant: true}, batch_size: 64, lr: 0.2, weight_decay: 0.001, schedule: {kind: steps, at: [0.8]},"
    " budget: {epochs: 20}, probe: {kind: in_run, parts: 4}}"
)
EXAMPLES = 10_000


def write_run(
    folder: Path, spec: RunSpec, final: float, *, noise_to_signal: float | None = None, evaluations: int = 10
) -> Path:
    """A run that ends at this test accuracy; NaN diverges half way. Readings scatter around `noise_to_signal`."""
    steps, rng = spec.steps(), np.random.default_rng(zlib.crc32(folder.name.encode()))
    diverged = math.isnan(final)
    end = 0.8 if diverged else final
    rows: list[dict[str, Any]] = []
    for i in range(evaluations // 2 + 1 if diverged else evaluations + 1):
        step, share = round(i * steps / evaluations), i / evaluations
        accuracy = end if i == evaluations else 0.1 + (end - 0.1) * (1 - math.exp(-5 * share)) + rng.normal(0, 0.003)
        rows.append(
            {
                "kind": "evaluation",
                "step": step,
                "time": step * spec.lr,
                "lr": spec.learning_rate(min(step, steps - 1)),
                "train_loss": None if i == 0 else 2.3 * math.exp(-2 * share),
                "test_loss": 2.5 - 2 * accuracy,
                "test_accuracy": accuracy,
                "param_sq": 300.0,
            }
        )
    if noise_to_signal is not None and not diverged:
        rows += [
            {
                "kind": "reading",
                "grad_sq": float(1 + 0.3 * rng.normal()),
                "noise_trace": float(noise_to_signal * (1 + 0.05 * rng.normal())),
                "param_sq": spec.lr * (1 + noise_to_signal) / (2 * spec.weight_decay),
                "batch_size": spec.batch_size,
                "n": 4,
                "step": int(steps * 0.5 + k * steps * 0.3 / 300),
                "lr": spec.lr,
                "weight_decay": spec.weight_decay,
                "momentum": 0.0,
                "optimizer": "SGD",
                "param_dot_grad": 0.0,
            }
            for k in range(300)
        ]
    folder.mkdir(parents=True, exist_ok=True)
    header = {
        "identity": folder.name,
        "numerics": NUMERICS_VERSION,
        "steps": steps,
        "examples": EXAMPLES,
        "spec": spec.to_dict(),
    }
    (folder / SPEC).write_text(json.dumps(header))
    metrics = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (folder / METRICS).write_bytes(metrics)
    outcome = {
        "metrics_sha256": digest(metrics),
        "state": "diverged" if diverged else "finished",
        "reason": "the training loss is nan" if diverged else "",
        "step": rows[-1]["step"],
        "seconds": 12.5,
        "examples": steps * spec.batch_size,
        "versions": {"svag": "0.1.0", "torch": "2.13.0+cpu", "numpy": "2.4.6", "python": "3.11.7"},
        "hardware": {"device": "cpu", "name": "Some CPU", "system": "Linux", "cores": 2, "threads": 1},
    }
    (folder / OUTCOME).write_text(json.dumps(outcome))
    return folder


def compare_folder(
    path: Path,
    finals: Mapping[int, Sequence[float]],
    *,
    title: str = "SGD and SVAG on Fashion-MNIST",
    margin: float = 0.01,
    panels: Sequence[str] = ("B = 64",),
    evaluations: int = 10,
) -> Path:
    """ell → one final accuracy per seed, in every panel (each at another weight decay)."""
    seeds = tuple(range(max(map(len, finals.values()))))
    made = []
    for i, name in enumerate(panels):
        base = BASE.edited({"weight_decay": 0.001 * (i + 1), "probe": "none"})
        made.append(ComparePanel(name=name, base=base, ells=tuple(finals)))
        for ell, values in finals.items():
            process = {"kind": "sgd"} if ell == 1 else {"kind": "svag", "ell": ell}
            for seed, final in enumerate(values):
                spec = base.edited({"process": process, "seed": seed})
                write_run(path / RUNS / f"p{i}-ell{ell}-seed{seed}", spec, final, evaluations=evaluations)
    save_experiment(Compare(title=title, seeds=seeds, panels=tuple(made), margin=margin), path)
    return path


def ladder_folder(
    path: Path,
    errors: Mapping[int, Sequence[float]],
    *,
    title: str = "The ladder on Fashion-MNIST",
    noise_at_64: float | None = 6.0,
    name: str = "preresnet8",
) -> Path:
    """Batch size → one final test error per seed; N/G falls as 1/B."""
    seeds = tuple(range(max(map(len, errors.values()))))
    for size, values in errors.items():
        for seed, error in enumerate(values):
            spec = BASE.edited({"batch_size": size, "lr": BASE.lr * size / 64, "seed": seed})
            ratio = None if noise_at_64 is None else noise_at_64 * 64 / size
            write_run(path / RUNS / f"b{size}-seed{seed}", spec, 1 - error, noise_to_signal=ratio)
    panel = LadderPanel(name=name, base=BASE, batch_sizes=tuple(errors))
    save_experiment(Ladder(title=title, seeds=seeds, panels=(panel,)), path)
    return path


def ngd_folder(
    path: Path, finals: Mapping[str, Sequence[float]], *, title: str = "Noise of the same covariance"
) -> Path:
    """Arm ("sgd", "ngd", "gd") → one final accuracy per seed."""
    base = BASE.edited({"probe": "none", "data.augment": False})
    for kind, values in finals.items():
        for seed, final in enumerate(values):
            write_run(path / RUNS / f"{kind}-seed{seed}", base.edited({"process": {"kind": kind}, "seed": seed}), final)
    seeds = tuple(range(max(map(len, finals.values()))))
    save_experiment(Ngd(title=title, seeds=seeds, panels=(NgdPanel(name="B = 64", base=base),)), path)
    return path


def around(mean: float, spread: float, n: int, seed: int = 0) -> list[float]:
    """Final numbers of n seeds."""
    return [float(x) for x in np.random.default_rng(seed).normal(mean, spread, n)]


CASES: dict[str, Callable[[Path], Path]] = {
    "compare_equal": lambda p: compare_folder(
        p, {1: around(0.85, 0.002, 5), 4: around(0.851, 0.002, 5, 1), 16: around(0.851, 0.002, 5, 2)}
    ),
    "compare_different": lambda p: compare_folder(
        p,
        {1: around(0.80, 0.003, 5), 4: around(0.835, 0.003, 5, 1), 16: around(0.845, 0.003, 5, 2)},
        panels=("B = 64", "B = 64, more decay"),
    ),
    "compare_diverged": lambda p: compare_folder(
        p,
        {1: [math.nan, *around(0.8, 0.003, 4)], 4: around(0.83, 0.003, 5, 1),
         16: [*around(0.84, 0.003, 4, 2), math.nan]},
    ),
    "compare_one_seed": lambda p: compare_folder(p, {1: [0.85], 4: [0.852], 16: [0.853]}),
    "compare_inconclusive": lambda p: compare_folder(
        p, {1: around(0.84, 0.012, 3), 4: around(0.85, 0.012, 3, 1), 16: around(0.845, 0.012, 3, 2)}
    ),
    "ladder": lambda p: ladder_folder(
        p,
        {16: around(0.15, 0.002, 3), 32: around(0.149, 0.002, 3, 1), 64: around(0.15, 0.002, 3, 2),
         128: around(0.153, 0.002, 3, 3), 256: around(0.16, 0.002, 3, 4), 512: around(0.19, 0.003, 3, 5),
         1024: around(0.26, 0.005, 3, 6)},
    ),
    "ladder_never_fails": lambda p: ladder_folder(
        p, {32: around(0.15, 0.002, 3), 64: around(0.15, 0.002, 3, 2), 128: around(0.151, 0.002, 3, 3)}
    ),
    "ladder_diverged": lambda p: ladder_folder(
        p, {32: around(0.15, 0.002, 3), 64: around(0.15, 0.002, 3, 2), 256: around(0.16, 0.002, 3, 3),
            512: [0.2, math.nan, math.nan]},
    ),
    "ladder_one_seed": lambda p: ladder_folder(
        p, {32: [0.15], 64: [0.151], 256: [0.16], 1024: [0.25]}, noise_at_64=None
    ),
    "ngd": lambda p: ngd_folder(
        p, {"sgd": around(0.85, 0.002, 3), "ngd": around(0.849, 0.002, 3, 1), "gd": around(0.78, 0.001, 3, 2)}
    ),
}  # fmt: skip
