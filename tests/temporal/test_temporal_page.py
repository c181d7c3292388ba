"""The code of docs/temporal.md, run as the page describes, with the real server."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from desk_world import Desk
from dev_server import DevServer

from sayso.types import Reviewer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "temporal.md"


def test_documented_code_runs(desk: Desk, server: DevServer) -> None:
    page = PAGE.read_text("utf-8")
    workflow, worker = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    (first_line,) = re.findall(r"second file that starts with `(.+?)`", page)
    (desk.folder / "refunds.py").write_text(workflow)
    run = f'import asyncio\nasyncio.run(work("{server.address}"))\n'
    (desk.folder / "worker.py").write_text(f"{first_line}\n{worker}{run}")
    desk.process(sys.executable, "worker.py")

    server.begin("Refunds", "refund-A-17", "refunds", "A-17", 20)
    (question,) = desk.waiting()
    desk.inbox.decide_sync(question.id, question.respond("broken"), by="ana")
    (yes,) = desk.waiting()
    assert yes.args["details"] == {"order": "A-17", "reason": "broken"}
    desk.inbox.decide_sync(yes.id, yes.approve(), by="ana")
    (refund,) = desk.waiting()
    assert (refund.risk.level, refund.reviewers) == ("high", ("group:finance",))
    ben = Reviewer("ben", groups=("finance",))
    desk.inbox.decide_sync(refund.id, refund.edit({"euros": 15}), by=ben)
    assert server.result("refund-A-17") == "15 euros for A-17"
