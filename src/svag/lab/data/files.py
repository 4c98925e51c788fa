"""The unpacked files of a data set, from wherever they are: loose, compressed, in their archive, or not here yet.

The data folder is the one given, $SVAG_DATA, or the user's cache. In it, files are looked for in `name/`, `folder/`
and `name/folder/`, where name is ours (`cifar10`) and folder the official one (`cifar-10-batches-bin`). Archives are
read in place: nothing is unpacked on disk.
"""

import gzip
import hashlib
import os
import tarfile
import zlib
from pathlib import Path

from svag.lab.data.fetch import fetch
from svag.lab.data.formats import Arrays, DataError, checked
from svag.lab.data.sources import Download, Source


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


def find(source: Source, data_dir: Path) -> list[Path] | None:
    """Return the files of a data set that are here, or None when some are missing."""
    found = [_files_of(download, _places(source, data_dir)) for download in source.downloads]
    return None if any(not files for files in found) else [path for files in found for path in files]


def read(source: Source, data_dir: Path) -> Arrays:
    """Read a data set, fetching what is not here yet."""
    contents: dict[str, bytes] = {}
    for download in source.downloads:
        files = _files_of(download, _places(source, data_dir)) or [fetch(download, data_dir / source.name)]
        contents |= _contents(download, files)
    where = str(data_dir / source.name)
    fix = f"delete it and run `svag data get {source.name}`"
    try:
        arrays = source.read(contents)
    except ValueError as error:
        raise DataError(f"{source.name} in {data_dir} is corrupt ({error}): {fix}") from error
    if (len(arrays.train_x), len(arrays.test_x)) != source.examples:
        raise DataError(
            f"{source.name} in {data_dir} has {len(arrays.train_x)} training and {len(arrays.test_x)} test images "
            f"instead of {source.examples[0]} and {source.examples[1]}: {fix}"
        )
    return checked(arrays, where, fix)


def _places(source: Source, data_dir: Path) -> list[Path]:
    return [data_dir / source.name, data_dir / source.folder, data_dir / source.name / source.folder]


def _files_of(download: Download, places: list[Path]) -> list[Path]:
    """Return all unpacked files of a download (each may be gzipped), else the download itself, else nothing."""
    for place in places:
        choices = [(place / member.name, place / f"{member.name}.gz") for member in download.members]
        loose = [next((path for path in pair if _is_file(path)), None) for pair in choices]
        files = [path for path in loose if path is not None]
        if len(files) == len(download.members):
            return files
    return [place / download.filename for place in places if _is_file(place / download.filename)][:1]


def _contents(download: Download, files: list[Path]) -> dict[str, bytes]:
    """Return the verified content of each member."""
    if files[0].name.endswith(".tar.gz"):
        contents = _untar(files[0], download)
        files = files * len(download.members)
    else:
        contents = {member.name: _bytes(path) for member, path in zip(download.members, files, strict=True)}
    for member, path in zip(download.members, files, strict=True):
        if member.md5 is not None and _md5(contents[member.name]) != member.md5:
            raise _corrupt(path, f"the md5 of {member.name} is not {member.md5}")
    return contents


def _bytes(path: Path) -> bytes:
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                return file.read()
        return path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _corrupt(path, str(error)) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _untar(path: Path, download: Download) -> dict[str, bytes]:
    """Read the members of an archive; where they have no checksum of their own, that of the archive must be right."""
    wanted = {member.name for member in download.members}
    contents: dict[str, bytes] = {}
    try:
        if any(member.md5 is None for member in download.members) and _md5(path.read_bytes()) != download.md5:
            raise _corrupt(path, f"its md5 is not {download.md5}")
        with tarfile.open(path, "r:gz") as archive:
            for entry in archive:
                name = entry.name.rpartition("/")[2]
                if name in wanted and (file := archive.extractfile(entry)):
                    contents[name] = file.read()
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError) as error:
        raise _corrupt(path, str(error)) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    if missing := wanted - set(contents):
        raise _corrupt(path, f"it does not hold {', '.join(sorted(missing))}")
    return contents


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder that may not be entered: nothing is found there
        return False


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _corrupt(path: Path, why: str) -> DataError:
    return DataError(f"{path} is corrupt ({why}): delete it, then `svag data get` brings a good one")


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path} cannot be read ({error.strerror or error}): check its permissions")
