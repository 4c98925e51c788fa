"""A program that carries out a plan: what a command of the command line does, in a process that can be stopped."""

import json
import sys
from pathlib import Path

from svag.execution.local import execute
from svag.execution.on_ray.execute import execute_on_ray
from svag.execution.plan import plan_runs
from svag.records.spec import RunSpec


def main() -> int:
    order = json.load(sys.stdin)
    plan = plan_runs(map(RunSpec.from_dict, order["specs"]), Path(order["out"]))
    try:
        if "address" in order:
            records = execute_on_ray(plan, address=order["address"], device="cpu", save_seconds=0, mail=order["mail"])
        else:
            records = execute(plan, workers=order["workers"], device="cpu", save_seconds=0)
    except KeyboardInterrupt as interrupt:
        print(interrupt)
        return 130
    print([record.state for record in records])
    return 0


if __name__ == "__main__":
    sys.exit(main())
