"""The state of a run, and how it is saved in a checkpoint, loaded from one, or sent from rank 0 to all ranks.

A checkpoint is one file, replaced as a whole, with everything that a run needs to continue as if it had never stopped.
The file is the output of `torch.save` followed by its SHA-256, as torch itself does not notice a damaged number.
"""

import hashlib
import io
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from svag.lab.records.storage import read_file, replace_file
from svag.lab.specs.fields import shown
from svag.lab.training.measuring import FrozenReadings
from svag.lab.training.ranks import Ranks
from svag.lab.training.steppers import GainStepper, Stepper
from svag.lab.training.streams import AHEAD
from svag.lab.training.training import Training, local_batch_norms
from svag.noise.reading import Reading

FORMAT = 4
_SHA256 = hashlib.sha256().digest_size


class CheckpointError(Exception):
    """A checkpoint cannot be used; the message is one sentence that says what to do."""


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Replace the checkpoint by `state`, all or nothing."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **state}, buffer)
    content = buffer.getvalue()
    replace_file(path, content + hashlib.sha256(content).digest())


# More bytes than any checkpoint has: a longer file is not read.
_LARGEST = 2**36


def load_checkpoint(path: Path, identity: str, device: torch.device) -> dict[str, Any] | None:
    """Read a checkpoint of the run with this identity; None if there is none. Only tensors are unpickled."""
    if not path.exists():
        return None
    try:
        file = read_file(path, _LARGEST)
    except (OSError, MemoryError) as error:
        raise CheckpointError(f"{path} cannot be read: remove it to start the run anew") from error
    content, sha256 = file[:-_SHA256], file[-_SHA256:]
    if hashlib.sha256(content).digest() != sha256:
        raise CheckpointError(f"{path} is damaged, or of an earlier version: remove it to start the run anew")
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # an invalid pickle, or one of other things than tensors, fails in many ways
        raise CheckpointError(f"{path} cannot be read: remove it to start the run anew") from error
    if not isinstance(state, dict) or not all(isinstance(state.get(name), str) for name in ("identity", "device")):
        raise CheckpointError(f"{path} holds no state of a run: remove it to start the run anew")
    made_on = state["device"]
    known = state.get("format")
    if not isinstance(known, int) or known != FORMAT or state["identity"] != identity:
        raise CheckpointError(f"{path} belongs to another run or version: remove it to start the run anew")
    if made_on != device.type:
        raise CheckpointError(
            f"{path} was made on {made_on}, and the numbers would differ: continue with --device "
            f"{made_on}, or remove it to start the run anew on {device.type}"
        )
    return state


def check_state(state: dict[str, Any], run: "Run") -> None:
    """Raise ValueError for a state that does not belong to this run; nothing is changed.

    Every value must have the type, range or shape that it has in the run now. The optimizer has no state yet, so each
    of its tensors must have the shape of its parameter or be a single number.

    Args:
        state: content of a checkpoint.
        run: the run before its first step.
    """
    fresh = run.state_dict()
    if missing := [name for name in (*fresh, "metrics_length", "metrics_sha256") if name not in state]:
        raise ValueError(f"it has no {missing[0]}")
    steps = run.training.spec.steps(run.training.examples)
    step = _whole("step", state["step"], 0, steps)
    gained = isinstance(run.stepper, GainStepper)
    for name in ("loss_count", "since_row") if gained else ("loss_count",):
        # there can be more updates than effective steps: a shortened one is worth less than one effective step
        _whole(name, state[name], 0, 10**18 if gained else step)
    _whole("metrics_length", state["metrics_length"], 0, 10**18)
    _whole("threads", state["threads"], 1, 1024)
    for name in ("time", "seconds", "loss_offset"):
        _number(name, state[name], at_least=-math.inf if name == "loss_offset" else 0.0)
    if state["parts_ratio"] is not None:
        _number("parts_ratio", state["parts_ratio"], at_least=0.0)
    if not isinstance(state["processes"], list) or not 0 < len(state["processes"]) <= 10_000:
        raise ValueError(f"processes must be a list of numbers, got {shown(state['processes'])}")
    for count in state["processes"]:
        _whole("processes", count, 1, 10_000)
    for name in ("loss_sum", "model", "stepper", "frozen", "random", "random_cuda"):
        _alike(name, state[name], fresh[name])
    _check_optimizer(state["optimizer"], fresh["optimizer"], run.training.optimizer)


def _check_optimizer(state: Any, fresh: dict[str, Any], optimizer: torch.optim.Optimizer) -> None:
    if not isinstance(state, dict) or not isinstance(state.get("state"), dict):
        raise ValueError(f"optimizer must be a state of torch.optim, got {shown(type(state))}")
    _alike("optimizer.param_groups", state.get("param_groups"), fresh["param_groups"])
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, kept in state["state"].items():
        _whole("a parameter of the optimizer", index, 0, len(parameters) - 1)
        if not isinstance(kept, dict):
            raise ValueError(f"optimizer.state.{index} must hold tensors, got {shown(kept)}")
        for name, value in kept.items():
            alone = value is None or (isinstance(value, Tensor) and value.dim() == 0)
            if not alone and not (isinstance(value, Tensor) and value.shape == parameters[index].shape):
                raise ValueError(f"optimizer.state.{index}.{shown(name)} does not have the shape of its parameter")


