"""How long a page takes: budget, 200 runs in under 10 s and under 5 MB."""

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.lab.report.folders import around, compare_folder  # noqa: E402

from svag.lab.report.save import vega_bundle  # noqa: E402
from svag.lab.report.write import build_report, write_files  # noqa: E402


def main() -> None:
    start = time.perf_counter()
    vega_bundle()
    bundle = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as place:
        finals = {ell: around(0.85, 0.003, 10, ell) for ell in (1, 2, 4, 8, 16)}
        panels = ("a", "b", "c", "d")  # 4 panels × 5 ell × 10 seeds, 50 evaluations each
        folder = compare_folder(Path(place) / "in", finals, panels=panels, evaluations=50)
        start, processor = time.perf_counter(), time.process_time()
        report = build_report(folder)
        written = write_files(report, Path(place) / "out", ())
        built, computed = time.perf_counter() - start, time.process_time() - processor
        size = written.page.stat().st_size / 1e6
    print(f"page for {len(report.runs.rows)} runs: {built:.1f} s (budget 10), {computed:.1f} s of the processor")
    print(f"its size: {size:.2f} MB (budget 5)")
    print(f"the scripts of the page, once per version and then kept: {bundle:.1f} s")


if __name__ == "__main__":
    main()
