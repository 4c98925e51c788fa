import json

import pytest
import torch
from tests.noise.nets import batches, everything, loss_of, net, sgd
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from svag import Reading, price_list
from svag.noise.frozen import MOST_BATCHES, PartsComparison, compare_parts
from svag.noise.probe import NoiseProbe
from svag.prices.reasons import Code
from svag.theory.estimators import u_statistic


def test_parts_are_the_micro_batched_step_and_whole_the_plain_one() -> None:
    model, stream = net("batch"), batches(10, 32)
    before = everything(model)
    found = compare_parts(model, loss_of(model), stream, parts=4)
    assert everything(model) == before
    probe = NoiseProbe(model, sgd(model), batch_size=32)
    for reading, cut in ((found.parts, True), (found.whole, False)):
        gradients = []
        for batch in stream:
            model.zero_grad()
            if cut:
                probe.backward(loss_of(model), batch, parts=4)
            else:
                loss_of(model)(batch).backward()
            gradients.append(torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None]))
        rows = torch.stack(gradients)
        expected = u_statistic(float(rows.square().sum()), float(rows.sum(0).square().sum()), n=10)
        assert reading.grad_sq == pytest.approx(expected.grad_sq, rel=1e-10)
        assert reading.noise_trace == pytest.approx(expected.noise_trace, rel=1e-10)
        assert reading.approximate is cut
    assert "N/G in parts over N/G whole" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["ratio"] == found.ratio


def test_the_readings_of_the_probe_estimate_the_parts() -> None:
    """The N of a probe's readings and that of the comparison are two estimates of one number."""
    model, stream = net("batch"), batches(200, 16)
    found = compare_parts(model, loss_of(model), stream, parts=4)
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    for batch in stream:
        model.zero_grad()
        probe.backward(loss_of(model), batch, parts=4)
    values = torch.tensor([reading.noise_trace for reading in probe.readings])
    # both spread alike; 5 standard errors of their difference, which is 19% of N here
    error = 5 * 2**0.5 * float(values.std()) / len(stream) ** 0.5
    assert found.parts.noise_trace == pytest.approx(float(values.mean()), abs=error)
    assert error < 0.3 * found.parts.noise_trace


def test_batches_may_come_from_a_generator_and_one_part_is_none() -> None:
    model, stream = net("batch"), batches(4, 8)
    found = compare_parts(model, loss_of(model), (batch for batch in stream), parts=2)
    assert found == compare_parts(model, loss_of(model), stream, parts=2)
    with pytest.raises(ValueError, match=r"^parts\b.*got 1"):
        compare_parts(model, loss_of(model), stream, parts=1)


def test_batch_norm_in_small_parts_is_off_and_without_it_the_ratio_is_one() -> None:
    # over 12 seeds the ratio is at least 10 with BatchNorm in parts of 2
    stream = [(x, (x[:, 0] > 0).long()) for x, _ in batches(30, 32)]
    plain, normed = (compare_parts(m, loss_of(m), stream, parts=16).ratio for m in (net("layer"), net("batch")))
    assert plain == pytest.approx(1, rel=1e-10)
    assert normed is not None
    assert normed > 3


def test_an_unresolved_gradient_has_no_ratio() -> None:
    reading = Reading(grad_sq=-1.0, noise_trace=1.0, param_sq=1.0, batch_size=2, n=2)
    found = PartsComparison(reading, reading)
    assert found.ratio is None
    assert "give more batches" in str(found)


def easy(count: int, size: int) -> list[tuple[Tensor, Tensor]]:
    """Batches whose gradient is resolved: the label can be seen."""
    return [(x, (x[:, 0] > 0).long()) for x, _ in batches(count, size)]


def test_the_probe_compares_by_itself_once_and_leaves_no_trace() -> None:
    model, checked = net("batch", dropout=True), net("batch", dropout=True)
    asked: list[int] = []

    def loader() -> object:
        for number, batch in enumerate(easy(100, 32)):
            asked.append(number)
            yield batch

    probes = (
        NoiseProbe(model, sgd(model), batch_size=32),
        NoiseProbe(checked, sgd(checked), batch_size=32, check=loader()),  # type: ignore[arg-type]
    )
    states = []
    for network, probe in zip((model, checked), probes, strict=True):
        torch.manual_seed(0)
        optimizer = sgd(network)
        for batch in easy(5, 32):
            optimizer.zero_grad()
            probe.backward(loss_of(network), batch, parts=4)
            optimizer.step()
        states.append(everything(network))
    assert states[0] == states[1], "the training is the same, bit for bit"
    assert asked == list(range(MOST_BATCHES)), "once, and no more batches than needed"
    plain, compared = probes
    assert plain.comparison is None
    assert compared.comparison is not None
    assert compared.comparison.ratio is not None
    assert [r.parts_ratio for r in plain.readings] == [None] * 5
    assert [r.parts_ratio for r in compared.readings] == [compared.comparison.ratio] * 5
    assert (compared.comparison.whole.n, compared.comparison.whole.batch_size) == (20, 32)


