"""What makes two runs the same run: a hash of everything that determines their numbers."""

import hashlib
import json
from pathlib import Path

from svag.records.own_source import own_source
from svag.records.refusal import SpecError
from svag.records.spec import RunSpec

# Raised whenever the same spec begins to give other numbers, so that old records are not taken for new ones.
NUMERICS_VERSION = 1


def identity(spec: RunSpec, folder: Path | None = None) -> str:
    """Hash of a spec, with the contents of an npz file and the source of a user's network in place of their names.

    >>> spec = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 9}")
    >>> identity(spec) == identity(spec.edited({"lr": 1.0})), identity(spec) == identity(spec.edited({"seed": 1}))
    (True, False)

    Args:
        spec: the spec.
        folder: where a user's module is looked for after the Python path; the current folder when None.
    """
    fields = spec.to_dict()
    if spec.data.path is not None:
        fields["data"]["path"] = _digest_of_file(Path(spec.data.path))
    if spec.model.is_callable:
        fields["model"]["source"] = own_source(spec.model.arch.partition(":")[0], folder or Path.cwd())
    fields["numerics"] = NUMERICS_VERSION
    return hashlib.sha256(json.dumps(fields, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _digest_of_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SpecError("data.path", f"{path} cannot be read: {error.strerror}") from None
