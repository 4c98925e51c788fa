import json

import numpy as np
import pytest
from scipy.stats import levy_stable

from svag.paper.illustrations.heavy_tails import CONTROL, CONTROL_ALPHA, TailMoments, heavy_tails

RNG_SEED = 5
# Over 20 seeds of 512 × 40: growth .02 to .07 (these Gaussians) and .17 to .98 (stable); 1/6 lies between.


def correlated(draws: int = 512, d: int = 40) -> np.ndarray:
    rng = np.random.default_rng(RNG_SEED)
    return 3.0 + rng.normal(size=(draws, d)) + 2.0 * rng.normal(size=(draws, 1))  # equal correlations of 0.8


def test_correlated_gaussians_are_not_heavy_tailed_but_read_so_end_to_end() -> None:
    found = heavy_tails(correlated())
    assert found.flat
    assert abs(found.growth) < 0.1
    assert found.alpha_low < 2 < found.alpha_high
    assert found.naive_alpha < 1.3, "the naive reading calls a Gaussian heavy-tailed"
    assert found.naive_alpha == pytest.approx(found.gaussian_alpha, abs=0.05), "and theory says what it will read"
    json.dumps(found.to_dict(), allow_nan=False)
    assert "stays flat" in str(found)


def test_stable_gradients_are_found_out() -> None:
    table = levy_stable.rvs(CONTROL_ALPHA, 0.0, size=(512, 40), random_state=np.random.default_rng(RNG_SEED))
    found = heavy_tails(table, seed=1)
    assert not found.flat
    assert found.alpha_low < CONTROL_ALPHA < found.alpha_high < 2
    assert "grows" in str(found)


def test_the_rows_double_and_the_trace_is_that_of_the_table() -> None:
    table = correlated()
    found = heavy_tails(table)
    assert [row.batches for row in found.rows] == [4, 8, 16, 32, 64, 128, 256, 512]
    assert found.rows[-1].noise_trace == pytest.approx(np.var(table, axis=0, ddof=1).sum())


def test_dead_coordinates_are_left_out_and_counted() -> None:
    table = correlated()
    table[:, 3] = 0.0
    assert heavy_tails(table).left_out == 1
    table[:, 1:] = 0.0
    with pytest.raises(ValueError, match="nearly every coordinate"):
        heavy_tails(table)
    with pytest.raises(ValueError, match=r"^gradients\b"):
        heavy_tails(np.ones((80, 4)))


@pytest.mark.parametrize("shape", [(10, 5), (90, 1), (90,)])
def test_too_little_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^gradients\b"):
        heavy_tails(np.ones(shape))


def test_the_traces_to_draw_are_the_rows_relative_to_the_first() -> None:
    found = heavy_tails(np.random.default_rng(0).standard_normal((400, 20)))
    points = found.traces("Gaussian")
    ours, control = ([point for point in points if point.source == name] for name in ("Gaussian", CONTROL))
    assert [point.noise_trace for point in ours] == [row.noise_trace for row in found.rows]
    assert [point.noise_trace for point in control] == [row.control for row in found.rows]
    assert (ours[0].relative, control[0].relative) == (1.0, 1.0)
    assert ours[-1].relative == pytest.approx(1, abs=0.3)
    assert control[-1].relative > 2


def test_several_moments_are_flat_only_if_each_is() -> None:
    rng = np.random.default_rng(0)
    calm = heavy_tails(rng.standard_normal((400, 20)))
    wild = heavy_tails(np.asarray(levy_stable.rvs(CONTROL_ALPHA, 0.0, size=(400, 20), random_state=rng)))
    assert TailMoments({10: calm, 40: calm}).flat
    assert not TailMoments({10: wild, 40: calm}).flat, "negative control: heavy tails at an early moment"
    found = TailMoments({10: wild, 40: calm})
    assert found.last is calm
    sources = dict.fromkeys(row.source for row in found.traces())
    assert list(sources) == ["after 10 steps", "after 40 steps", CONTROL]
    assert len(found.traces()) == len(wild.rows) + 2 * len(calm.rows)
    assert TailMoments.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert found.to_dict()["growth"] == calm.growth, "the end of the training leads"
