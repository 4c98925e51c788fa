"""One thread of torch for every test: workers that each take all cores wait for each other most of the time."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
