"""The command `svag`: it needs the laboratory, and says how to get it where only the library is installed."""

import sys
from importlib.util import find_spec

_LABORATORY = ("pydantic", "typer", "rich", "yaml", "jinja2", "altair")


def main() -> None:
    """Run the command line, or say in one sentence what to install."""
    if any(find_spec(name) is None for name in _LABORATORY):
        if sys.argv[1:] == ["--version"]:
            from svag import __version__

            print(f"svag {__version__}")
            return
        sys.exit('The command line is part of the laboratory, which is not installed: pip install "svag[lab]"')
    from svag.paper.cli.app import main as run

    run()
