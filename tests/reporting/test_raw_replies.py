from __future__ import annotations

import base64
import re
import shutil
import zlib
from pathlib import Path

from tests.support.command import rubrics
from tests.support.faults import content
from tests.support.provider import Fault, Provider
from tests.support.workspaces import Workspace, keys

REPLY = "I would rather not say: [broken"


def texts(report: Path) -> str:
    """What stands in the compressed blocks of a page."""
    blocks = re.findall(r'id="block-\d+">([^<]+)<', report.read_text(encoding="utf-8"))
    return "".join(zlib.decompress(base64.b64decode(block)).decode("utf-8") for block in blocks)


def test_a_task_page_has_the_judges_replies_as_long_as_they_are_stored(tmp_path: Path) -> None:
    with Provider() as server:
        workspace = Workspace(tmp_path, server, keys(1))
        server.faults.add(Fault(content(REPLY), kind="judge", times=1))
        report = workspace.pytest().folder / "report.html"
    assert REPLY in texts(report)
    shutil.rmtree(workspace.cache)
    assert rubrics(tmp_path, "report", "run").returncode == 0
    assert REPLY not in texts(report)
    assert '"verdicts"' in texts(report)
