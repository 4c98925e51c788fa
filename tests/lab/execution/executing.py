"""A program that carries out a plan: what a command of the command line does, in a process that can be stopped."""

import json
import signal
import sys
from pathlib import Path

from svag.lab.execution.conduct import execute
from svag.lab.execution.execution import Execution
from svag.lab.execution.plan import plan_runs
from svag.lab.specs.spec import RunSpec


def main() -> int:
    # whoever started the tests may ignore Ctrl-C, as a shell does for its background jobs, and that is inherited
    signal.signal(signal.SIGINT, signal.default_int_handler)
    order = json.load(sys.stdin)
    plan = plan_runs(map(RunSpec.from_dict, order["specs"]), Path(order["out"]))
    try:
        records = execute(plan, Execution(**{"device": "cpu", "save_seconds": 0, **order["execution"]}))
    except KeyboardInterrupt as interrupt:
        print(interrupt)
        return 130
    print([record.state for record in records])
    return 0


if __name__ == "__main__":
    sys.exit(main())
