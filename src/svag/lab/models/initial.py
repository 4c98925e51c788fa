"""The first weights: N(0, 2/fan_in) everywhere, from one generator, with zero biases."""

import math
from collections.abc import Iterable

import torch
from torch import nn


def initialise(network: nn.Module, generator: torch.Generator | None) -> None:
    """Draw every convolution and linear layer of `network` from N(0, 2/fan_in) and set its bias to zero.

    Norms keep the ones and zeros they are made with.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            fan_in = layer.weight[0].numel()
            nn.init.normal_(layer.weight, std=math.sqrt(2 / fan_in), generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def silence(branch_ends: Iterable[nn.Conv2d]) -> None:
    """Start residual branches at zero, without which the stream of a network without norms doubles in every block."""
    for layer in branch_ends:
        nn.init.zeros_(layer.weight)


def freeze(layer: nn.Linear) -> None:
    """Take a layer out of training; it keeps its first weights."""
    for parameter in layer.parameters():
        parameter.requires_grad_(False)
