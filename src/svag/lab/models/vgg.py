"""VGG-11/13/16/19 for small images (Simonyan, Zisserman 2015; fig:app_svag_otherarch)."""

from torch import Tensor, nn

from svag.lab.models.norms import Norm, norm_layer

# Convolutions in each of the five stages. The name counts three linear layers more, of which small images need one.
STAGES: dict[int, tuple[int, ...]] = {
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}
CHANNELS = (64, 128, 256, 512, 512)


class VGG(nn.Module):
    """Five stages of 3×3 convolutions, each ending in a pooling, then a linear layer.

    Pooling rounds sizes up, so that 14×14 ends at 1×1 as 32×32 does; whatever is left is averaged. Scale invariant:
    every convolution is followed by a norm; the pooling is then the average instead of the maximum, as in the paper.
    """

    def __init__(
        self, depth: int, widths: tuple[int, ...], in_channels: int, num_classes: int, norm: Norm, scale_free: bool
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = in_channels
        for convolutions, out in zip(STAGES[depth], widths, strict=True):
            for _ in range(convolutions):
                layers += [
                    nn.Conv2d(channels, out, 3, padding=1, bias=norm == "none"),
                    norm_layer(norm, out, scale_free=scale_free),
                    nn.ReLU(inplace=True),
                ]
                channels = out
            layers.append(nn.AvgPool2d(2, ceil_mode=True) if scale_free else nn.MaxPool2d(2, ceil_mode=True))
        self.features = nn.Sequential(*layers)
        self.linear = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch of images of any size."""
        logits: Tensor = self.linear(self.features(x).mean((2, 3)))
        return logits
