"""Kill runs in the middle and see whether they end as if nothing had happened.

A program of its own: it imports torch once, with one thread, and forks for every run that is to be killed. It reads
trials from standard input and writes one verdict for each to standard output.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.lab.training.small import same_bits

from svag.lab.records.storage import Journal, replace_file
from svag.lab.specs.spec import RunSpec
from svag.lab.training import loop, measuring, state
from svag.lab.training.run import run
from svag.lab.training.training import Training
from svag.noise.frozen import compare_parts, measure_noise
from svag.noise.probe import NoiseProbe


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(function: Callable[..., Any], countdown: int) -> Callable[..., Any]:
    """The function, deadly at its `countdown`-th call."""
    left = [countdown]

    def call(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            die()
        return function(*args, **kwargs)

    return call


def arm(event: str, count: int) -> None:
    """Die at the `count`-th event of this kind."""
    match event:
        case "training":
            Training.loss = dying(Training.loss, count)  # type: ignore[method-assign]
            Training.losses = dying(Training.losses, count)  # type: ignore[method-assign]
        case "evaluation":
            loop.loss_and_accuracy = dying(loop.loss_and_accuracy, count)
        case "probing":
            setattr(measuring, "measure_noise", dying(measure_noise, count))  # noqa: B010  # imported there by name
            NoiseProbe._keep = dying(NoiseProbe._keep, count)  # type: ignore[method-assign]
        case "comparing":
            setattr(measuring, "compare_parts", dying(compare_parts, count))  # noqa: B010
        case "saving":
            whole, left = replace_file, [count]

            def half(path: Path, content: bytes) -> None:
                left[0] -= 1
                if left[0] == 0:
                    path.with_name(path.name + ".part").write_bytes(content[: len(content) // 2])
                    die()
                whole(path, content)

            setattr(state, "replace_file", half)  # noqa: B010
        case "writing":
            append, rest = Journal.append, [count]

            def torn(self: Journal, rows: Any) -> None:
                rest[0] -= 1
                if rest[0] == 0:
                    self._file.write(b'{"kind": "evaluation", "st')
                    self._file.flush()
                    die()
                append(self, rows)

            Journal.append = torn  # type: ignore[method-assign]
        case _:
            raise ValueError(event)


def killed_child(spec: RunSpec, folder: Path, save_seconds: float, event: str, count: int, within: float) -> bool:
    """Run in a child that dies at an event, or at a random moment within so many seconds; whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            if event != "moment":
                arm(event, count)
            run(spec, folder, device="cpu", progress=False, save_seconds=save_seconds)
        finally:
            os._exit(0)
    if event == "moment":
        time.sleep(random.Random(count).uniform(0.0, within))
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def trial(number: int, order: dict[str, Any], work: Path) -> dict[str, Any]:
    spec = RunSpec.from_dict(order["spec"])
    straight, broken = work / f"{number}-straight", work / f"{number}-broken"
    begun = time.monotonic()
    run(spec, straight, device="cpu", progress=False)
    # Each kill falls within the duration of an undisturbed run over their number: hardly any comes after the end.
    within, saves = (time.monotonic() - begun) / len(order["kills"]), order["save_seconds"]
    killed = [killed_child(spec, broken, saves, event, count, within) for event, count in order["kills"]]
    record = run(spec, broken, device="cpu", progress=False, save_seconds=saves)
    same = same_bits(straight, broken)
    shutil.rmtree(straight)
    shutil.rmtree(broken)
    return {"killed": killed, "same": same, "state": record.state}


def main() -> None:
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1)], lr=1.0)  # the first one imports for a second, which is no part of a run
    order = json.load(sys.stdin)
    verdicts = [trial(number, one, Path(order["work"])) for number, one in enumerate(order["trials"])]
    json.dump(verdicts, sys.stdout)


if __name__ == "__main__":
    main()
