"""Every public result shows itself in a notebook as it prints itself, and at a prompt in one short line."""

import html
from collections.abc import Iterator

import pytest
import torch
from torch import Generator, nn
from torch.optim import SGD

import svag
import svag.lab
import svag.theory
from svag.printed import Printed

RESULTS = {
    name: made
    for package in (svag, svag.lab, svag.theory)
    for name in package.__all__
    if isinstance(made := getattr(package, name), type)
    and not issubclass(made, Exception)
    and (made.__str__ is not object.__str__ or made.__module__.startswith("svag.theory"))
    and name != "RunSpec"  # prints its fields; `to_yaml` is its readable form
}


def test_the_public_results_are_found() -> None:
    assert {"PriceList", "Reading", "Price", "SDEVerdict", "LadderFinding", "RunRecord"} <= set(RESULTS)


@pytest.mark.parametrize("name", RESULTS)
def test_a_public_result_shows_itself_in_a_notebook(name: str) -> None:
    assert issubclass(RESULTS[name], Printed)


def test_what_is_shown_is_what_is_printed_and_stays_text() -> None:
    reading = svag.Reading(0.5, 8.0, 100.0, batch_size=128, n=4, run="<script>")
    assert html.unescape(reading._repr_html_()) == f"<p><b>{reading}</b></p>"
    verdict = svag.scaling_verdict({32: [0.1, 0.11], 64: [0.1, 0.12], 128: [0.3, 0.31]})
    shown = verdict._repr_html_()
    first, *rest = str(verdict).splitlines()
    assert shown.startswith(f"<p><b>{html.escape(first)}</b></p>")
    assert all(html.escape(line) in shown for line in rest)
    assert "<p>" not in html.escape(shown)


def test_a_scaling_prints_its_settings() -> None:
    scaled = svag.theory.square_root_scaling(4, lr=0.001, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    assert "lr=0.002" in scaled._repr_html_()


def shown_at_a_prompt() -> Iterator[object]:
    readings = [svag.Reading(1.0, 2.0 + k / 50, 1.0, 32, 4, step=k, lr=0.1, optimizer="SGD") for k in range(400)]
    found = svag.price_list(readings)
    [price] = found.prices([64])
    yield from (readings[0], found, found.prices(), price, price.plan, price.factors, price.linear, found.linear)
    yield from (found.noise_scale, found.history, found.history.phases[0], *found.reasons, found.batch_schedule(1.5))
    yield svag.sde_verdict({1: [0.9, 0.91, 0.92], 4: [0.9, 0.91, 0.92], 16: [0.9, 0.91, 0.92]}, 0.01)
    yield svag.scaling_verdict({16: [0.1, 0.11, 0.1], 32: [0.1, 0.11, 0.1], 64: [0.2, 0.21, 0.2]})
    yield svag.BatchSampler(10, 4, generator=Generator())
    models = [nn.Linear(4, 1) for _ in range(4)]
    first, second, third, fourth = (SGD(model.parameters(), lr=0.1) for model in models)
    yield svag.SVAG(models[0], first, ell=4)
    yield svag.NoisyGD(models[1], second, batch_size=4, dataset_size=8, generator=Generator())
    yield svag.GainRule.planned(third, price.plan)
    probe = svag.NoiseProbe(models[3], fourth, batch_size=8)
    rule = svag.GainRule(probe, base_batch_size=4, base_steps=10)
    yield from (probe, probe.readings, rule)
    probe.backward(lambda x: models[3](x).square().mean(), torch.arange(32.0).reshape(8, 4) / 32)
    fourth.step()
    yield from (probe, probe.readings, rule)


def test_a_repr_is_one_short_line() -> None:
    for thing in shown_at_a_prompt():
        line = repr(thing)
        assert "\n" not in line
        assert len(line) <= 140, line
        assert " object at 0x" not in line
    assert repr(svag.Estimate(229.4123, 212.1234, 248.7654)) == "<svag.Estimate: 229 [212, 249]>"
