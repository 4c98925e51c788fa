"""What the fields of a spec must agree on: each refusal names the field, the reason and the way out."""

from typing import TYPE_CHECKING

from svag.records.probe_spec import FrozenProbe, InRunProbe
from svag.records.process_spec import FULL_PASS, GdSpec, GlsrSpec, SdeSpec, SgdSpec, SvagSpec
from svag.records.refusal import SpecError
from svag.theory.weights import finite_population_weights, svag_weights

if TYPE_CHECKING:
    from svag.records.spec import RunSpec


def check_spec(spec: "RunSpec", examples: int | None) -> None:
    """Refuse a spec that contradicts itself; `examples` is None while the size of an npz file is not known."""
    _check_process(spec)
    _check_rate(spec)
    _check_full_pass(spec)
    if examples is not None:
        _check_size(spec, examples)
    _check_cuts(spec)
    if examples is not None or isinstance(spec.budget, int):
        _check_moments(spec, spec.steps(examples))


def smallest_batch(spec: "RunSpec") -> int:
    """Examples in one forward pass of training, probe aside."""
    match spec.process:
        case SvagSpec():
            return spec.batch_size // spec.process.split
        case GlsrSpec():
            return spec.batch_size // spec.process.parts
    return spec.batch_size


def _check_process(spec: "RunSpec") -> None:
    process, size = spec.process, spec.batch_size
    match process:
        case SvagSpec():
            if size % process.split:
                raise SpecError("process.split", f"must divide batch_size={size}, got {process.split}")
            if process.split > 2 * process.ell:
                raise SpecError(
                    "process.split", f"must be at most 2·ell = {2 * process.ell}, got {process.split}: raise ell"
                )
            if process.split > 1 and spec.model.norm == "batch" and not spec.model.is_callable:
                raise SpecError(
                    "process.split",
                    "batch norm sees the whole batch, which split cuts: use model.norm group, or split 1",
                )
        case GlsrSpec():
            if size % process.parts:
                raise SpecError("process.parts", f"must divide batch_size={size}, got {process.parts}")
    if spec.model.norm == "batch" and not spec.model.is_callable and smallest_batch(spec) < 2:
        raise SpecError("model.norm", "batch norm cannot normalise a batch of one example: use group")


def _check_rate(spec: "RunSpec") -> None:
    process, decay = spec.process, spec.lr * spec.schedule.top * spec.weight_decay
    if decay >= 2:
        raise SpecError("weight_decay", f"lr × weight_decay must stay below 2, got {decay:g}: it diverges alone")
    if spec.momentum >= 1:
        raise SpecError("momentum", f"must lie in [0, 1), got {spec.momentum}")
    limit = process.momentum_limit if isinstance(process, SvagSpec) else None
    if spec.momentum:
        if isinstance(process, SvagSpec) and limit is None:
            raise SpecError("process.momentum_limit", "momentum has two limits: say underdamped or overdamped")
        if isinstance(process, GlsrSpec | SdeSpec):
            raise SpecError("momentum", f"{process.kind} is defined without momentum: set it to 0")
    elif limit is not None:
        raise SpecError("process.momentum_limit", "is named, but momentum is 0: leave it out")


def _check_full_pass(spec: "RunSpec") -> None:
    if not isinstance(spec.process, FULL_PASS):
        return
    kind = spec.process.kind
    if spec.model.norm == "batch" and not spec.model.is_callable:
        raise SpecError("model.norm", f"{kind} needs a loss for every example, which batch norm mixes: use group")
    if spec.data.augmented:
        raise SpecError("data.augment", f"{kind} needs the same data in every pass: set it to false")
    if spec.sampling == "shuffle" and not isinstance(spec.process, GdSpec):
        raise SpecError(
            "sampling", f"{kind} has the noise of independent batches: use without_replacement or with_replacement"
        )
    if isinstance(spec.probe, InRunProbe):
        raise SpecError("probe.kind", f"{kind} computes no batch gradients to measure in the run: use frozen")


def _check_cuts(spec: "RunSpec") -> None:
    """An in-run probe cuts the batches of SGD and glsr; SVAG's pairs are left whole."""
    if not isinstance(spec.probe, InRunProbe) or not cuts_batches(spec):
        return
    size, parts = smallest_batch(spec), spec.probe.parts
    if size < 2:
        raise SpecError("probe.kind", "batches of one example cannot be cut into parts to measure: use frozen or none")
    if size % parts:
        raise SpecError("probe.parts", f"must divide the batch of {size} examples, got {parts}")
    if spec.model.norm == "batch" and size // parts < 2 and not spec.model.is_callable:
        raise SpecError("probe.parts", f"batch norm cannot normalise parts of one example: use fewer than {parts}")


def cuts_batches(spec: "RunSpec") -> bool:
    """Whether an in-run probe would have to cut batches into parts."""
    return isinstance(spec.process, SgdSpec | GlsrSpec) or (isinstance(spec.process, SvagSpec) and spec.process.is_sgd)


def _check_size(spec: "RunSpec", examples: int) -> None:
    size, process = spec.batch_size, spec.process
    if size > examples:
        raise SpecError("batch_size", f"must not exceed the {examples} examples of the data, got {size}")
    if spec.sampling != "with_replacement" and size == examples:
        if isinstance(process, SvagSpec) and not process.is_sgd:
            raise SpecError("batch_size", "a batch of all examples has no noise to amplify: lower it, or use gd")
        if isinstance(spec.probe, InRunProbe | FrozenProbe):
            raise SpecError("probe.kind", "a batch of all examples has no noise to measure: use none")
    if isinstance(process, SvagSpec):
        try:
            if spec.sampling == "with_replacement" or size == examples:
                svag_weights(process.ell, process.split)
            else:
                finite_population_weights(process.ell, process.split, batch_size=size, population=examples)
        except ValueError as error:
            raise SpecError("process.split", str(error)) from None


def _check_moments(spec: "RunSpec", steps: int) -> None:
    if steps < 1:
        raise SpecError("budget.epochs", "comes to no effective step at this batch size: raise it")
    spec.schedule.check(steps)
    if isinstance(spec.probe, InRunProbe | FrozenProbe):
        spec.probe.steps(steps)
