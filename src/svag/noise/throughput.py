"""How fast a model trains at several batch sizes, measured without leaving a trace."""

import gc
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from svag.noise.batches import mean_loss, refuse_swapped, resized, tensors_of
from svag.noise.optimizer import trained_parameters, unwrapped
from svag.noise.parameters import on_this_rank, refuse_sharded
from svag.noise.progress_line import ProgressLine
from svag.noise.undisturbed import undisturbed
from svag.prices.estimate import Estimate
from svag.theory import domain

Batch = TypeVar("Batch")

# Every batch size is timed in each round, so that a disturbance of the machine does not hit one size alone. Rounds go
# on until the fastest few of every size agree, since other work on the machine can only make a step slower.
_ROUNDS = (5, 40)
_AGREE = 3
SPREAD = 0.1
"""The fastest rounds of a size agree when they differ by at most this share."""
# Steps of a round are repeated up to this many seconds, since one step of a small network is too short to time.
_PATIENCE = 0.05
_MOST_STEPS = 50
# The first steps allocate memory, choose kernels and make the optimizer's state.
_WARM_UP = 2


def measure_throughput(
    model: nn.Module,
    optimizer: Optimizer,
    loss_fn: Callable[[Batch], Tensor],
    batch: Batch,
    batch_sizes: Iterable[int],
    *,
    verbose: bool = True,
) -> dict[int, Estimate]:
    """Measure examples per second of a whole training step at several batch sizes.

    A step is `zero_grad`, forward, backward and `optimizer.step`, with the settings as they are. The fastest of several
    rounds counts, since other work on the machine can only make a step slower; rounds are repeated until the three
    fastest agree within 10%, up to 40 times. The interval of a speed is from the third-fastest round to the fastest, so
    it is wide if they did not agree. Afterwards parameters, gradients, buffers, the optimizer, the modes and torch's,
    numpy's and Python's global generators are as they were, bit for bit, also after an error. Their copies are kept in
    main memory.

    A batch size that does not fit in memory is left out with a warning, and so are all larger ones. A data-parallel
    model does not synchronise here: the communication of its ranks is not counted.

    >>> model = nn.Linear(4, 2)
    >>> found = measure_throughput(
    ...     model, torch.optim.SGD(model.parameters(), lr=0.1), lambda x: model(x).square().mean(), torch.ones(8, 4),
    ...     [8, 32]
    ... )
    >>> list(found), min(speed.low for speed in found.values()) > 0
    ([8, 32], True)

    Args:
        model: the model that trains, in the modes it trains in.
        optimizer: its optimizer; it takes real steps, which are undone.
        loss_fn: takes a batch, returns its mean loss.
        batch: any batch; batches of other sizes repeat its examples, or leave some out.
        batch_sizes: those to measure, that of the run among them if the result is for `PriceList.prices`.
        verbose: show progress in a terminal or a notebook when it takes longer than two seconds.

    Returns:
        Examples per second by batch size, in the order asked for, each with its spread.
    """
    refuse_swapped(loss_fn, batch)
    refuse_sharded(model)
    optimizer = unwrapped(optimizer)
    asked = list(dict.fromkeys(domain.whole("batch_sizes", size) for size in batch_sizes))
    if not asked:
        raise ValueError("batch_sizes is empty: give at least the batch size of the run")
    times: dict[int, list[float]] = {}
    repeats: dict[int, int] = {}

    def step(examples: Batch) -> None:
        optimizer.zero_grad()
        mean_loss(loss_fn, examples).backward()
        optimizer.step()

    def seconds(size: int, steps: int) -> float | None:
        """Seconds of one step, or None when the batch does not fit."""
        try:
            examples = resized(batch, size)
            wait_for(model)
            start = perf_counter()
            for _ in range(steps):
                step(examples)
            wait_for(model)
            return (perf_counter() - start) / steps
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
        # by now the error is gone, and with it the tensors that its frames held
        return None

    with (
        ProgressLine("measuring throughput", verbose=verbose) as line,
        undisturbed(model),
        _unchanged(model, optimizer) as put_back,
    ):
        for number, size in enumerate(sorted(asked)):
            line.say(f"first steps at batch size {size}")
            if (found := seconds(size, _WARM_UP)) is None:
                _say_left_out(sorted(asked)[number:])
                put_back()
                break
            times[size], repeats[size] = [], max(1, min(_MOST_STEPS, math.floor(_PATIENCE / found)))
        for done in range(_ROUNDS[1]):
            if done >= _ROUNDS[0] and all(_agree(rounds) for rounds in times.values()):
                break
            for size in list(times):
                line.say(f"round {done + 1} of {_ROUNDS[0]} to {_ROUNDS[1]}, batch size {size}")
                if (found := seconds(size, repeats[size])) is None:  # other programs may take memory meanwhile
                    _say_left_out([size])
                    del times[size]
                    put_back()
                else:
                    times[size].append(found)
    return {size: _speed(size, times[size]) for size in asked if size in times}


