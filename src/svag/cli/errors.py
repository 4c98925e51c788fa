"""How an error reaches the user: one sentence on standard error and an exit code, never a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def reported() -> Iterator[None]:
    """Turn what a user can do something about into one sentence: exit code 2 for bad input, 1 for a run that failed."""
    from svag.records.files import DiskError
    from svag.records.refusal import SpecError
    from svag.records.run_lock import FolderInUse

    try:
        yield
    except (SpecError, FolderInUse) as error:
        raise _stop(error, 2) from None
    except DiskError as error:
        raise _stop(error, 1) from None
    except KeyboardInterrupt as interrupt:
        typer.echo(str(interrupt) or "interrupted: the same command continues from the last checkpoint", err=True)
        raise typer.Exit(130) from None
    except Exception as error:
        code = _code(error)
        if code is None:
            raise
        raise _stop(error, code) from None


def _code(error: Exception) -> int | None:
    """Exit code of the errors of the lab, whose import is slow and has happened when one arrives; None for a bug."""
    from svag.lab.checkpoint import CheckpointError
    from svag.lab.data.errors import DataError
    from svag.lab.run import RunFailed

    if isinstance(error, RunFailed | CheckpointError):
        return 1
    return 2 if isinstance(error, DataError | ValueError) else None


def _stop(error: Exception, code: int) -> typer.Exit:
    typer.echo(f"Error: {error}", err=True)
    return typer.Exit(code)
