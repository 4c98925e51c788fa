"""Networks of the user's own whose forward pass draws or mixes without a layer that says so."""

from torch import Tensor, nn


class Hidden(nn.Module):
    """One hidden layer, then a function instead of a module."""

    def __init__(self, pixels: int, num_classes: int, mixes: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(pixels, 8), nn.Linear(8, num_classes)
        self.mixes = mixes

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.flatten(1)).relu()
        changed = hidden - hidden.mean(0) if self.mixes else nn.functional.dropout(hidden, 0.1, self.training)
        logits: Tensor = self.last(changed)
        return logits


def dropping(in_channels: int, num_classes: int, image_size: tuple[int, int]) -> nn.Module:
    return Hidden(in_channels * image_size[0] * image_size[1], num_classes, mixes=False)


def mixing(in_channels: int, num_classes: int, image_size: tuple[int, int]) -> nn.Module:
    return Hidden(in_channels * image_size[0] * image_size[1], num_classes, mixes=True)
