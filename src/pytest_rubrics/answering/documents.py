"""Reports in PDF and Word files, as text."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pytest_rubrics.characters import whole_characters
from pytest_rubrics.faults import Fault, FaultsError

CONVERSION = 1  # raise it when the text of a report changes, so that what was converted before is converted again

_INSTALL = 'Run: pip install "pytest-rubrics[reports]", or give the report as .md or .txt.'
_AS_TEXT = "Give the report as .md or .txt."


def report_text(path: Path, kept_in: Path) -> str:
    """The text of a PDF or Word file, converted once.

    Args:
        path: The file, ``.pdf`` or ``.docx``.
        kept_in: Folder of texts that were converted before.

    Raises:
        FaultsError: It cannot be read, or holds no text.
    """
    content = path.read_bytes()
    kept = kept_in / f"{hashlib.sha256(content).hexdigest()}.{CONVERSION}.txt"
    if kept.is_file():
        return kept.read_text(encoding="utf-8")
    text = _converted(path)
    if not text.strip():
        # An empty answer would count as the model's failure, and a scan is not that.
        raise _fault(path, "holds no text: it may be a scan.", _AS_TEXT)
    with suppress(OSError):  # where it cannot be kept it is converted again
        kept_in.mkdir(parents=True, exist_ok=True)
        partial = kept.with_name(f"{kept.name}.{os.getpid()}.part")
        partial.write_text(text, encoding="utf-8")
        partial.replace(kept)
    return text


def _converted(path: Path) -> str:
    convert = CONVERTERS[path.suffix.lower()]
    try:
        text = convert(path)
    except ImportError as error:
        raise _fault(path, f"needs the package {error.name} to be read.", _INSTALL) from error
    except Exception as error:  # the libraries raise whatever a damaged file leads to
        raise _fault(path, f"cannot be read: {error or type(error).__name__}.", _AS_TEXT) from error
    return whole_characters(text)


def _pdf(path: Path) -> str:
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns of every oddity that it has mended
    with pypdf.PdfReader(path) as reader:
        return "\n\n".join(page.extract_text() for page in reader.pages)


def _docx(path: Path) -> str:
    import mammoth  # type: ignore[import-untyped]
    import markdownify

    with path.open("rb") as file:
        html = mammoth.convert_to_html(file, convert_image=mammoth.images.img_element(lambda image: {})).value
    # Reports are often Markdown already: their own signs stay as they are.
    text: str = markdownify.markdownify(
        html, heading_style="ATX", strip=["img"], escape_asterisks=False, escape_underscores=False, escape_misc=False
    )
    return text


CONVERTERS: Mapping[str, Callable[[Path], str]] = {".pdf": _pdf, ".docx": _docx}


def _fault(path: Path, message: str, fix: str) -> FaultsError:
    return FaultsError([Fault(str(path), message, fix=fix)])