def _alike(name: str, value: Any, fresh: Any) -> None:
    """Raise ValueError unless a value has the type, keys and shapes of the one that the run has now."""
    match fresh:
        case Tensor():
            if not isinstance(value, Tensor) or value.shape != fresh.shape or value.dtype != fresh.dtype:
                raise ValueError(f"{name} must be a tensor of shape {tuple(fresh.shape)} and type {fresh.dtype}")
        case dict():
            if not isinstance(value, dict) or value.keys() != fresh.keys():
                raise ValueError(f"{name} must hold {len(fresh)} values of certain names, and does not")
            for key, inside in fresh.items():
                _alike(f"{name}.{key}", value[key], inside)
            if "position" in fresh and "n" in fresh:  # of a shuffled epoch
                _whole(f"{name}.position", value["position"], 0, fresh["n"])
            if "taken" in fresh:  # of the batches that were drawn ahead
                _whole(f"{name}.taken", value["taken"], 0, AHEAD)
        case list() | tuple():
            if type(value) is not type(fresh) or len(value) < len(fresh):
                raise ValueError(f"{name} must be a list of {len(fresh)} values, got {shown(value)}")
            for place, inside in enumerate(fresh):
                _alike(f"{name}.{place}", value[place], inside)
        case None:  # the run has it only later, and then checks it
            return
        case bool() | str():
            if type(value) is not type(fresh):
                raise ValueError(f"{name} must be like {shown(fresh)}, got {shown(value)}")
        case int():
            _whole(name, value, 0, 10**18)
        case float():
            _number(name, value, at_least=-math.inf)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {shown(value)}")
    return value


def _number(name: str, value: Any, *, at_least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not at_least <= value < math.inf:
        raise ValueError(f"{name} must be a number{' of at least 0' if at_least == 0 else ''}, got {shown(value)}")


def refuse_other_number(path: Path, before: int, ranks: Ranks, model: nn.Module) -> None:
    """Refuse to continue with another number of ranks if that changes what is computed."""
    if before != ranks.size and local_batch_norms(model):
        raise CheckpointError(
            f"{path} was made by {_processes(before)}, and BatchNorm normalises by the share of each: continue with "
            f"{before}, or remove it to start the run anew with {ranks.size}"
        )


def _processes(count: int) -> str:
    return "one process" if count == 1 else f"{count} processes"


@dataclass
class Progress:
    """What the loop counts.

    Attributes:
        loss_sum: sum of the losses since the last evaluation, on the device.
        step: effective steps that are done.
        time: Σ η over them.
        loss_count: number of losses in `loss_sum`.
        loss_offset: subtracted from `loss_sum`, it gives the sum since the last row of kind "loss".
        seconds: seconds spent in all sessions, up to the last checkpoint.
        since: readings since the last evaluation.
        processes: number of ranks in each session, the current one last.
        parts_ratio: N/G of BatchNorm's parts over that of whole batches, once it is known.
        since_row: updates since the last row of kind "loss".
    """

    loss_sum: Tensor
    step: int = 0
    time: float = 0.0
    loss_count: int = 0
    loss_offset: float = 0.0
    seconds: float = 0.0
    since: list[Reading] = field(default_factory=list)
    processes: list[int] = field(default_factory=lambda: [1])
    parts_ratio: float | None = None
    since_row: int = 0

    def add(self, loss: Tensor, time: float, step: int) -> None:
        """Count an update that led to effective step `step` and added `time` to Σ η."""
        self.loss_sum += loss
        self.loss_count += 1
        self.since_row += 1
        self.step = step
        self.time += time

    def loss_since_row(self) -> float:
        """The sum of the losses since the last row of kind "loss", and begin the next row; waits for the device."""
        total = self.loss_sum.item()
        found, self.loss_offset, self.since_row = total - self.loss_offset, total, 0
        return found

    def start_again(self) -> None:
        """Reset what an evaluation has summarised, but keep the losses since the last row of kind "loss"."""
        self.loss_offset -= self.loss_sum.item()
        self.loss_sum.zero_()
        self.loss_count = 0
        self.since.clear()


# What a checkpoint holds of it as it is.
_COUNTED = ("step", "time", "loss_count", "loss_offset", "seconds", "parts_ratio")


@dataclass(frozen=True, eq=False)
class Run:
    """Everything in a run that changes."""

    training: Training
    stepper: Stepper
    frozen: FrozenReadings | None
    progress: Progress

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        device = self.training.data.device
        return {
            **{name: getattr(self.progress, name) for name in (*_COUNTED, "loss_sum", "processes")},
            "model": self.training.model.state_dict(),
            "optimizer": self.training.optimizer.state_dict(),
            "stepper": self.stepper.state_dict(),
            "frozen": None if self.frozen is None else self.frozen.state_dict(),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
            "threads": torch.get_num_threads(),
            "device": device.type,
            # for all other processes it follows from the effective step
            **({"since_row": self.progress.since_row} if isinstance(self.stepper, GainStepper) else {}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        progress, device = self.progress, self.training.data.device
        for name in _COUNTED:
            setattr(progress, name, state[name])
        progress.loss_sum.copy_(state["loss_sum"])
        progress.since_row = state.get("since_row", 0)
        now = self.training.ranks.size
        before = state["processes"]
        progress.processes = before if before[-1] == now else [*before, now]
        self.training.model.load_state_dict(state["model"])
        self.training.optimizer.load_state_dict(state["optimizer"])
        self.stepper.load_state_dict(state["stepper"])
        if self.frozen is not None:
            self.frozen.load_state_dict(state["frozen"])
        torch.set_rng_state(state["random"])
        if device.type == "cuda":
            torch.cuda.set_rng_state(state["random_cuda"], device)
        torch.set_num_threads(state["threads"])


def start_together(run: Run, ranks: Ranks) -> None:
    """Send the state of rank 0 to all ranks; as from a checkpoint, only tensors are unpickled."""
    if ranks.size == 1:
        return
    content = b""
    if ranks.rank == 0:
        buffer = io.BytesIO()
        torch.save(run.state_dict(), buffer)
        content = buffer.getvalue()
    content = ranks.first(lambda: content)
    if ranks.rank:
        run.load_state_dict(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
