"""A perceptron with two hidden layers, for vectors and very small images."""

from torch import Tensor, nn

from svag.lab.models.norms import Norm, norm_layer


class MLP(nn.Module):
    """Linear → norm → ReLU twice, then a linear layer.

    Scale invariant because every linear layer but the last is followed by a norm.
    """

    def __init__(self, features: int, hidden: int, num_classes: int, norm: Norm, scale_free: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inside in (features, hidden):
            layers += [
                nn.Linear(inside, hidden, bias=norm == "none"),
                norm_layer(norm, hidden, scale_free=scale_free, image=False),
                nn.ReLU(inplace=True),
            ]
        self.features = nn.Sequential(*layers)
        self.linear = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch; images are flattened."""
        logits: Tensor = self.linear(self.features(x.flatten(1)))
        return logits
