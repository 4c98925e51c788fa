"""Where data is kept: the folder given, $SVAG_DATA, or the user's cache."""

import os
from pathlib import Path


def data_folder(data_dir: Path | str | None = None) -> Path:
    """Return the folder in which data sets are looked for and kept.

    >>> data_folder("/data").as_posix()
    '/data'
    """
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if named := os.environ.get("SVAG_DATA"):
        return Path(named).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("svag")
