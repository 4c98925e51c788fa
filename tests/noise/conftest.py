from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.two_ranks import two_ranks


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What two ranks found together, in `loops_rank.py`."""
    return two_ranks("tests.noise.loops_rank", tmp_path_factory.mktemp("two"))