def _agree(rounds: list[float]) -> bool:
    """Whether the fastest rounds of one batch size agree."""
    fastest = sorted(rounds)[:_AGREE]
    return fastest[-1] <= (1 + SPREAD) * fastest[0]


def _speed(size: int, rounds: list[float]) -> Estimate:
    """Examples per second in the fastest round, from the slowest of the fastest few.

    >>> _speed(8, [2.0, 1.0, 8.0, 4.0])
    <svag.Estimate: 8 [2, 8]>
    """
    fastest = sorted(rounds)[:_AGREE]
    return Estimate(size / fastest[0], size / fastest[-1], size / fastest[0])


@contextmanager
def _unchanged(model: nn.Module, optimizer: Optimizer) -> Iterator[Callable[[], None]]:
    """Restore parameters, gradients and the optimizer at the end, and whenever the yielded function is called."""
    trained = {id(p): p for p in [*model.parameters(), *trained_parameters(optimizer)]}
    # these need no copy: a step begins without gradients, and gives every parameter a new one
    gradients = [(parameter, parameter.grad) for parameter in trained.values()]
    # a learning-rate scheduler marks the optimizer when it steps
    attributes = dict(vars(optimizer))
    groups = [(group, {**group, "params": list(group["params"])}) for group in optimizer.param_groups]
    states = [(parameter, state, dict(state)) for parameter, state in optimizer.state.items()]
    settings = [{name: value for name, value in group.items() if name != "params"} for _, group in groups]
    held: list[Any] = [list(trained.values()), settings, [state for _, _, state in states]]
    contents = [(tensor, tensor.detach().to("cpu", copy=True)) for tensor in tensors_of(held)]

    def put_back() -> None:
        with torch.no_grad():
            for tensor, content in contents:
                tensor.copy_(content)
        for parameter, _ in gradients:
            parameter.grad = None
        vars(optimizer).clear()
        vars(optimizer).update(attributes)
        for group, before in groups:
            group.clear()
            group.update(before)
        optimizer.state.clear()
        for owner, state, before in states:
            state.clear()
            state.update(before)
            optimizer.state[owner] = state
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield put_back
    finally:
        put_back()
        for parameter, gradient in gradients:
            parameter.grad = gradient


def wait_for(model: nn.Module) -> None:
    """Wait until every device of the model has finished its work, by fetching one number from it."""
    for parameter in {parameter.device: parameter for parameter in on_this_rank(model.parameters())}.values():
        parameter.detach().reshape(-1)[:1].tolist()


def out_of_memory(error: Exception) -> bool:
    """Whether an error means that a device, or main memory, is exhausted."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return "can't allocate memory" in str(error) or "not enough memory" in str(error)


def _say_left_out(sizes: list[int]) -> None:
    named = ", ".join(map(str, sizes))
    what = f"batch size {named} does" if len(sizes) == 1 else f"batch sizes {named} do"
    warnings.warn(f"{what} not fit in memory and are left out of the throughput", stacklevel=3)
