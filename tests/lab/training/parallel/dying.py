"""`svag run`, whose second process is killed in the middle of a step: started with `python -m` and a COUNT of it."""

import os
import sys

from tests.lab.training.killing import dying

from svag.cli import main
from svag.lab.training.run import run
from svag.lab.training.training import Training

if __name__ == "__main__":
    count = int(sys.argv.pop(1))
    if os.environ["RANK"] == "1":
        Training.loss = dying(Training.loss, count)  # type: ignore[method-assign]
    assert run.__kwdefaults__ is not None
    run.__kwdefaults__["save_seconds"] = 0
    main()
