"""Try a wheel of the library with nothing but torch, numpy and scipy beside it, on the Python that runs this.

python3.13 tools/try_wheel.py dist/svag-0.2.0-py3-none-any.whl

A fresh environment gets the wheel with the versions of constraints.txt (on Linux, the torch of PyPI brings packages for
CUDA of 2.5 GB). There the loops of the front page run, SVAG, and the command `svag`, with warnings as errors. The
environment is removed afterwards.
"""

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLES = ("plain_loop.py", "svag_loop.py")
SMALL, LARGE, STEPS = 16, 128, 2000


def main() -> None:
    """Make the environment and try the wheel in it; without a wheel, try what is installed here."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path, nargs="?", help="by default, what is installed for this Python")
    wheel = parser.parse_args().wheel
    if wheel is None:
        try_here()
        return
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / ("Scripts" if os.name == "nt" else "bin") / "python"
        pip = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "-c",
            str(ROOT / "constraints.txt"),
            str(wheel.resolve()),
        ]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        for command in (pip, [str(python), "-W", "error", str(Path(__file__).resolve())]):
            subprocess.run(command, cwd=folder, env=environment, check=True)


def try_here() -> None:
    """Import, measure, train by the gain rule in both ways, run the examples and the command."""
    for name in ("pydantic", "typer", "rich", "yaml", "altair"):
        assert importlib.util.find_spec(name) is None, f"{name} is there: the environment proves nothing"
    here = ", ".join(f"{one} {importlib.metadata.version(one)}" for one in ("svag", "torch", "numpy", "scipy"))
    print(f"Python {platform.python_version()}, {here}")
    print(
        f"import torch: {seconds('import torch'):.1f} s; svag as well: {seconds('import svag; svag.NoiseProbe'):.1f} s"
    )
    laboratory = run(sys.executable, "-c", "import svag; svag.lab.RunSpec", code=1)
    assert "svag[lab]" in laboratory.stderr, laboratory.stderr

    train_and_price()
    for example in EXAMPLES:
        print(run(sys.executable, "-W", "error", ROOT / "examples" / example).stdout)
    command = Path(sys.executable).with_name("svag")
    version = run(command, "--version").stdout.strip()
    assert version == f"svag {importlib.metadata.version('svag')}", version
    refused = run(command, "demo", code=1).stderr
    assert "svag[lab]" in refused, refused
    assert "Traceback" not in refused, refused
    print(refused.strip())


def run(*command: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command that ends with this exit code."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def seconds(code: str) -> float:
    """The time of some lines in a Python of their own, the faster of two runs."""
    taken = []
    for _ in range(2):
        start = time.perf_counter()
        run(sys.executable, "-c", code)
        taken.append(time.perf_counter() - start)
    return min(taken)


def train_and_price() -> None:
    """The loops of the front page on random data: the small batch, then the large one, measured and planned."""
    import torch
    from torch import Tensor, nn

    import svag

    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(4000, 20)
    y = (x[:, :3].sum(dim=1) + torch.randn(4000) > 0).long()

    def fresh() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def batch(size: int) -> tuple[Tensor, Tensor]:
        chosen = torch.randperm(len(x))[:size]
        return x[chosen], y[chosen]

    losses = {}
    for size in (SMALL, LARGE):
        model, optimizer = fresh()
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

        def loss_fn(batch: tuple[Tensor, Tensor], model: nn.Module = model) -> Tensor:
            return nn.functional.cross_entropy(model(batch[0]), batch[1])

        probe = svag.NoiseProbe(model, optimizer, batch_size=size, population=len(x))
        rule = svag.GainRule(probe, base_batch_size=SMALL, base_steps=STEPS)
        while not rule.done:
            optimizer.zero_grad()
            probe.backward(loss_fn, batch(size), parts=4)
            optimizer.step()
            for _ in range(rule.due):
                scheduler.step()
        losses[f"batch {size}"] = loss_fn((x, y)).item()
        if size == SMALL:
            found = probe.price_list()
            print(found)
    [price] = found.prices([LARGE])
    model, optimizer = fresh()
    planned = svag.GainRule.planned(optimizer, price.plan)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    while not planned.done:
        optimizer.zero_grad()
        inputs, labels = batch(LARGE)
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        for _ in range(planned.due):
            scheduler.step()
    losses[f"batch {LARGE}, planned"] = nn.functional.cross_entropy(model(x), y).item()
    print(", ".join(f"{name}: training loss {loss:.3f}" for name, loss in losses.items()))
    # they end within a few percent of each other; what is tried here is that they run
    assert max(losses.values()) < 1.2 * min(losses.values()), losses


if __name__ == "__main__":
    main()
