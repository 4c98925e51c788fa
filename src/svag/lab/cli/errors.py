"""How an error reaches the user: one sentence on standard error and an exit code, never a traceback.

Under torchrun several processes share a run; they have one voice, and all of them end with the same exit code.
"""

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from svag.lab.training.ranks import Ranks


def echo(text: str, *, err: bool = False) -> None:
    """Print text that may come from records, in which an escape code would act on the terminal."""
    from svag.lab.specs.fields import visible

    typer.echo(visible(text, lines=True), err=err)


def aloud(sentence: str) -> None:
    """Say something on standard error, in one line."""
    from svag.lab.specs.fields import visible

    typer.echo(visible(sentence), err=True)


def all_printed() -> None:
    """End with a sentence and exit code 1 if what a command was asked to print could not be printed."""
    from svag.lab.training.watching import Lossy

    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, Lossy) and raw.lost is not None:
        if raw.lost.errno != errno.EPIPE:  # who reads only the first lines knows that there were more
            aloud(f"Error: standard output cannot be written ({raw.lost.strerror}): the answer is not complete")
        raise typer.Exit(1)


# What a place says that is closed to this user, in an error that nobody has put into a sentence before.
_CLOSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}


@contextmanager
def reported(say: Callable[[str], None] = aloud) -> Iterator[None]:
    """Turn what a user can do something about into one sentence: exit code 2 for bad input, 1 for a run that failed.

    `say` is how the sentence gets out: several processes of one run have one voice.
    """
    from svag.lab.records.files import DiskError, FolderInUse
    from svag.lab.specs.fields import SpecError
    from svag.lab.training.watching import Stopped, stoppable

    try:
        with stoppable():
            yield
    except (typer.Exit, typer.BadParameter, typer.Abort):
        raise
    except (SpecError, FolderInUse) as error:
        say(f"Error: {error}")
        raise typer.Exit(2) from None
    except DiskError as error:
        say(f"Error: {error}")
        raise typer.Exit(1) from None
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

    The kinds that need torch come last: its import is slow, and has happened if there is an error of such a kind.

    >>> exit_code(ValueError), exit_code(ZeroDivisionError)
    (2, None)
    """
    from svag.lab.data.formats import DataError
    from svag.lab.records.files import DiskError, FolderInUse
    from svag.lab.records.record import RunFailed
    from svag.lab.specs.fields import SpecError

    if issubclass(kind, RunFailed | DiskError):
        return 1
    if issubclass(kind, DataError | ValueError | SpecError | FolderInUse):
        return 2
    from svag.lab.training.ranks import RankLost
    from svag.lab.training.state import CheckpointError

    return 1 if issubclass(kind, CheckpointError | RankLost) else None


@contextmanager
def processes(device: str) -> Iterator["Ranks | None"]:
    """The processes of this run if there are several, else None; errors inside become one sentence in all.

    An ordinary run does not import torch here, so that a bad spec is refused at once.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        with reported():
            yield None
        return
    with reported():
        from svag.lab.training.ranks import Elsewhere, joined

        with joined(device) as ranks:

            def last_words(sentence: str | None) -> None:
                # torchrun tells all to stop as soon as one has ended: what follows is the end anyway
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                ranks.say(sentence, aloud)

            try:
                with reported(last_words):
                    yield ranks
            except Elsewhere as error:
                last_words(None)
                raise typer.Exit(exit_code(error.kind) or 1) from None
