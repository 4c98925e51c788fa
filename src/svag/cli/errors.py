"""How an error reaches the user: one sentence on standard error and an exit code, never a traceback."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer


def aloud(sentence: str) -> None:
    """Say something on standard error."""
    typer.echo(sentence, err=True)


@contextmanager
def reported(say: Callable[[str], None] = aloud) -> Iterator[None]:
    """Turn what a user can do something about into one sentence: exit code 2 for bad input, 1 for a run that failed.

    `say` is how the sentence gets out: several processes of one run have one voice.
    """
    from svag.records.files import DiskError
    from svag.records.refusal import SpecError
    from svag.records.run_lock import FolderInUse

    try:
        yield
    except (SpecError, FolderInUse) as error:
        say(f"Error: {error}")
        raise typer.Exit(2) from None
    except DiskError as error:
        say(f"Error: {error}")
        raise typer.Exit(1) from None
    except KeyboardInterrupt as interrupt:
        say(str(interrupt) or "interrupted: the same command continues from the last checkpoint")
        raise typer.Exit(130) from None
    except Exception as error:
        code = exit_code(type(error))
        if code is None:
            raise
        say(f"Error: {error}")
        raise typer.Exit(code) from None


def exit_code(kind: type[BaseException]) -> int | None:
    """Exit code of an error of this kind; None for a bug. The lab's import is slow, and has happened when one arrives.

    >>> exit_code(ValueError), exit_code(ZeroDivisionError)
    (2, None)
    """
    from svag.lab.checkpoint import CheckpointError
    from svag.lab.data.errors import DataError
    from svag.lab.parallel.lost import RankLost
    from svag.lab.run import RunFailed
    from svag.records.files import DiskError
    from svag.records.refusal import SpecError
    from svag.records.run_lock import FolderInUse

    if issubclass(kind, RunFailed | CheckpointError | DiskError | RankLost):
        return 1
    return 2 if issubclass(kind, DataError | ValueError | SpecError | FolderInUse) else None
