"""Record a run at batch 16, plan 128 and 512 from a quarter, a half and all of it, and train: 30 seconds on one core.

python examples/gain_planned.py [STEPS]
"""

import sys
from collections.abc import Sequence

import torch
from torch import Tensor, nn

import svag
from svag.lab.data.load import load_data

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
SMALL, LARGE, SHARES = 16, (128, 512), (0.25, 0.5, 1.0)
DATA = load_data("fashion-small")  # 10,000 images of 14×14
ALL = torch.arange(len(DATA.train_x))


def train(plan: svag.GainPlan) -> tuple[str, Sequence[svag.Reading]]:
    """Train with optimizer and schedule of the small batch; measure if it is the small batch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(196, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    probe = svag.NoiseProbe(model, optimizer, batch_size=plan.batch_size, population=len(ALL))
    rule = svag.GainRule.planned(optimizer, plan, base_steps=STEPS)
    while not rule.done:
        batch = DATA.batch(torch.randperm(len(ALL))[: plan.batch_size])
        optimizer.zero_grad()
        if plan.batch_size == SMALL:
            probe.backward(loss_fn, batch, parts=4)
        else:
            loss_fn(batch).backward()  # a planned run needs no probe
        optimizer.step()
        for _ in range(rule.due):
            scheduler.step()
    with torch.no_grad():
        loss = loss_fn(DATA.batch(ALL))
    return f"training loss {loss:.3f}, {rule.price:.2f}× the examples", probe.readings


if __name__ == "__main__":
    torch.set_num_threads(1)
    found, readings = train(svag.GainPlan(SMALL, SMALL, ((0, 1.0),)))
    print(f"batch {SMALL}: {found}")
    for size in LARGE:
        for share in SHARES:
            (price,) = svag.price_list(readings[: round(share * STEPS)]).prices([size])
            print(f"batch {size}, planned from {share:.0%} of the baseline: {train(price.plan)[0]}")
