"""The identity of a run: a hash of everything that determines its numbers.

For a user's network, that includes the source of its module and of what it imports from its own package, found without
running any of it.
"""

import ast
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from svag.lab.records.storage import open_to_read
from svag.lab.specs.fields import SpecError, cut, named
from svag.lab.specs.spec import RunSpec

# Increased whenever the same spec begins to give other numbers, so that old records are not taken for new ones. The
# last digits of a reading do not count.
# 2: 8 groups of GroupNorm from 16 channels on, VGG without norms as in the authors' code, SVHN normalised by .5, images
# in channels_last where that is faster.
NUMERICS_VERSION = 2

# Fields added to RunSpec since this version, by their dotted paths ("seed", "data.crop"). A field with its default
# value is left out of the hash, so that runs made before the field keep their identities. List every new field here,
# and empty the list when NUMERICS_VERSION is increased. Fields of `optimizer` need not be listed: only `kind` and
# values other than the defaults enter the hash.
ADDED: tuple[str, ...] = ("compile", "clip_norm", "model.init_scale")


def identity(spec: RunSpec, folder: Path | None = None) -> str:
    """Hash of a spec, in which the contents of an npz file and the source of a user's network replace their names.

    >>> spec = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 9}")
    >>> identity(spec) == identity(spec.edited({"lr": 1.0})), identity(spec) == identity(spec.edited({"seed": 1}))
    (True, False)

    Args:
        spec: the spec.
        folder: where a user's module is looked for after the Python path; the current folder when None.
    """
    fields = spec.to_dict()
    # without defaults, so that old runs keep their identities when an optimizer gets a new setting
    fields["optimizer"] = {"kind": spec.optimizer.kind, **spec.optimizer.model_dump(mode="json", exclude_defaults=True)}
    for path in ADDED:
        _leave_out_default(path, fields, spec)
    if spec.data.path is not None:
        fields["data"]["path"] = _digest_of_file(Path(spec.data.path))
    if spec.model.is_callable:
        fields["model"]["source"] = own_source(spec.model.arch.partition(":")[0], folder or Path.cwd())
    fields["numerics"] = NUMERICS_VERSION
    return hashlib.sha256(json.dumps(fields, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _leave_out_default(path: str, fields: dict[str, Any], spec: RunSpec) -> None:
    *parents, name = path.split(".")
    part: object = spec
    for parent in parents:
        part, fields = getattr(part, parent), fields[parent]
    field = type(part).model_fields.get(name) if isinstance(part, BaseModel) else None
    if field is not None and getattr(part, name) == field.get_default(call_default_factory=True):
        del fields[name]


def _digest_of_file(path: Path) -> str:
    try:
        with os.fdopen(open_to_read(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SpecError("data.path", f"{named(str(path))} cannot be read: {error.strerror}") from None


def own_source(module: str, folder: Path) -> str:
    """Hash of a module's source and, transitively, of the modules it imports that lie beside it or in its package.

    Args:
        module: dotted name, as in `import module`.
        folder: looked into after the Python path.
    """
    start = module_file(module, folder)
    root = _root(module, start)
    seen: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = _file_of(name, folder)
        if name in seen or file is None or file.suffix != ".py" or not file.is_relative_to(root):
            continue
        if "site-packages" in file.relative_to(root).parts or (name != module and root.name == "site-packages"):
            continue
        seen[name] = file
        waiting += _imports(file, name)
    parts = [f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}" for name, path in sorted(seen.items())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def module_file(module: str, folder: Path) -> Path:
    """The file that `import module` would run, found without running it; `folder` is searched last."""
    found = _file_of(module, folder)
    if found is None:
        raise SpecError("model.arch", f"there is no module {named(module)} in {folder} or on the Python path")
    return found


def _file_of(module: str, folder: Path) -> Path | None:
    places: list[str] | None = [*sys.path, str(folder)]
    found = None
    for part in module.split("."):
        # one part at a time: for a dotted name, a folder without __init__.py would require importing its parent
        found = PathFinder.find_spec(part, places)
        if found is None:
            return None
        places = list(found.submodule_search_locations or [])
    return None if found is None or found.origin is None or not found.has_location else Path(found.origin).resolve()


def _root(module: str, file: Path) -> Path:
    """The folder of the top-level package, or of the module itself if it is in none."""
    ups = module.count(".") + (1 if file.name == "__init__.py" else 0)
    return file.parents[max(ups - 1, 0)]


def _imports(file: Path, name: str) -> Iterator[str]:
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError as error:
        raise SpecError("model.arch", f"{file} is not Python: {error.msg} in line {error.lineno}") from None
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes, brackets without end
        raise SpecError("model.arch", f"{file} is not Python: {cut(str(error)) or type(error).__name__}") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
