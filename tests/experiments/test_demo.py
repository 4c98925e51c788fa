"""The demo asks the two questions: a baseline first, then what checks it."""

from svag.experiments.demo import SCALING, SDE, baseline_runs


def test_the_ladder_begins_with_its_own_baseline() -> None:
    runs = SCALING.runs()
    assert [(spec.batch_size, spec.lr) for spec in runs if spec.seed == 0] == [(8, 0.025), (32, 0.1), (128, 0.4)]
    assert len(runs) == 6
    assert all(spec in runs for spec in baseline_runs())


def test_the_sde_question_compares_sgd_with_svag_at_one_large_batch() -> None:
    runs = SDE.runs()
    assert {(spec.process.kind, spec.batch_size) for spec in runs} == {("sgd", 512), ("svag", 512)}
    assert len(runs) == 6
