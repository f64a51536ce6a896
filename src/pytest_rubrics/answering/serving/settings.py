"""The ``serve:`` block of a model or judge."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from pytest_rubrics.yaml_files import YamlModel

NonEmpty = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ServingError(Exception):
    """A local server did not start, or has ended; the text says why and what to do."""


class WeightsConfig(YamlModel):
    """Where a GGUF file is: exactly one of ``package``, ``path`` and ``huggingface``.

    Attributes:
        package: Installed Python package that holds ``file``.
        path: A file, relative to the workspace.
        huggingface: Repository on Hugging Face; ``file`` is downloaded once.
        file: File name inside the package or repository.
        revision: Revision of the repository.
        sha256: Checked before the server starts. It also lets a replay do without the file.
    """

    package: NonEmpty | None = None
    path: NonEmpty | None = None
    huggingface: NonEmpty | None = None
    file: NonEmpty | None = None
    revision: NonEmpty = "main"
    sha256: Sha256 | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> WeightsConfig:
        given = [name for name in ("package", "path", "huggingface") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"expected exactly one of package, path and huggingface, found {' and '.join(given) or 0}")
        if (self.file is None) != (self.path is not None):
            raise ValueError("file names the GGUF file in a package or repository; path stands alone")
        if self.huggingface is not None and self.sha256 is None:
            raise ValueError("huggingface needs sha256, which the hub shows beside the file: a revision may move")
        return self


class ServeConfig(YamlModel):
    """A server of one's own: llama.cpp on a GGUF file, or any command.

    Attributes:
        weights: The GGUF file.
        context: Tokens of context for one request.
        slots: Requests side by side.
        threads: CPU threads, for ``weights`` only.
        command: Instead of ``weights``: a server to start in the workspace. ``{port}``, ``{api_key}``, ``{context}``
            and ``{slots}`` are replaced. What stands in a command line can be read by other users of the machine.
        ready: Path that answers 200 when the server is ready.
        start_timeout: Seconds until it must be ready.
    """

    weights: WeightsConfig | None = None
    context: Count = 8192
    slots: Count = 4
    threads: Count = 1
    command: list[NonEmpty] | None = Field(default=None, min_length=1)
    ready: Annotated[str, Field(pattern="^/")] = "/health"
    start_timeout: float = Field(default=300.0, gt=0)

    @model_validator(mode="after")
    def _is_complete(self) -> ServeConfig:
        if (self.weights is None) == (self.command is None):
            raise ValueError("expected either weights or command")
        if self.command is not None and "threads" in self.model_fields_set:
            raise ValueError("threads is for weights; a command takes its own options")
        if self.command is not None and not any("{port}" in word for word in self.command):
            raise ValueError('command needs "{port}": the port to listen on is chosen when the server starts')
        return self
