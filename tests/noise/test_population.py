"""A population that was left out is mentioned where the loop shows it."""

import warnings

import pytest
from tests.noise.nets import data, loss_of, net
from torch.optim import SGD
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from svag import NoiseProbe
from svag.noise.batches import without_population


def test_a_loader_given_as_check_shows_it() -> None:
    model, examples = net(), TensorDataset(*data(64))
    optimizer = SGD(model.parameters(), lr=0.1)
    with pytest.warns(UserWarning, match=r"population=64\b.*\b1\.33\b"):
        NoiseProbe(model, optimizer, batch_size=16, check=DataLoader(examples, batch_size=16, shuffle=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = DataLoader(examples, batch_size=16, shuffle=True)
        NoiseProbe(model, optimizer, batch_size=16, population=64, check=loader)
        drawn = DataLoader(examples, batch_size=16, sampler=RandomSampler(examples, replacement=True))
        NoiseProbe(model, optimizer, batch_size=16, check=drawn)
        NoiseProbe(model, optimizer, batch_size=16, check=[data(16)])


@pytest.mark.parametrize(("population", "told"), [(None, True), (40, False)])
def test_the_short_batch_at_the_end_of_an_epoch_shows_it(population: int | None, told: bool) -> None:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1)
    probe = NoiseProbe(model, optimizer, batch_size=16, population=population)

    def two_epochs() -> None:
        for size in (16, 16, 8) * 2:
            optimizer.zero_grad()
            probe.backward(loss_of(model), data(size), parts=4)

    with pytest.warns(UserWarning, match=" 8 examples") as said:
        two_epochs()
    assert len(said) == 1
    assert ("population=40" in str(said[0].message)) is told


def test_a_batch_that_is_a_small_part_of_the_data_is_not_worth_a_word() -> None:
    assert without_population(16, 10_000) == ""
    assert without_population(16, 16) == "", "a full batch is no sample"
