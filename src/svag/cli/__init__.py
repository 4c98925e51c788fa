"""The command line."""

from svag.cli.app import main

__all__ = ["main"]
