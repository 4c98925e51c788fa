"""How an error reaches the user: one sentence on standard error and an exit code, never a traceback.

Under torchrun several processes share a run: only one of them prints, and all end with the same exit code.
"""

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from svag.lab.records.record import RunFailed
from svag.lab.records.storage import DiskError, FolderInUse
from svag.lab.specs.fields import visible
from svag.lab.training.watching import Lossy, Stopped, stoppable

if TYPE_CHECKING:
    from svag.lab.training.ranks import Ranks


def echo(text: str, *, err: bool = False) -> None:
    """Print text that may come from records, without the escape codes that would act on the terminal."""
    typer.echo(visible(text, lines=True), err=err)


def aloud(sentence: str) -> None:
    """Print a sentence on standard error, in one line."""
    typer.echo(visible(sentence), err=True)


def all_printed() -> None:
    """Exit with code 1 if the output of a command could not be printed."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, Lossy) and raw.lost is not None:
        if raw.lost.errno != errno.EPIPE:  # closed by a reader, such as `head`, that wants the first lines only
            aloud(f"Error: standard output cannot be written ({raw.lost.strerror}): the answer is not complete")
        raise typer.Exit(1)


# Errors of a path that the user may not read or write.
_CLOSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}


@contextmanager
def reported(say: Callable[[str], None] = aloud) -> Iterator[None]:
    """Turn errors that a user can do something about into one sentence and exit code 2 (bad input) or 1 (failed run).

    `say` prints the sentence; under torchrun only one process does.
    """
    try:
        with stoppable():
            yield
    except (typer.Exit, typer.BadParameter, typer.Abort):
        raise
    except KeyboardInterrupt as interrupt:
        say(str(interrupt) or "interrupted: the same command continues from the last checkpoint")
        number = interrupt.number if isinstance(interrupt, Stopped) else signal.SIGINT
        raise typer.Exit(128 + number) from None
    except OSError as error:
        if error.filename is None or error.errno not in _CLOSED:
            raise
        say(f"Error: {os.fsdecode(error.filename)} cannot be read or written ({error.strerror}): check its permissions")
        raise typer.Exit(1) from None
    except Exception as error:
        code = exit_code(type(error))
        if code is None:
            raise
        say(f"Error: {error}")
        raise typer.Exit(code) from None


def exit_code(kind: type[BaseException]) -> int | None:
    """Exit code of an error of this kind; None for a bug.

    The kinds whose modules import torch come last: if there is such an error, torch has been imported already.

    >>> exit_code(ValueError), exit_code(ZeroDivisionError)
    (2, None)
    """
    from svag.lab.data.formats import DataError

    if issubclass(kind, RunFailed | DiskError):
        return 1
    if issubclass(kind, DataError | ValueError | FolderInUse):
        return 2
    from svag.lab.training.ranks import RankLost
    from svag.lab.training.state import CheckpointError

    return 1 if issubclass(kind, CheckpointError | RankLost) else None


@contextmanager
def processes(device: str) -> Iterator["Ranks | None"]:
    """The processes of this run if there are several, otherwise None; an error inside is reported once for all.

    For a single process torch is not imported here, so that a bad spec is refused at once.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        with reported():
            yield None
        return
    with reported():
        from svag.lab.training.ranks import Elsewhere, joined

        with joined(device) as ranks:

            def last_words(sentence: str | None) -> None:
                # torchrun tells all processes to stop as soon as one has ended, and this one ends anyway
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                ranks.say(sentence, aloud)

            try:
                with reported(last_words):
                    yield ranks
            except Elsewhere as error:
                last_words(None)
                raise typer.Exit(exit_code(error.kind) or 1) from None
