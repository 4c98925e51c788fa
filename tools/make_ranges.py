"""Writes src/svag/prices/ranges.json: how far measured prices were from predicted ones, by ladder.

    python tools/make_ranges.py

The pairs are those of results/one_gain_pairs.json, measured under one average gain; the sampling error of their prices
comes from the readings of the baselines in results/atlas.
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from svag.lab import load_records
from svag.prices.history import History, run_history

ROOT = Path(__file__).parents[1]
PAIRS = ROOT / "results" / "one_gain_pairs.json"
TABLE = ROOT / "src" / "svag" / "prices" / "ranges.json"


@cache
def baseline(ladder: str) -> History:
    """The whole baseline of a ladder, the runs of its smallest batch, as one phase."""
    records = [record for record in load_records(ROOT / "results" / "atlas" / ladder) if record.readings]
    smallest = min(record.readings[0].batch_size for record in records)
    readings = [
        replace(reading, run=str(number), step=None)  # without steps there is one phase, as there was one gain
        for number, record in enumerate(records)
        for reading in record.readings
        if reading.batch_size == smallest
    ]
    return run_history(readings)


def table() -> str:
    """The text of the table."""
    saved: dict[str, Any] = json.loads(PAIRS.read_text())
    ladders: dict[str, list[float | None]] = {}
    errors = []
    for pair in saved["pairs"]:
        ladders.setdefault(pair["ladder"], []).append(pair["ratio"])
        found = baseline(pair["ladder"])
        errors.append(found.log_error(pair["kappa"] * found.batch_size))
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(ratios)}" for name, ratios in ladders.items())
    log_error = round(median(errors), 3)
    return (
        f'{{\n  "rule": {json.dumps(saved["rule"])},\n  "log_error": {log_error},\n  "ladders": {{\n{lines}\n  }}\n}}\n'
    )


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
