"""Text: windows of characters, the transformer that reads them, and what a run on them is judged by."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.cli.answers import invoke

from svag.lab.data.load import load_text
from svag.lab.networks.architectures import Transformer, build_transformer
from svag.lab.specs.spec import RunSpec
from svag.lab.specs.text import TEXTS, TransformerSpec
from svag.lab.training.loop import loss_and_accuracy
from svag.lab.training.run import run
from svag.lab.training.training import load_inputs, prepare
from svag.lab.training.watching import describe
from svag.paper.cli.app import app

BASE: dict[str, Any] = {
    "data": {"name": "moby-dick", "context": 512, "subset": 40},
    "model": {"arch": "transformer", "depth": 2, "width": 8, "heads": 2},
    "optimizer": {"kind": "adamw"},
    "batch_size": 8,
    "lr": 0.01,
    "budget": 4,
}


def transformer(**fields: Any) -> Transformer:
    spec = TransformerSpec(arch="transformer", **{"depth": 2, "width": 8, "heads": 2, **fields})
    return build_transformer(spec, vocabulary=11, context=6, generator=torch.Generator().manual_seed(1)).double()


@pytest.fixture
def text() -> torch.Tensor:
    return torch.randint(11, (3, 6), generator=torch.Generator().manual_seed(2))


def test_windows_do_not_overlap_and_labels_are_the_next_characters() -> None:
    data, facts = load_text("moby-dick", 50), TEXTS["moby-dick"]
    assert (len(data.train_x), len(data.test_x)) == facts.windows(50)
    assert data.num_classes == 81 == int(data.train_x.max()) + 1
    for x, y in ((data.train_x, data.train_y), (data.test_x, data.test_y)):
        assert torch.equal(x.flatten()[1:], y.flatten()[:-1]), "one stretch of text, each character once"
    assert len(data.train_x) * 50 + 1 <= facts.test_from, "no training window looks into the test set"
    assert facts.characters - facts.test_from - len(data.test_x) * 50 <= 50, "nothing else is left out"


def test_the_embedded_text_is_small_and_says_where_it_is_from() -> None:
    folder = Path(load_text.__code__.co_filename).parent
    assert (folder / "moby_dick.xz").stat().st_size <= 1_500_000
    assert "public domain" in (folder / "moby_dick.LICENSE").read_text()


def test_subsets_are_nested() -> None:
    rows = [{tuple(row) for row in load_text("moby-dick", 64, subset=size).train_x.tolist()} for size in (20, 60)]
    assert rows[0] < rows[1]


def test_a_position_sees_nothing_that_comes_after_it(text: torch.Tensor) -> None:
    network = transformer()
    other = text.clone()
    other[:, 4:] = (other[:, 4:] + 1) % 11
    before, after = network(text), network(other)
    assert torch.allclose(before[:, :4], after[:, :4], rtol=0, atol=1e-12)
    assert bool(((before - after)[:, 4:].abs().amax(dim=-1) > 1e-6).all())


def test_every_position_sees_all_that_comes_before_it(text: torch.Tensor) -> None:
    network = transformer()
    other = text.clone()
    other[:, 0] = (other[:, 0] + 1) % 11
    assert bool(((network(text) - network(other)).abs().amax(dim=-1) > 1e-9).all())


def test_examples_do_not_see_each_other(text: torch.Tensor) -> None:
    network = transformer()
    alone = torch.cat([network(row.unsqueeze(0)) for row in text])
    assert torch.allclose(network(text), alone, rtol=0, atol=1e-12)


def test_a_tied_head_has_the_weights_of_the_embedding() -> None:
    tied, untied = transformer(tied=True), transformer(tied=False)
    sizes = [sum(p.numel() for p in network.parameters()) for network in (tied, untied)]
    assert sizes[1] - sizes[0] == 11 * 8


def test_first_weights_come_from_the_generator_only() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    one = transformer().state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    assert all(torch.equal(one[name], value) for name, value in transformer().state_dict().items())


def test_the_loss_is_a_mean_over_characters_and_that_of_an_example_over_its_own() -> None:
    spec = RunSpec.from_dict(BASE)
    training = prepare(spec, load_inputs(spec.data, None, torch.device("cpu")))
    batch = training.data.train_x[:4], training.data.train_y[:4]
    log = torch.log_softmax(training.model(batch[0]), dim=-1)
    terms = -log.gather(2, batch[1].unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(training.losses(batch), terms.mean(dim=1))
    torch.testing.assert_close(training.loss(batch), terms.mean())
    loss, accuracy = loss_and_accuracy(training.model, *batch)
    assert loss == pytest.approx(terms.mean().item(), rel=1e-6)
    assert accuracy == (log.argmax(dim=-1) == batch[1]).double().mean().item()


def test_a_run_is_evaluated_in_bits_per_character(tmp_path: Path) -> None:
    record = run(RunSpec.from_dict(BASE | {"evaluate": {"every": 4, "train": True}}), tmp_path, progress=False)
    first, last = record.evaluations
    assert first["test_loss"] == pytest.approx(math.log(81), rel=0.05), "at first it knows nothing"
    assert last["test_bits_per_character"] < first["test_bits_per_character"]
    for name in ("test", "train_set"):
        assert last[f"{name}_bits_per_character"] == last[f"{name}_loss"] / math.log(2)
    bits = last["test_bits_per_character"]
    assert f"{bits:.4f} bits per character of the test set" in str(record)
    assert describe(last).startswith(f"{bits:.4f} bits per character, test loss")
    assert f"{bits:.3f} bits" in invoke(app, ["list", str(tmp_path)]).output


def test_text_and_images_have_networks_of_their_own() -> None:
    for edits, reason in (
        ({"model": {"arch": "mlp"}}, r"^model\.arch: mlp\b.*transformer"),
        ({"data": {"name": "cifar10"}}, r"^model\.arch: .*cifar10.*data\.name"),
    ):
        with pytest.raises(Exception, match=reason):
            RunSpec.from_dict(BASE | edits)
