import pytest
import torch
from torch import nn

from svag.noise.parameters import inner_product, measured_parameters, square_norm


def test_a_tied_parameter_counts_once_and_a_frozen_one_not_at_all() -> None:
    one, two = nn.Linear(3, 3), nn.Linear(3, 3)
    two.weight = one.weight
    two.bias.requires_grad_(False)
    model = nn.Sequential(one, two)
    assert list(measured_parameters(model)) == ["0.weight", "0.bias"]


def test_parameters_restrict_what_is_measured() -> None:
    model = nn.Linear(3, 2)
    assert list(measured_parameters(model, [model.weight, model.weight])) == ["weight"]


def test_refusals() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(TypeError, match=r"^parameters\b"):
        measured_parameters(model, model.weight)
    with pytest.raises(ValueError, match=r"^1 .*parameters\(\)"):
        measured_parameters(model, [nn.Parameter(torch.zeros(1))])
    with pytest.raises(ValueError, match="nothing to measure"):
        measured_parameters(model.requires_grad_(False))
    with pytest.raises(ValueError, match="nothing to measure"):
        measured_parameters(nn.ReLU())
    with pytest.raises(TypeError, match=r"weight .*complex"):
        measured_parameters(nn.Linear(2, 2, dtype=torch.complex64))


@pytest.mark.parametrize("shape", [(2000, 1000), (2_000_000,), (1000, 200, 10)])
def test_large_tensors_keep_six_digits(shape: tuple[int, ...]) -> None:
    tensor = torch.full(shape, 1.1)
    exact = tensor.double().square().sum()
    # one single-precision norm of 10 million entries is off by 4e-3: the reason for summing by rows
    assert float(square_norm([tensor])) == pytest.approx(float(exact), rel=1e-6)


def test_mixed_dtypes_and_shapes() -> None:
    tensors = [torch.tensor(3.0), torch.tensor([4.0], dtype=torch.float16), torch.zeros(2, 2, dtype=torch.float64)]
    assert float(square_norm(tensors)) == 25.0
    assert float(inner_product(tensors, tensors)) == 25.0
    big = torch.full((4,), 60000.0, dtype=torch.float16)  # its square overflows in its own precision
    assert float(square_norm([big])) == pytest.approx(4 * 60000.0**2, rel=1e-3)


def test_memory_formats_do_not_matter() -> None:
    tensor = torch.arange(24.0).reshape(1, 2, 3, 4)
    other = tensor.contiguous(memory_format=torch.channels_last)
    assert float(square_norm([other])) == pytest.approx(float(square_norm([tensor])), rel=1e-6)
    assert float(inner_product([tensor], [other])) == pytest.approx(float(square_norm([tensor])), rel=1e-6)


def test_sparse_is_refused() -> None:
    with pytest.raises(ValueError, match="sparse=False"):
        square_norm([torch.zeros(3).to_sparse()])
