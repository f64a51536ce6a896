"""Parse a YAML file into plain data that remembers on which line each value stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.variables import Secret, problems, resolve
from pytest_rubrics.workspace import missing_file

KeyPath = tuple[str | int, ...]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_NULL, _TEXT = f"{_TAG}null", f"{_TAG}str"
_TYPES = {
    _NULL: "nothing",
    _TEXT: "text",
    f"{_TAG}bool": "true or false",
    f"{_TAG}float": "a number",
    f"{_TAG}int": "a whole number",
    f"{_TAG}timestamp": "a date",
}
_TAGS = {
    yaml.MappingNode: {f"{_TAG}map"},
    yaml.SequenceNode: {f"{_TAG}seq"},
    yaml.ScalarNode: set(_TYPES),
}
# YAML 1.1 wants a dot in such a number, so 1e-3 would be sent to a provider as text.
_EXPONENT_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")
_SYNTAX_FIXES = {
    "mapping values are not allowed": "Put text that holds ': ' in quotes, and indent the keys of one mapping alike.",
    r"found character '\t'": "Indent with spaces, not with tabs.",
    "tab character": "Indent with spaces, not with tabs.",
    "found character that cannot start any token": "Put the value in quotes, and indent with spaces.",
    "found undefined alias": "Put text that begins with * in quotes.",
    "expected a single document": "Keep one document in a file: remove the line '---'.",
}


@dataclass(slots=True)
class Document:
    """A parsed file.

    Attributes:
        shown_as: Its name in messages.
        data: Plain data; all keys are text; a `Secret` stands where a credential does.
        lines: Line of each value, counted from 1.
        texts: Each scalar as it is written.
        faults: What is wrong with it.
    """

    shown_as: str
    data: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    texts: dict[KeyPath, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def fault(self, path: KeyPath, message: str, fix: str | None = None, line: int | None = None) -> Fault:
        """A fault of one value."""
        known = next(self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines)
        return Fault(self.shown_as, message, line=line or known, key=dotted(path) or None, fix=fix)


def dotted(path: KeyPath) -> str:
    """A path as users write it.

    >>> dotted(("panel", 0, "model"))
    'panel[0].model'
    """
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def read_document(path: Path, shown_as: str) -> Document:
    """Parse a file.

    Raises:
        FaultsError: It cannot be read, is no YAML, or is empty. Lesser faults are left in the document.
    """
    text = _read_text(path, shown_as)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.YAMLError as error:
        raise FaultsError([_syntax_fault(error, text, shown_as)]) from error
    if node is None or node.tag == _NULL:
        raise FaultsError([Fault(shown_as, "the file is empty, expected keys and values.", line=1)])
    document = Document(shown_as)
    document.data = _Builder(loader, document).build(node, ())
    return document


def _read_text(path: Path, shown_as: str) -> str:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise FaultsError([missing_file(path, shown_as)]) from None
    except OSError as error:
        if path.is_dir():
            raise FaultsError([Fault(shown_as, "this is a folder, expected a YAML file.")]) from None
        raise FaultsError([Fault(shown_as, f"the file cannot be read: {error.strerror}.")]) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8 text."
        raise FaultsError([Fault(shown_as, message, line=line, fix="Save the file as UTF-8.")]) from None


def _syntax_fault(error: yaml.YAMLError, text: str, shown_as: str) -> Fault:
    if not isinstance(error, yaml.MarkedYAMLError):  # a control character: the only other error of the parser
        bad = yaml.reader.Reader.NON_PRINTABLE.search(text)
        line = text.count("\n", 0, bad.start()) + 1 if bad else None
        return Fault(shown_as, f"character {bad.group() if bad else ''!a} is not allowed in YAML.", line=line)
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    start = f" ({error.context}, from line {error.context_mark.line + 1})" if error.context_mark else ""
    problem = error.problem or error.context or "it cannot be parsed"
    fixes = [fix for sign, fix in _SYNTAX_FIXES.items() if sign in f"{problem} {error.context}"]
    lines = text.splitlines()
    if "${" in "\n".join(lines[max(0, line - 2) : line]):
        fixes = ["Put ${...} in quotes where it stands inside { } or [ ]."]
    return Fault(shown_as, f"not valid YAML: {problem}{start}.", line=line, fix=fixes[0] if fixes else None)


class _Builder:
    """Turns YAML nodes into plain data, noting lines and faults in the document."""

    def __init__(self, loader: Any, document: Document) -> None:
        self._loader = loader
        self._document = document
        self._open: set[int] = set()

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if node.tag not in _TAGS[type(node)]:
            return self._fault(path, f"the YAML tag {_short(node.tag)} is not supported.")
        if id(node) in self._open:
            return self._fault(path, "the value contains itself.")
        self._open.add(id(node))
        value = self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._list(node, path)
        self._open.remove(id(node))
        return value

    def _list(self, node: Any, path: KeyPath) -> list[Any]:
        return [self.build(entry, (*path, index)) for index, entry in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(path, "a key is a list or a mapping, expected text.", line=line)
                continue
            # Keys are text as written: YAML 1.1 would read no, on and 1 as something else.
            key = str(key_node.value)
            here = (*path, key)
            if key in values:
                first = self._document.lines[here]
                self._fault(here, f"the key stands here again, first on line {first}.", "Remove one of them.", line)
            elif key_node.tag == f"{_TAG}merge":
                self._fault(here, "merging with << is not supported.", "Write the keys out.", line)
            else:
                self._document.lines[here] = line
                values[key] = self.build(value_node, here)
        return values

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        text, tag, is_plain = node.value, node.tag, not node.style
        self._document.texts[path] = text
        if _holds_credential(path) and tag != _NULL:
            return self._secret(text, path)
        if is_plain and tag in {f"{_TAG}value", f"{_TAG}merge"}:  # a lone = or <<
            return text
        if tag == _TEXT and "${" in text:
            found = problems(text)
            for message, fix in found:
                self._fault(path, message, fix)
            text = text if found else resolve(text)
            # Without quotes it is read as if the variable's text stood there, so that numbers stay numbers.
            tag = self._loader.resolve(yaml.ScalarNode, text, (True, False)) if is_plain else tag
        if tag == _TEXT:
            return float(text) if is_plain and _EXPONENT_NUMBER.fullmatch(text) else text
        return self._typed(tag, text, path)

    def _typed(self, tag: str, text: str, path: KeyPath) -> Any:
        if tag not in _TAGS[yaml.ScalarNode]:
            return self._fault(path, f"the YAML tag {_short(tag)} is not supported.")
        try:
            return self._loader.construct_object(yaml.ScalarNode(tag, text))
        except (ValueError, LookupError, AttributeError):  # what PyYAML raises for a 13th month or a tagged word
            return self._fault(path, f"{text!r} cannot be read as {_TYPES[tag]}.", "Put it in quotes if it is text.")

    def _secret(self, text: str, path: KeyPath) -> Secret:
        for message, fix in problems(text, may_be_unset=True):
            self._fault(path, message, fix)
        place = f"{self._document.shown_as}:{self._document.lines[path]}, {dotted(path)}"
        return Secret(text, name=str(path[-1]), place=place)

    def _fault(self, path: KeyPath, message: str, fix: str | None = None, line: int | None = None) -> None:
        self._document.faults.append(self._document.fault(path, message, fix, line))


def _holds_credential(path: KeyPath) -> bool:
    if "params" in path or "extra_body" in path:
        return False
    return path[-1:] == ("api_key",) or path[-2:-1] in {("headers",), ("env",)}


def _short(tag: str) -> str:
    return f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag
