"""Specs for tests: a small valid one, and random ones, valid or not."""

from typing import Any

from hypothesis import strategies as st

from svag.records.spec import RunSpec

BASE: dict[str, Any] = {
    "data": {"name": "fashion-small", "subset": 400},
    "model": {"arch": "mlp", "norm": "layer", "width": 0.0625},
    "batch_size": 16,
    "lr": 0.1,
    "budget": 20,
}


def base(edits: dict[str, Any] | None = None) -> RunSpec:
    return RunSpec.from_dict(BASE).edited(edits or {})


_JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 10**13),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def _mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Good values, and now and then junk."""
    return st.integers(0, 14).flatmap(lambda die: _JUNK if die == 0 else good)


def _mapping(required: dict[str, st.SearchStrategy[Any]], optional: dict[str, st.SearchStrategy[Any]]) -> Any:
    """Fields, some left out, now and then one too many."""
    whole = st.fixed_dictionaries(required, optional=optional)
    extra = st.integers(0, 30).flatmap(
        lambda die: (
            st.dictionaries(st.sampled_from(["els", "lrate", "kind", ""]), _JUNK, max_size=1)
            if die == 0
            else st.just({})
        )
    )
    return _mostly(st.tuples(whole, extra).map(lambda pair: {**pair[0], **pair[1]}))


_MOMENT = _mostly(st.one_of(st.floats(0, 1), st.integers(0, 40)))
_FEW = _mostly(st.integers(1, 8))


def _kinds(choices: dict[str, dict[str, st.SearchStrategy[Any]]]) -> Any:
    return st.one_of([_mapping({"kind": st.just(kind), **fields}, {}) for kind, fields in choices.items()])


def any_spec() -> st.SearchStrategy[dict[str, Any]]:
    """Whole specs; a good share of them is valid."""
    augment = st.one_of(
        st.just(False), _mapping({}, {"pad": _mostly(st.integers(0, 3)), "flip": _mostly(st.booleans())})
    )
    result: st.SearchStrategy[dict[str, Any]] = _mapping(
        {
            "data": _mapping(
                {"name": _mostly(st.just("fashion-small")), "subset": _mostly(st.integers(40, 200))},
                {"pool": _mostly(st.sampled_from([1, 2, 7, 3])), "augment": augment},
            ),
            "model": _mapping(
                {
                    "arch": _mostly(st.sampled_from(["mlp", "preresnet8", "resnet8"])),
                    "norm": _mostly(st.sampled_from(["batch", "group", "layer", "none"])),
                    "width": _mostly(st.sampled_from([0.25, 0.5])),
                },
                {"scale_invariant": _mostly(st.booleans())},
            ),
            "batch_size": _mostly(st.sampled_from([4, 8, 12, 16])),
            "lr": _mostly(st.floats(1e-3, 1.0)),
            "budget": _mostly(st.one_of(st.integers(1, 30), _mapping({"epochs": _mostly(st.floats(0.1, 3))}, {}))),
        },
        {
            "process": _kinds(
                {
                    "sgd": {},
                    "svag": {"ell": _FEW, "split": _mostly(st.sampled_from([1, 1, 2, 4]))},
                    "glsr": {"parts": _FEW},
                    "ngd": {},
                    "gd": {},
                    "sde": {"refine": _FEW},
                }
            ),
            "schedule": _kinds(
                {
                    "constant": {"warmup": _MOMENT},
                    "steps": {"at": _mostly(st.lists(_MOMENT, max_size=2)), "factor": _mostly(st.just(0.1))},
                    "cosine": {"floor": _mostly(st.floats(0, 1))},
                    "triangle": {"peaks": _mostly(st.lists(st.floats(0.1, 1), max_size=3))},
                }
            ),
            "probe": st.one_of(
                st.just("none"),
                _kinds(
                    {
                        "in_run": {"parts": _mostly(st.sampled_from([2, 4]))},
                        "frozen": {
                            "readings": _FEW,
                            "window": _mostly(st.tuples(_MOMENT, _MOMENT)),
                            "batches": _mostly(st.integers(2, 4)),
                        },
                    }
                ),
            ),
            "weight_decay": _mostly(st.sampled_from([0.0, 1e-3])),
            "momentum": _mostly(st.sampled_from([0.0, 0.0, 0.9])),
            "sampling": _mostly(st.sampled_from(["without_replacement", "with_replacement", "shuffle"])),
            "evaluate": _mapping({"every": _MOMENT}, {"train": _mostly(st.booleans())}),
            "seed": _mostly(st.integers(0, 5)),
        },
    )
    return result
