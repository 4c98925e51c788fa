"""ResNet-d: residual blocks with the normalisation after each convolution (He et al. 2015; fig:app_lsr_c10)."""

import torch
from torch import Tensor, nn

from svag.lab.models.norms import Norm, norm_layer


class ResNet(nn.Module):
    """Three stages of (d−2)/6 blocks with 16, 32, 64 channels times the width, then mean pooling and a linear layer.

    Scale invariant: every convolution, also that of a shortcut, is followed by a norm, so that every stream is of
    degree 0 in the weights. The paper uses this network unmodified only.
    """

    def __init__(
        self, depth: int, widths: tuple[int, int, int], in_channels: int, num_classes: int, norm: Norm, scale_free: bool
    ) -> None:
        super().__init__()
        channels = widths[0]
        self.stem = _conv_norm(in_channels, channels, 3, 1, norm, scale_free)
        self.blocks = nn.Sequential()
        for stage, out in enumerate(widths):
            for index in range((depth - 2) // 6):
                stride = 2 if stage > 0 and index == 0 else 1
                self.blocks.append(_Block(channels, out, stride, norm, scale_free))
                channels = out
        self.linear = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch of images of any size."""
        x = self.blocks(torch.relu_(self.stem(x)))
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits

    def branch_ends(self) -> list[nn.Conv2d]:
        """Return the last convolution of every residual branch."""
        blocks = (block for block in self.blocks if isinstance(block, _Block))
        return [layer for block in blocks for layer in block.second if isinstance(layer, nn.Conv2d)]


class _Block(nn.Module):
    def __init__(self, inside: int, out: int, stride: int, norm: Norm, scale_free: bool) -> None:
        super().__init__()
        self.first = _conv_norm(inside, out, 3, stride, norm, scale_free)
        self.second = _conv_norm(out, out, 3, 1, norm, scale_free)
        projects = stride != 1 or inside != out
        self.shortcut = _conv_norm(inside, out, 1, stride, norm, scale_free) if projects else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        branch = self.second(torch.relu_(self.first(x)))
        return torch.relu_(branch + self.shortcut(x))


def _conv_norm(inside: int, out: int, kernel: int, stride: int, norm: Norm, scale_free: bool) -> nn.Sequential:
    conv = nn.Conv2d(inside, out, kernel, stride, padding=kernel // 2, bias=norm == "none")
    return nn.Sequential(conv, norm_layer(norm, out, scale_free=scale_free))
