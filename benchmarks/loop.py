"""Our loop against the bare forward+backward+update on batches already in memory, and where the time of a step goes.

Budget: at least 0.97 times the speed of the bare loop at batch 32 and 128 on the small network. Beside it: an ordinary
DataLoader loop with per-sample transforms. The three loops take turns at every step and move the same weights: a busy
machine slows them alike, and none is luckier with its place in memory. Times are processor times of one thread, added
up over 40 steps; each ratio is a median over such sums, with its middle half.
"""

import tempfile
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from statistics import fmean, median, quantiles

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from probe import seconds
from svag.lab.data.load import DataSet, load_data
from svag.lab.specs.spec import RunSpec
from svag.lab.training.loop import Loop, evaluate
from svag.lab.training.run import keep_freed_memory
from svag.lab.training.run_folder import RunFolder
from svag.lab.training.state import Progress, Run, save_checkpoint
from svag.lab.training.steppers import stepper_for
from svag.lab.training.streams import BatchStream
from svag.lab.training.training import Training, prepare
from svag.lab.training.watching import Lines

# a stream makes 20 batches of 32 at a time, or 5 of 128: every sum has the same number of draws in it
STEPS, ROUNDS, BUDGET = 40, 41, 0.97


def spec_at(batch_size: int, steps: int) -> RunSpec:
    return RunSpec.from_yaml(
        f"""
        data: {{name: fashion-small, augment: {{pad: 1, flip: true}}}}
        model: {{arch: preresnet8, norm: group, width: 0.5, scale_invariant: true}}
        batch_size: {batch_size}
        lr: 0.1
        weight_decay: 1.0e-3
        budget: {steps}
        evaluate: {{every: {steps}}}
        """
    )


class PerSample(Dataset[tuple[Tensor, int]]):
    """What most training scripts do: one image at a time, padded, cropped and flipped by itself."""

    def __init__(self, data: DataSet) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data.train_x)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        image = torch.nn.functional.pad(self._data.train_x[row], (1, 1, 1, 1))
        top, left, mirrored = torch.randint(3, (3,)).tolist()
        image = image[:, top : top + 14, left : left + 14]
        return image.flip(2) if mirrored == 0 else image, int(self._data.train_y[row])


def endless(loader: DataLoader[tuple[Tensor, int]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Epoch after epoch; `itertools.cycle` would keep the first and load nothing any more."""
    while True:
        yield from loader


def update(training: Training, batch: tuple[Tensor, Tensor]) -> None:
    training.optimizer.zero_grad()
    training.loss(batch).backward()
    training.optimizer.step()


class Measured:
    """One step of each of the three loops, at one batch size and with one network."""

    def __init__(self, data: DataSet, batch_size: int) -> None:
        spec = spec_at(batch_size, 10 * ROUNDS * STEPS)
        self._training = prepare(spec, data)
        draws = BatchStream(self._training.data, spec, "bench", batch_size)
        self._in_memory = cycle([draws.draw() for _ in range(40)])
        self._loader = endless(DataLoader(PerSample(data), batch_size=batch_size, shuffle=True, drop_last=True))
        stepper = stepper_for(self._training)
        run = Run(self._training, stepper, None, Progress(torch.zeros((), dtype=torch.float64)))
        self._folder = tempfile.TemporaryDirectory()
        folder = RunFolder(Path(self._folder.name), "bench", {})
        self._loop = Loop(run, folder, Lines(STEPS, quiet=True), save_seconds=1e9)

    def bare(self) -> None:
        update(self._training, next(self._in_memory))

    def ours(self) -> None:
        """The loop as it runs, without its evaluations and its final checkpoint, which are timed by themselves."""
        self._loop._take_step()
        self._loop._tell()

    def with_loader(self) -> None:
        update(self._training, next(self._loader))

    def seconds(self) -> dict[str, float]:
        """What STEPS steps of each loop take."""
        total = {"bare": 0.0, "ours": 0.0, "loader": 0.0}
        loops = list(zip(total, (self.bare, self.ours, self.with_loader), strict=True))
        for number in range(STEPS):  # whoever comes after another finds other caches: rotate
            for name, step in loops[number % 3 :] + loops[: number % 3]:
                total[name] += seconds(step)
        return total


def where_a_step_goes(data: DataSet, batch_size: int) -> None:
    training = prepare(spec_at(batch_size, STEPS), data)
    stream = BatchStream(training.data, training.spec, "bench", batch_size)
    parts: dict[str, list[float]] = {"draw": [], "forward": [], "backward": [], "update": []}
    for _ in range(10 * STEPS):
        times = [time.process_time()]
        batch = stream.draw()
        times.append(time.process_time())
        training.optimizer.zero_grad()
        loss = training.loss(batch)
        times.append(time.process_time())
        loss.backward()
        times.append(time.process_time())
        training.optimizer.step()
        times.append(time.process_time())
        for name, start, end in zip(parts, times, times[1:], strict=False):
            parts[name].append(end - start)
    shown = ", ".join(f"{name} {fmean(found) * 1e3:.2f} ms" for name, found in parts.items())
    print(f"where a step at batch {batch_size} goes: {shown}")


def main() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    data = load_data("fashion-small")
    for batch_size in (32, 128):
        measured = Measured(data, batch_size)
        turns = [measured.seconds() for _ in range(1 + ROUNDS)][1:]
        ours, theirs = ([turn["bare"] / turn[name] for turn in turns] for name in ("ours", "loader"))
        low, _, high = quantiles(ours, n=4)
        rate = median(batch_size * STEPS / turn["ours"] for turn in turns)
        print(
            f"batch {batch_size}: our loop at {median(ours):.3f} [{low:.3f}, {high:.3f}] of the bare loop's speed, "
            f"budget {BUDGET}: {'met' if median(ours) >= BUDGET else 'MISSED'}; a DataLoader with per-sample "
            f"transforms at {median(theirs):.3f}; {rate:.0f} images/s on one thread"
        )
        where_a_step_goes(data, batch_size)
    training = prepare(spec_at(32, 10), data)
    evaluation = median(seconds(lambda: evaluate(training)) for _ in range(3))
    run = Run(training, stepper_for(training), None, Progress(torch.zeros((), dtype=torch.float64)))
    with tempfile.TemporaryDirectory() as name:
        saving = median(seconds(lambda: save_checkpoint(Path(name) / "c.pt", run.state_dict())) for _ in range(5))
    print(f"one evaluation (10,000 images): {evaluation:.2f} s; one checkpoint: {saving * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
