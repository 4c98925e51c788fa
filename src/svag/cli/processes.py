"""The command line under torchrun: several processes, one voice."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from svag.cli.errors import aloud, exit_code, reported

if TYPE_CHECKING:
    from svag.lab.parallel.ranks import Ranks


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
        from svag.lab.parallel.join import joined
        from svag.lab.parallel.lost import Elsewhere

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
