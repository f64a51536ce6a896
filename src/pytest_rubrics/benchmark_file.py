"""The contents of a ``benchmark.yaml``: what the tasks are, how they are judged and scored."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from pytest_rubrics.expressions import compile_expression, compile_template, placeholders
from pytest_rubrics.yaml_files import YamlModel

_MARKER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# These markers already mean something to pytest: a domain of such a name would skip or rearrange tests.
_RESERVED = {"and", "filterwarnings", "not", "or", "parametrize", "skip", "skipif", "usefixtures", "xfail"}


def _check_marker(name: str) -> str:
    if not _MARKER.fullmatch(name) or name in _RESERVED:
        raise ValueError(f"{name!r} cannot be a marker: use ASCII letters, digits and _, and no word of pytest's own")
    return name


def _check_expression(text: str) -> str:
    compile_expression(text)
    return text


def _check_template(text: str) -> str:
    compile_template(text)
    return text


def _check_relative(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts or "\\" in path:
        raise ValueError(f"{path!r} is not a relative path with forward slashes")
    return path


Marker = Annotated[str, AfterValidator(_check_marker)]
Expression = Annotated[str, AfterValidator(_check_expression)]
Template = Annotated[str, AfterValidator(_check_template)]
RelativePath = Annotated[str, AfterValidator(_check_relative)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Repository(YamlModel):
    """A data set repository on a hub, at a revision."""

    repo: str
    revision: str


class Hub(YamlModel):
    """Where ``--source full`` downloads from.

    Attributes:
        huggingface: Asked first.
        modelscope: Asked when Hugging Face does not give a file.
        files: Path inside the repository to SHA-256. Without one, the first download decides what later ones must be.
    """

    huggingface: Repository | None = None
    modelscope: Repository | None = None
    files: dict[RelativePath, Sha256 | None] = Field(min_length=1)

    @model_validator(mode="after")
    def _has_a_hub(self) -> Hub:
        if self.huggingface is None and self.modelscope is None:
            raise ValueError("name huggingface or modelscope, with repo and revision")
        return self

    @property
    def first(self) -> Repository:
        """The repository asked first; its revision names the download's folder."""
        repository = self.huggingface or self.modelscope
        assert repository is not None
        return repository


class Sources(YamlModel):
    """Where rows come from.

    Attributes:
        sample: Bundled sample, beside ``benchmark.yaml``.
        published: Globs of the published layout, below the folder given to ``--source``.
        hub: The published data set.
    """

    sample: RelativePath = "sample.jsonl"
    published: list[RelativePath] = Field(default=[])
    hub: Hub | None = None


class Value(YamlModel):
    """How one value is read from a row. A plain text is short for ``from``.

    Attributes:
        from_: JMESPath expression (written ``from``).
        template: Text with ``{expression}`` places; without places it is a constant.
        spellings: One name to its other spellings in the data; case is ignored.
        absent: Texts that stand for "no value".
    """

    from_: Expression | None = Field(default=None, alias="from")
    template: Template | None = None
    spellings: dict[str, list[str]] = Field(default={})
    absent: list[str] = Field(default=[])

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"from": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_whole(self) -> Value:
        if (self.from_ is None) == (self.template is None):
            raise ValueError("give either from or template")
        self.names()
        return self

    def names(self) -> dict[str, str]:
        """Return every spelling, case folded, with its one name.

        Raises:
            ValueError: A spelling stands under two names.
        """
        names: dict[str, str] = {}
        for name, others in self.spellings.items():
            for spelling in [name, *others]:
                if names.setdefault(spelling.strip().casefold(), name) != name:
                    raise ValueError(f"{spelling!r} is a spelling of two names")
        return names


class CriteriaRecord(YamlModel):
    """How the rubric is read from a row.

    Attributes:
        each: Expression that gives the list of criteria; the others are evaluated on its entries.
        id: Opaque name; the position, counted from 1, if not given.
        text: The statement.
        weight: A number other than 0.
        tag: Kind. A kind that `spellings` does not list is kept as it stands: it changes no score.
    """

    each: Expression
    text: Value
    weight: Value
    id: Value | None = None
    tag: Value | None = None


class Record(YamlModel):
    """How a row becomes a task.

    Attributes:
        id: Unique identity.
        key: Short name in pytest ids; the id if not given.
        language: It must come to ``en`` or ``zh``.
        prompt: Kept verbatim.
        system_prompt: Kept verbatim; a blank one is none.
        groups: Fields to report by.
        subset: Template over the groups, such as ``{track}_{domain}``.
        markers: ``subset`` and names of groups whose values become markers.
        topics: Expression that gives a list of texts.
        cluster: Tasks that share it are not independent.
        criteria: The rubric.
    """

    id: Value
    prompt: Value
    language: Value
    criteria: CriteriaRecord
    subset: Template
    key: Value | None = None
    system_prompt: Value | None = None
    groups: dict[str, Value] = Field(default={})
    markers: list[str] = Field(default=["subset"])
    topics: Expression | None = None
    cluster: Value | None = None

    @model_validator(mode="after")
    def _groups_exist(self) -> Record:
        unknown = sorted(self.needed_groups() - self.groups.keys())
        if unknown:
            raise ValueError(f"subset and markers name {', '.join(unknown)}, which is not among the groups")
        return self

    def needed_groups(self) -> set[str]:
        """Return the groups that every row must have, since its subset or a marker is made of them."""
        return {*placeholders(self.subset), *self.markers} - {"subset"}


class JudgingRule(YamlModel):
    """How an answer is judged.

    Attributes:
        method: ``sheet`` asks for all criteria in one call, ``criterion`` for one in each.
        prompt: Name of a prompt under ``judges/prompts``; the method's own if not given.
    """

    method: Literal["sheet", "criterion"]
    prompt: str | None = None


class ScoringRule(YamlModel):
    """How verdicts become a score: weights hit over the sum of positive weights.

    Attributes:
        metric: Name of the score.
        clip: Whether it is limited to 0..1.
        pass_at: The score from which a task is passed; none if not given.
    """

    metric: str
    clip: bool = False
    pass_at: float | None = Field(default=None, gt=0)


class BenchmarkFile(YamlModel):
    """A whole ``benchmark.yaml``.

    Attributes:
        title: Name to print.
        sources: Where rows come from.
        record: How a row becomes a task.
        subsets: Slugs of the subsets, in the order in which their tasks run; each is a marker.
        tracks: Further markers, for what subsets have in common.
        domains: Further markers, likewise.
        judging: How an answer is judged.
        scoring: How verdicts become a score.
        values: CSV file beside it with the economic value of tasks.
    """

    title: str
    sources: Sources = Sources()
    record: Record
    subsets: list[Marker] = Field(min_length=1)
    tracks: list[Marker] = Field(default=[])
    domains: list[Marker] = Field(default=[])
    judging: JudgingRule
    scoring: ScoringRule
    values: RelativePath | None = None

    @model_validator(mode="after")
    def _names_are_declared(self) -> BenchmarkFile:
        record = self.record
        if not placeholders(record.subset) and record.subset not in self.subsets:
            raise ValueError(f"record.subset is {record.subset!r}, which is not listed under subsets")
        declared = {*self.subsets, *self.tracks, *self.domains}
        spelled = [name for group in record.markers if group != "subset" for name in record.groups[group].spellings]
        unknown = [name for name in spelled if name not in declared]
        if unknown:
            raise ValueError(f"{', '.join(unknown)} would be markers but are not listed under tracks or domains")
        return self
