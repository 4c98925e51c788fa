"""Normalisation layers: ordinary ones, and ones whose output is exactly invariant under scaling of the input.

The ordinary layers have learnt scales and an eps, and both break scale invariance. The scale-free ones have neither:

    y = (x − mean) / std,    and y = 0 where var ≤ 16 ε mean²

with ε the rounding unit of the data type. A group of values that is constant up to rounding has no direction left;
without the guard its rounding errors would be blown up to size 1 and its gradient to 1e15. The guard is relative, hence
itself scale invariant.
"""

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from svag.lab.specs.parts import Norm

NORMS: tuple[Norm, ...] = get_args(Norm)

TINY = 1e-30
"""The eps of the scale-free layers: torch refuses 0, and this one moves L(cx) by less than rounding does."""


@dataclass(frozen=True)
class Flags:
    """The arguments that a network may take; the defaults are those of `build_model`."""

    norm: Norm = "batch"
    width: float = 1
    in_channels: int = 3
    num_classes: int = 10
    scale_invariant: bool = False
    image_size: tuple[int, int] = (32, 32)


def norm_layer(channels: int, flags: Flags, *, image: bool = True) -> nn.Module:
    """Return one normalisation layer for `channels` channels of an image, or features of a vector.

    >>> norm_layer(16, Flags("group", scale_invariant=True))
    ScaleFreeGroupNorm(groups=8)
    >>> norm_layer(16, Flags("layer", scale_invariant=True))
    ScaleFreeGroupNorm(groups=1)
    """
    if flags.norm == "none":
        return nn.Identity()
    if flags.norm == "batch":
        if flags.scale_invariant:
            return ScaleFreeBatchNorm(channels)
        return nn.BatchNorm2d(channels) if image else nn.BatchNorm1d(channels)
    groups = group_count(channels) if flags.norm == "group" else 1
    return ScaleFreeGroupNorm(groups) if flags.scale_invariant else nn.GroupNorm(groups, channels)


def group_count(channels: int) -> int:
    """Return the number of groups of GroupNorm: 8, or fewer where a group would have less than 2 channels.

    The authors have 8 everywhere, and never fewer than 16 channels. The number must divide `channels`.

    >>> [group_count(channels) for channels in (2, 4, 8, 16, 32, 36, 64)]
    [1, 2, 4, 8, 8, 6, 8]
    """
    wanted = max(1, min(8, channels // 2))
    return max(groups for groups in range(1, wanted + 1) if channels % groups == 0)


class ScaleFreeGroupNorm(nn.Module):
    """GroupNorm without learnt scale and without eps; `groups=1` is LayerNorm over channels and positions."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each group of each example."""
        n, channels = x.shape[:2]
        pixels = x.numel() // (n * channels)
        x = x if x.is_cpu else x.contiguous()  # on other devices torch's kernel requires this
        y, mean, rstd = torch.native_group_norm(x, None, None, n, channels, pixels, self.groups, TINY)
        ratio = _mean_over_std(mean, rstd)
        if _all_vary(ratio):
            return y
        # one number for each channel: a view of y by groups would cost twice as much in channels_last
        varies = (ratio < 1).repeat_interleave(channels // self.groups, dim=1)
        return y * varies.to(y.dtype).view(n, channels, *[1] * (y.dim() - 2))

    def extra_repr(self) -> str:
        """Say how many groups there are."""
        return f"groups={self.groups}"


class ScaleFreeBatchNorm(_BatchNorm):
    """BatchNorm without learnt scale and without eps, for vectors and images.

    A subclass of torch's BatchNorm, so that code that looks for one, to adapt its momentum or to refuse it, finds it.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=TINY, affine=False)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name in torch's signature
        """Normalise each channel over the batch, or by the running statistics in evaluation mode."""
        mean, var = self.running_mean, self.running_var
        assert mean is not None
        assert var is not None
        if self.training and input.numel() == input.shape[1]:
            raise ValueError(
                "BatchNorm in training mode needs more than one value per channel: use a batch of at least 2 examples"
            )
        y, batch_mean, batch_rstd = torch.native_batch_norm(
            input, None, None, mean, var, self.training, self._next_momentum(), TINY
        )
        if not self.training:
            batch_mean, batch_rstd = mean, (var + TINY).rsqrt()
        ratio = _mean_over_std(batch_mean, batch_rstd)
        if _all_vary(ratio):
            return y
        return y * (ratio < 1).to(y.dtype).view(1, -1, *[1] * (y.dim() - 2))

    def _next_momentum(self) -> float:
        """Count the batch; a momentum of None means the cumulative average, as in torch."""
        if not self.training:
            return 0.0
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        return 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum


def _mean_over_std(mean: Tensor, rstd: Tensor) -> Tensor:
    """Return |mean|/std in units of the largest one trusted; an offset makes it large for an all-zero group too."""
    limit = (16 * torch.finfo(mean.dtype).eps) ** -0.5
    offset = 2 * limit * TINY**0.5
    return mean.detach().abs().add_(offset).mul_(rstd.detach() / limit)


def _all_vary(ratio: Tensor) -> bool:
    """Whether the guard can be skipped, if that can be checked.

    On a CPU the check saves a pass over the activations, 3 to 18% of a training step. On a GPU the check would cost
    more than the pass; a compiled graph must not branch on data, and under `torch.vmap` there is no single answer.
    """
    if ratio.is_cuda or torch.compiler.is_compiling():
        return False
    try:
        return bool(ratio.max() < 1)
    except RuntimeError:  # vmap refuses to decide for all examples at once
        return False
