"""How many examples a run looks at: what its time is made of."""

from svag.records.process_spec import FULL_PASS, SvagSpec, substeps
from svag.records.spec import RunSpec


def examples_per_step(spec: RunSpec, examples: int) -> int:
    """Examples that one effective step looks at, in a data set of `examples`.

    >>> spec = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 9}")
    >>> examples_per_step(spec, 1000), examples_per_step(spec.edited({"process": {"kind": "svag", "ell": 4}}), 1000)
    (8, 64)
    """
    process = spec.process
    if isinstance(process, FULL_PASS):
        return substeps(process) * examples
    if isinstance(process, SvagSpec) and not process.is_sgd:
        return 2 * process.ell * (spec.batch_size // process.split)
    return spec.batch_size
