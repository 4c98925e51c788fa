"""A local server that can misbehave, and tiny data sets in the official formats."""

import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.io import savemat

from svag.lab.data.sources import CIFAR10, CIFAR100, FASHION_MNIST, SVHN, Download, Member, Source


@dataclass
class Server:
    """Serves `files`; `cuts` are after how many bytes of the answer the next connections break.

    `length` is what it says instead of the length, and `repeat` how often it sends the file in one answer. With
    `trickle` it sends a byte every few milliseconds, of the head or of the body of its answer.
    """

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    ranges: bool = True
    length: str | None = None
    repeat: int = 1
    pause: float = 0.0
    trickle: str = ""


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            state.requests.append((self.path, wanted))
            content = state.files.get(self.path.rpartition("/")[2])
            if content is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and state.ranges else 0
            if start >= len(content):
                self.send_error(416)
                return
            body = content[start:]
            if state.trickle == "head":
                self._drip(b"HTTP/1.1 200 OK\r\nX: " + body)
                return
            self.send_response(206 if start else 200)
            if state.length != "":
                self.send_header("Content-Length", state.length or str(len(body)))
            if self.path.endswith(".gz"):
                self.send_header("Content-Encoding", "gzip")  # as some servers do: it must not be unpacked on the way
            self.end_headers()
            waiting.wait(state.pause)
            if state.trickle == "body":
                self._drip(body)
                return
            with suppress(ConnectionError):  # the other end has heard enough
                for _ in range(state.repeat):
                    self.wfile.write(body[: state.cuts.pop(0)] if state.cuts else body)

        def _drip(self, content: bytes) -> None:
            with suppress(ConnectionError):
                for byte in content:
                    if waiting.wait(0.005):
                        return
                    self.wfile.write(bytes([byte]))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    waiting = threading.Event()
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Server(f"http://127.0.0.1:{http.server_address[1]}")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    waiting.set()
    http.shutdown()
    thread.join()
    http.server_close()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Tiny:
    """A data set of a few images in the official format, and what a reader must find in it."""

    source: Source
    files: dict[str, bytes]
    members: dict[str, bytes]
    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]


def _examples(n: int, shape: tuple[int, ...], classes: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return rng.integers(256, size=(n, *shape), dtype=np.uint8), rng.integers(classes, size=n)


def tar(folder: str, members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in {"readme.html": b"<html>", **members}.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _idx(array: NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def _mat(x: NDArray[np.uint8], y: NDArray[np.int64]) -> bytes:
    buffer = io.BytesIO()
    labels = np.where(y == 0, 10, y).astype(np.uint8)[:, None]
    # the stubs do not know that a file-like object is allowed
    savemat(buffer, {"X": x.transpose(2, 3, 1, 0), "y": labels}, do_compression=True)  # type: ignore[arg-type]
    return buffer.getvalue()


def _tiny(address: str, official: Source, files: dict[str, bytes], members: dict[str, bytes], *arrays: object) -> Tiny:
    """The official description with the address of the local server and the checksums of the tiny files."""
    downloads = tuple(
        Download(
            f"{address}/{download.filename}",
            md5(files[download.filename]),
            download.megabytes,
            tuple(Member(m.name, md5(members[m.name]) if m.md5 else None) for m in download.members),
        )
        for download in official.downloads
    )
    train_x, train_y, test_x, test_y = arrays
    source = replace(official, downloads=downloads, examples=(len(train_x), len(test_x)))  # type: ignore[arg-type]
    return Tiny(source, files, members, train_x, train_y, test_x, test_y)  # type: ignore[arg-type]


def _make_fashion(address: str) -> Tiny:
    (train_x, train_y), (test_x, test_y) = _examples(12, (28, 28), 10, 0), _examples(7, (28, 28), 10, 1)
    members = {
        "train-images-idx3-ubyte": _idx(train_x),
        "train-labels-idx1-ubyte": _idx(train_y.astype(np.uint8)),
        "t10k-images-idx3-ubyte": _idx(test_x),
        "t10k-labels-idx1-ubyte": _idx(test_y.astype(np.uint8)),
    }
    files = {f"{name}.gz": gzip.compress(content) for name, content in members.items()}
    return _tiny(address, FASHION_MNIST, files, members, train_x[:, None], train_y, test_x[:, None], test_y)


def _make_cifar10(address: str) -> Tiny:
    (train_x, train_y), (test_x, test_y) = _examples(10, (3, 32, 32), 10, 2), _examples(4, (3, 32, 32), 10, 3)
    records = [bytes([y]) + x.tobytes() for x, y in zip(train_x, train_y, strict=True)]
    members = {f"data_batch_{i + 1}.bin": b"".join(records[2 * i : 2 * i + 2]) for i in range(5)}
    members["test_batch.bin"] = b"".join(bytes([y]) + x.tobytes() for x, y in zip(test_x, test_y, strict=True))
    files = {"cifar-10-binary.tar.gz": tar("cifar-10-batches-bin", members)}
    return _tiny(address, CIFAR10, files, members, train_x, train_y, test_x, test_y)


def _make_cifar100(address: str) -> Tiny:
    (train_x, train_y), (test_x, test_y) = _examples(9, (3, 32, 32), 100, 4), _examples(4, (3, 32, 32), 100, 5)
    members = {
        "train.bin": b"".join(bytes([y % 20, y]) + x.tobytes() for x, y in zip(train_x, train_y, strict=True)),
        "test.bin": b"".join(bytes([y % 20, y]) + x.tobytes() for x, y in zip(test_x, test_y, strict=True)),
    }
    files = {"cifar-100-binary.tar.gz": tar("cifar-100-binary", members)}
    return _tiny(address, CIFAR100, files, members, train_x, train_y, test_x, test_y)


def _make_svhn(address: str) -> Tiny:
    (train_x, train_y), (test_x, test_y) = _examples(11, (3, 32, 32), 10, 6), _examples(5, (3, 32, 32), 10, 7)
    train_y[:2], test_y[:2] = (0, 9), (9, 0)  # the digit 0 is stored as 10
    members = {"train_32x32.mat": _mat(train_x, train_y), "test_32x32.mat": _mat(test_x, test_y)}
    return _tiny(address, SVHN, members, members, train_x, train_y, test_x, test_y)


MAKERS = {"fashion-mnist": _make_fashion, "cifar10": _make_cifar10, "cifar100": _make_cifar100, "svhn": _make_svhn}


@pytest.fixture(params=MAKERS)
def tiny(request: pytest.FixtureRequest, server: Server) -> Tiny:
    """Each official data set in turn, offered by the local server."""
    made = MAKERS[request.param](server.address)
    server.files |= made.files
    return made
