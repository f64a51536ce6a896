"""Download of a published data set from Hugging Face or ModelScope, once, with its checksums verified."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from pytest_rubrics.faults import Fault, FaultsError

if TYPE_CHECKING:
    import httpx

    from pytest_rubrics.benchmark_file import Hub, Repository

RECORD = "downloaded.json"
_TIMEOUT = 30.0  # seconds without a byte


class DownloadError(Exception):
    """A hub did not give a file; the text says why."""


class NotFoundError(DownloadError):
    """The hub does not know the file at this revision."""


@dataclass(frozen=True, slots=True)
class Location:
    """A repository on a hub at a revision.

    Attributes:
        hub: Name to print.
        endpoint: Base address.
        repo: Owner and name.
        revision: Branch, tag or commit.
        token: Sent to the endpoint; None for none.
    """

    hub: str
    endpoint: str
    repo: str
    revision: str
    token: str | None = None

    def url(self, file: str) -> str:
        """Return the address of a file."""
        if self.hub == "ModelScope":
            query = urlencode({"Revision": self.revision, "FilePath": file})
            return f"{self.endpoint}/api/v1/datasets/{quote(self.repo)}/repo?{query}"
        return f"{self.endpoint}/datasets/{quote(self.repo)}/resolve/{quote(self.revision, safe='')}/{quote(file)}"

    def __str__(self) -> str:
        return f"{self.hub} {self.repo}@{self.revision}"


def fetch(hub: Hub, folder: Path) -> tuple[dict[str, Path], str]:
    """Return the files of a published data set, after downloading those that are not in a folder yet.

    Hugging Face is asked first, then ModelScope. A hub that does not know the revision, which may be abbreviated, is
    asked for its main branch: the checksums decide. Processes that start together download once.

    Args:
        hub: The repositories and the files with their checksums.
        folder: Where the files are kept. ``downloaded.json`` in it records what came from where.

    Returns:
        Each file with its path, and the origin in words.

    Raises:
        FaultsError: A file could not be had; it names everything that was tried.
    """
    from filelock import FileLock

    try:
        folder.mkdir(parents=True, exist_ok=True)
        if _missing(hub, folder):
            with FileLock(folder / ".lock"):
                # Another process may have been faster.
                if missing := _missing(hub, folder):
                    _download(hub, folder, missing)
    except OSError as error:
        raise FaultsError([Fault(str(folder), f"cannot be written: {error}.", fix="Name another folder.")]) from error
    origins = sorted({entry["from"] for entry in _read_record(folder).values()})
    return {file: folder / file for file in hub.files}, f"full ({', '.join(origins)})" if origins else "full"


def locations(hub: Hub, environ: Mapping[str, str] = os.environ) -> list[list[Location]]:
    """Return the places to ask, hub by hub. ``HF_ENDPOINT``, ``HF_TOKEN`` and ``MODELSCOPE_ENDPOINT`` are respected."""
    huggingface = environ.get("HF_ENDPOINT") or "https://huggingface.co"
    modelscope = environ.get("MODELSCOPE_ENDPOINT") or "https://www.modelscope.cn"
    return [
        list(_revisions("Hugging Face", huggingface, hub.huggingface, "main", environ.get("HF_TOKEN") or None)),
        list(_revisions("ModelScope", modelscope, hub.modelscope, "master", None)),
    ]


def _revisions(
    name: str, endpoint: str, repository: Repository | None, branch: str, token: str | None
) -> Iterator[Location]:
    if repository is not None:
        for revision in dict.fromkeys([repository.revision, branch]):
            yield Location(name, endpoint.rstrip("/"), repository.repo, revision, token)


def _download(hub: Hub, folder: Path, missing: list[str]) -> None:
    """Download the missing files, from as many hubs as it takes."""
    import httpx

    tried = []
    with httpx.Client(follow_redirects=True, timeout=_TIMEOUT) as client:
        for revisions in locations(hub):
            for location in revisions:
                try:
                    while missing:
                        _download_file(client, location, missing[0], folder, hub.files[missing[0]])
                        missing = missing[1:]
                    return
                except DownloadError as error:
                    tried.append(f"{location} via {_host(location.endpoint)}: {missing[0]}: {error}")
                    if not isinstance(error, NotFoundError):
                        break
    raise FaultsError([_cannot_fetch(hub, missing, tried)])


def _host(endpoint: str) -> str:
    """Return an address without the credentials it may hold."""
    return endpoint.partition("://")[2].rpartition("@")[2]


def _download_file(client: httpx.Client, location: Location, file: str, folder: Path, pinned: str | None) -> None:
    """Download one file beside its place and move it there when it is whole and right."""
    target = folder / file
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")  # under the lock, so that the name is ours alone
    try:
        sha256 = _stream(client, location, file, part)
        first = _read_record(folder).get(file, {}).get("sha256")
        if pinned and sha256 != pinned:
            raise DownloadError(f"has SHA-256 {sha256}, expected {pinned}")
        if not pinned and first and sha256 != first:
            hint = f"the data changed (to accept it, remove {folder})"
            raise DownloadError(f"has SHA-256 {sha256}, but the first download had {first}: {hint}")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    _add_to_record(folder, file, sha256, str(location))


def _stream(client: httpx.Client, location: Location, file: str, part: Path) -> str:
    """Write a file as it comes and return its SHA-256."""
    import httpx

    digest = hashlib.sha256()
    headers = {"Authorization": f"Bearer {location.token}"} if location.token else {}
    try:
        with client.stream("GET", location.url(file), headers=headers) as response, part.open("wb") as output:
            _check_status(response)
            for chunk in response.iter_bytes():
                digest.update(chunk)
                output.write(chunk)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise DownloadError(f"{type(error).__name__}: {error}") from error
    return digest.hexdigest()


def _check_status(response: httpx.Response) -> None:
    if response.status_code == 404:
        raise NotFoundError("HTTP 404: no such file at this revision")
    if response.status_code in {401, 403}:
        raise DownloadError(f"HTTP {response.status_code}: no such repository, or it asks for a login (HF_TOKEN)")
    if response.status_code != 200:
        raise DownloadError(f"HTTP {response.status_code} {response.reason_phrase}")
    if response.headers.get("content-type", "").startswith("text/html"):
        raise DownloadError("an HTML page came instead of the file")


def _missing(hub: Hub, folder: Path) -> list[str]:
    """Return the files that are absent or not what they should be."""
    record = _read_record(folder)
    expected = {file: pinned or record.get(file, {}).get("sha256") for file, pinned in hub.files.items()}
    return [file for file, sha256 in expected.items() if sha256 is None or _sha256(folder / file) != sha256]


def _sha256(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _read_record(folder: Path) -> dict[str, dict[str, str]]:
    path = folder / RECORD
    try:
        record: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise FaultsError(
            [Fault(str(path), f"cannot be read: {error}.", fix="Remove the folder to fetch anew.")]
        ) from error
    return record


def _add_to_record(folder: Path, file: str, sha256: str, origin: str) -> None:
    record = {**_read_record(folder), file: {"sha256": sha256, "from": origin}}
    part = folder / f"{RECORD}.part"  # under the lock, so that the name is ours alone
    part.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    part.replace(folder / RECORD)


def _cannot_fetch(hub: Hub, missing: list[str], tried: list[str]) -> Fault:
    message = "\n  ".join([f"{', '.join(missing)} could not be downloaded. Tried:", *tried])
    fix = (
        f"\n  Set HF_ENDPOINT to a mirror; or download {hub.first.repo} with the hub's own client "
        "(hf download, modelscope download) and give its folder: --source PATH."
    )
    return Fault("--source full", message, fix=fix)
