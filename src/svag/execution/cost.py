"""How much work a run is, relative to others: enough to begin with the longest."""

import re
from dataclasses import dataclass

from svag.records.examples import examples_per_step
from svag.records.model_spec import ModelSpec
from svag.records.process_spec import FULL_PASS, SvagSpec, substeps
from svag.records.spec import RunSpec

# An update costs at least as much as this many examples: the time of a step does not fall below a few milliseconds.
OVERHEAD = 16


@dataclass(frozen=True)
class DataShape:
    """What the work depends on: number of training and test examples, channels and side of an image."""

    examples: int
    test_examples: int
    channels: int
    side: int


def updates_per_step(spec: RunSpec) -> int:
    """Gradients of a batch that one effective step computes; a pass over the data counts as one."""
    pairs = isinstance(spec.process, SvagSpec) and not spec.process.is_sgd
    return (2 if pairs else 1) * substeps(spec.process)


def multiply_adds(model: ModelSpec, data: DataShape) -> float:
    """Multiply-adds of one example in the forward pass, roughly; a user's own network counts as a small one.

    In the convolutional networks the channels double where the area is divided by four, so that all layers cost the
    same: 9 · channels² · area each.
    """
    depth, channels = 8, 16.0
    if model.arch == "mlp":
        hidden = 256 * model.width
        return data.channels * data.side**2 * hidden + hidden**2
    if found := re.fullmatch(r"(?:pre)?resnet(\d+)", model.arch):
        depth = int(found[1])
    elif found := re.fullmatch(r"vgg(\d+)", model.arch):
        depth, channels = int(found[1]), 64.0
    return depth * 9 * (channels * model.width) ** 2 * data.side**2


def cost(spec: RunSpec, data: DataShape) -> float:
    """Work of a whole run in multiply-adds, up to a common factor: examples looked at, substeps included.

    Evaluations are left out: they are a forward pass of the test set each, and much alike in the runs of a plan.
    """
    per_step = examples_per_step(spec, data.examples)
    if not isinstance(spec.process, FULL_PASS):
        per_step += OVERHEAD * updates_per_step(spec)
    return float(spec.steps(data.examples) * per_step * multiply_adds(spec.model, data))
