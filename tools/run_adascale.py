"""Trains a setting of the atlas at 32 times its batch by AdaScale as fairscale computes it, and notes how it ended.

    python tools/run_adascale.py results/atlas/specs/vgg_group.yaml --base 16 --into results/gain/adascale.json

The run is that of our on-line arm: same batches, same readings, same schedule in baseline time. Only the averages of
the readings differ. A run that is in the file already is not repeated.
"""

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from svag.dynamics.running_gain import RunningGain
from svag.lab import RunSpec, run
from svag.lab.experiments.gain_finding import final_loss
from svag.lab.experiments.ladder import Ladder
from svag.theory.estimators import NoiseEstimate

KAPPA = 32
LEAST_VARIANCE = 1e-6


@dataclass
class AdaScale(RunningGain):
    """The averages of fairscale's AdaScale: every estimate is clipped at 0 before it is averaged.

    The average forgets with θ = max(1 − κ/1000, 0) and is corrected for its start, so that reading k = 0, 1, … has the
    weight (1 − θ)/(1 − θᵏ⁺¹). Nothing is corrected for batches drawn without replacement.

    >>> peer = AdaScale(base_batch_size=1)
    >>> peer.add(NoiseEstimate(grad_sq=-3.0, noise_trace=2.0), batch_size=500)
    >>> peer.add(NoiseEstimate(grad_sq=3.0, noise_trace=2.0), batch_size=500)  # θ = 1/2: weights 1/3 and 2/3
    >>> peer.grad_sq, peer.example_noise
    (2.0, 1000.0)

    Reference: Johnson et al. (2020), appendix B.3, with the choices of fairscale 0.4.
    """

    kappa: float = 1.0

    @property
    def weight(self) -> float:
        """Weight of the next reading."""
        theta = max(1 - self.kappa / 1000, 0.0)
        return (1 - theta) / (1 - theta ** (self.count + 1))

    def add(self, found: NoiseEstimate, batch_size: int) -> None:
        """Take one reading, of a step of `batch_size` examples."""
        self.kappa = batch_size / self.base_batch_size
        least = LEAST_VARIANCE / self.kappa  # of the variance at the baseline's batch size
        super().add(NoiseEstimate(max(found.grad_sq, 0.0), max(found.noise_trace, least)), batch_size)

    def _distinct(self, batch_size: int) -> float:
        return 1.0


def specs(file: Path, base: int, seeds: int) -> list[RunSpec]:
    """The larger runs of the on-line arm."""
    spec = RunSpec.of(file).edited({"probe": {"kind": "none"}})
    ladder = Ladder.of(spec, [base, base * KAPPA], seeds, rule="gain", measured=True)
    return [one for one in ladder.runs() if one.batch_size != base]


def main(file: Path, base: int, seeds: int, into: Path) -> None:
    """Run what the file lacks."""
    rows = json.loads(into.read_text()) if into.exists() else []
    for spec in specs(file, base, seeds):
        if any((row["ladder"], row["seed"]) == (file.stem, spec.seed) for row in rows):
            continue
        with tempfile.TemporaryDirectory() as folder, patch("svag.dynamics.gain_rule.RunningGain", AdaScale):
            record = run(spec, folder, device="cpu", progress=False)
        rows.append(
            {
                "ladder": file.stem,
                "seed": spec.seed,
                "batch_size": spec.batch_size,
                "state": record.state,
                "final_loss": final_loss(record),
                "examples": record.outcome.get("examples"),
            }
        )
        into.parent.mkdir(parents=True, exist_ok=True)
        into.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("spec", type=Path)
    parser.add_argument("--base", type=int, required=True, help="batch size of the baseline")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--into", type=Path, default=Path("results/gain/adascale.json"))
    given = parser.parse_args()
    main(given.spec, given.base, given.seeds, given.into)
