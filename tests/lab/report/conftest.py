"""Reports of made-up folders, each built once."""

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import pytest
from tests.lab.report.folders import CASES

from svag.lab.experiments import load_experiment
from svag.lab.experiments.finding import Finding, PanelFinding
from svag.lab.records.record import load_records
from svag.lab.report.content import Report
from svag.lab.report.write import build_report

Find: TypeAlias = Callable[[str], Finding[PanelFinding]]
Build: TypeAlias = Callable[[str], Report]


@pytest.fixture(scope="session")
def finding_of(tmp_path_factory: pytest.TempPathFactory) -> Find:
    """The finding of a case, by its name."""

    @cache
    def made(name: str) -> Finding[PanelFinding]:
        folder = CASES[name](tmp_path_factory.mktemp(name))
        experiment = load_experiment(folder)
        assert experiment is not None
        return experiment.find(load_records(folder))

    return made


@pytest.fixture(scope="session")
def report_of(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The report of a case, by its name."""
    return cache(lambda name: build_report(CASES[name](tmp_path_factory.mktemp(name))))