def test_the_comparison_is_at_the_weights_of_the_first_step_and_of_the_measured_parameters() -> None:
    model = net("batch")
    chosen = [model[0].weight]  # type: ignore[index]
    expected = compare_parts(model, loss_of(model), easy(8, 32), parts=2, parameters=chosen)
    probe = NoiseProbe(model, sgd(model), batch_size=32, check=easy(8, 32), parameters=chosen)
    probe.backward(loss_of(model), easy(1, 32)[0], parts=2)
    assert probe.comparison == expected
    assert expected.whole.param_sq == pytest.approx(float(chosen[0].detach().square().sum()), rel=1e-12)


def test_without_batch_norm_nothing_is_compared_and_a_moment_can_be_chosen() -> None:
    model = net("layer")
    probe = NoiseProbe(model, sgd(model), batch_size=32, check=iter([]))
    probe.backward(loss_of(model), easy(1, 32)[0])
    assert probe.comparison is None
    normed = net("batch")
    probe = NoiseProbe(normed, sgd(normed), batch_size=32, check=iter([]))
    found = probe.compare(loss_of(normed), easy(8, 32), parts=4)
    assert probe.comparison is found
    probe.backward(loss_of(normed), easy(1, 32)[0])
    assert probe.readings[0].parts_ratio == found.ratio


def test_a_comparison_after_the_run_counts_for_the_readings_before_it() -> None:
    model = net("batch")
    probe = NoiseProbe(model, sgd(model), batch_size=32)
    for batch in easy(30, 32):
        model.zero_grad()
        probe.backward(loss_of(model), batch)
    codes = {reason.code for reason in probe.price_list().reasons}
    assert Code.PARTS_UNCHECKED in codes
    found = probe.compare(loss_of(model), easy(8, 32))
    compared = next(reason for reason in probe.price_list().reasons if reason.code in (Code.PARTS_NEAR, Code.PARTS_FAR))
    assert compared.values["ratio"] == found.ratio is not None
    assert Code.PARTS_UNCHECKED not in {reason.code for reason in probe.price_list().reasons}
    assert {reading.parts_ratio for reading in probe.readings} == {None}, "readings stay what was measured"


def test_a_loader_is_left_where_it_was() -> None:
    x, y = (torch.cat(parts) for parts in zip(*easy(10, 32), strict=True))
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True, generator=generator)
    model = net("batch")
    before = everything(model, generator)
    probe = NoiseProbe(model, sgd(model), batch_size=32)
    assert probe.compare(loss_of(model), loader).whole.n == 10
    assert everything(model, generator) == before


def test_batches_of_another_size_are_refused_and_the_model_is_as_it_was() -> None:
    model = net("batch")
    before = everything(model)
    probe = NoiseProbe(model, sgd(model), batch_size=32, check=easy(4, 16))
    with pytest.raises(ValueError, match=r"16 examples.*batch_size=32"):
        probe.backward(loss_of(model), easy(1, 32)[0])
    assert everything(model) == before
    assert probe.comparison is None


@pytest.mark.parametrize(
    ("ratio", "resolved", "code"),
    [
        (1.12, True, Code.PARTS_NEAR),
        (None, True, Code.PARTS_UNCHECKED),
        (2.5, False, Code.PARTS_FAR),
        (0.4, False, Code.PARTS_FAR),
    ],
)
def test_the_price_list_says_by_how_much(ratio: float | None, resolved: bool, code: Code) -> None:
    readings = [
        Reading(g, n, 5.5 / 1.95e-1, batch_size=128, n=4, lr=0.5, weight_decay=0.1, approximate=True, parts_ratio=ratio)
        for g, n in [(0.9, 9.0), (0.9, 11.0), (1.1, 9.0), (1.1, 11.0)] * 100
    ]
    found = price_list(readings)
    assert (found.resolved, found.linear.proved) == (resolved, resolved)
    [reason] = [one for one in found.reasons if one.code == code]
    assert reason.values == ({} if ratio is None else {"ratio": ratio})
