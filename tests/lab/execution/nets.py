"""Networks of a user's own to which something happens at their ninth forward pass: in effective step 7 of 10.

Passes: an evaluation, four steps, an evaluation, steps. A copy is tried before the run, which counts for the copy only.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from torch import Tensor, nn

DEATHS, GO = "SVAG_TEST_DEATHS", "SVAG_TEST_GO"


class Eventful(nn.Module):
    def __init__(self, features: int, classes: int, event: Callable[[], None]) -> None:
        super().__init__()
        self.linear = nn.Linear(features, classes)
        self.event, self.left = event, 9

    def forward(self, images: Tensor) -> Tensor:
        self.left -= 1
        if self.left == 0:
            self.event()
        scores: Tensor = self.linear(images.flatten(1))
        return scores


def die_if_told() -> None:
    """Die if the file of deaths still holds one, which is then used up."""
    file = Path(os.environ[DEATHS])
    if deaths := file.read_text():
        file.write_text(deaths[1:])
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_go() -> None:
    """Say that it waits, by a file of its own; then wait."""
    Path(f"{os.environ[GO]}.awaited.{os.getpid()}").touch()
    while not Path(os.environ[GO]).exists():
        time.sleep(0.02)


def fail() -> None:
    raise RuntimeError("no more of this")


def build_deadly(in_channels: int, num_classes: int, image_size: tuple[int, int]) -> nn.Module:
    print("a user's network may print")
    return Eventful(in_channels * image_size[0] * image_size[1], num_classes, die_if_told)


def build_waiting(in_channels: int, num_classes: int, image_size: tuple[int, int]) -> nn.Module:
    return Eventful(in_channels * image_size[0] * image_size[1], num_classes, wait_for_go)


def build_failing(in_channels: int, num_classes: int, image_size: tuple[int, int]) -> nn.Module:
    return Eventful(in_channels * image_size[0] * image_size[1], num_classes, fail)


def build_nothing(in_channels: int, num_classes: int, image_size: tuple[int, int]) -> nn.Module:
    raise RuntimeError("there is no such network")
