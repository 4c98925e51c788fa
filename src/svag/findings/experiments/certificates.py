"""Which theorems fire on a ladder: what the measured N/G rules out, by the whole of its interval."""

import math
from collections.abc import Iterator, Sequence

from svag.findings.critical_batch.prediction import CriticalBatch
from svag.findings.experiments.ladder_finding import Certificate
from svag.theory.kappa import large_run_refutes, large_run_threshold
from svag.theory.sde_failure import sde_threshold, sgd_refutes_sde


def certificates(found: Sequence[CriticalBatch], batch_sizes: Sequence[int]) -> tuple[Certificate, ...]:
    """All that fired: baselines against larger rungs, large runs on their own, SGD against its SDE.

    Only predictions that are `ok` count, and only when the whole interval is on the other side of the threshold.
    """
    sure = [one for one in found if one.ok]
    return (
        *(one for run in sure for one in _baseline(run, batch_sizes)),
        *(one for run in sure for one in _large_run(run, batch_sizes)),
        *(one for run in sure for one in _sde(run)),
    )


def _baseline(run: CriticalBatch, batch_sizes: Sequence[int]) -> Iterator[Certificate]:
    for size in batch_sizes:
        if size > run.batch_size and run.refutes(size):
            yield Certificate("baseline", size, run.batch_size, run.high, size)


def _large_run(run: CriticalBatch, batch_sizes: Sequence[int]) -> Iterator[Certificate]:
    for size in batch_sizes:
        kappa = run.batch_size / size
        if kappa > 1 and large_run_refutes(run.noise_to_signal_high, kappa, run.c2):
            threshold = large_run_threshold(kappa, run.c2)
            yield Certificate("large_run", run.batch_size, size, run.noise_to_signal_high, threshold)


def _sde(run: CriticalBatch) -> Iterator[Certificate]:
    if math.isfinite(run.noise_to_signal_high) and sgd_refutes_sde(run.noise_to_signal_high, run.c2):
        yield Certificate("sde", run.batch_size, None, run.noise_to_signal_high, sde_threshold(run.c2))
