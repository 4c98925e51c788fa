"""What a command says to programs."""

import json
from typing import Any

from typer.testing import CliRunner

from svag.paper.cli.app import app

invoke = CliRunner().invoke


def answer(arguments: list[str], code: int = 0) -> Any:
    result = invoke(app, [*arguments, "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)
