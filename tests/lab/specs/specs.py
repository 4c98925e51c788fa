"""Specs for tests: a small valid one, and random ones, valid or not."""

from typing import Any, TypeAlias

from hypothesis import strategies as st

from svag.lab.specs.spec import RunSpec

Values: TypeAlias = st.SearchStrategy[Any]

BASE: dict[str, Any] = {
    "data": {"name": "fashion-small", "subset": 400},
    "model": {"arch": "mlp", "norm": "layer", "width": 0.0625},
    "batch_size": 16,
    "lr": 0.1,
    "budget": 20,
}


def base(edits: dict[str, Any] | None = None) -> RunSpec:
    return RunSpec.from_dict(BASE).edited(edits or {})


JUNK: Values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 10**13),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
FEW = st.integers(1, 8)
WHEN = st.one_of(st.floats(0, 1), st.integers(0, 40))
SAMPLING = ["without_replacement", "with_replacement", "shuffle"]

PROCESSES: dict[str, dict[str, Values]] = {
    "sgd": {},
    "svag": {"ell": FEW, "split": st.sampled_from([1, 1, 2, 4])},
    "glsr": {"parts": st.sampled_from([1, 2, 4, 3])},
    "ngd": {},
    "gd": {},
    "sde": {"refine": FEW},
}
SCHEDULES: dict[str, dict[str, Values]] = {
    "constant": {"warmup": WHEN},
    "steps": {"at": st.lists(WHEN, max_size=2), "factor": st.just(0.1)},
    "cosine": {"floor": st.floats(0, 1)},
    "triangle": {"peaks": st.lists(st.floats(0.1, 1), max_size=3), "floor": st.sampled_from([0.0, 0.00125, 0.5])},
}
PROBES: dict[str, dict[str, Values]] = {
    "none": {},
    "in_run": {"parts": st.sampled_from([2, 4])},
    "frozen": {"readings": st.integers(1, 3), "window": st.tuples(WHEN, WHEN), "batches": st.integers(2, 4)},
}


def any_spec(junk: bool = True) -> Values:
    """Whole specs with fields that often contradict each other; with `junk`, one value in eighty is no value at all."""

    def value(good: Values) -> Values:
        return st.integers(0, 79).flatmap(lambda die: JUNK if die == 0 else good) if junk else good

    def mapping(required: dict[str, Values], optional: dict[str, Values] | None = None) -> Values:
        made = st.fixed_dictionaries(
            {name: value(good) for name, good in required.items()},
            optional={name: value(good) for name, good in (optional or {}).items()},
        )
        extra = st.dictionaries(st.sampled_from(["els", "lrate", ""]), JUNK, min_size=1, max_size=1)
        return st.tuples(made, st.integers(0, 79).flatmap(lambda die: extra if junk and die == 0 else st.just({}))).map(
            lambda pair: {**pair[0], **pair[1]}
        )

    def kinds(choices: dict[str, dict[str, Values]]) -> Values:
        return st.one_of([mapping({"kind": st.just(kind), **fields}) for kind, fields in choices.items()])

    augment = st.one_of(st.just(False), mapping({}, {"pad": st.integers(0, 3), "flip": st.booleans()}))
    norms = st.sampled_from(["batch", "group", "layer", "none"])
    return mapping(
        {
            "data": mapping(
                {"name": st.just("fashion-small"), "subset": st.integers(40, 200)},
                {"pool": st.sampled_from([1, 1, 2, 7, 3]), "augment": augment},
            ),
            "model": mapping(
                {
                    "arch": st.sampled_from(["mlp", "preresnet8", "resnet8"]),
                    "norm": norms,
                    "width": st.sampled_from([0.25, 0.5]),
                },
                {"scale_invariant": st.booleans()},
            ),
            "batch_size": st.sampled_from([4, 8, 12, 16]),
            "lr": st.floats(1e-3, 1.0),
            "budget": st.one_of(st.integers(1, 30), mapping({"epochs": st.floats(0.1, 3)})),
        },
        {
            "process": kinds(PROCESSES),
            "schedule": kinds(SCHEDULES),
            "probe": kinds(PROBES),
            "weight_decay": st.sampled_from([0.0, 1e-3]),
            "optimizer": kinds({"sgd": {"momentum": st.sampled_from([0.0, 0.0, 0.9])}}),
            "sampling": st.sampled_from(SAMPLING),
            "evaluate": mapping({"every": WHEN}, {"train": st.booleans()}),
            "seed": st.integers(0, 5),
        },
    )
