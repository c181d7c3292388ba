"""Run every row, print the table, write ``results.json``; non-zero where a goal is missed.

python -m benchmarks            all rows
python -m benchmarks once news  some of them
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import sys
from collections.abc import Callable

from benchmarks.rounds import HERE, Row, alternating, measured, npm_of, python_of

OURS = sys.executable


def once() -> Row:
    """Ask → approve → run once, no agent, beside holdpoint at equal durability."""
    peer = python_of("holdpoint", "holdpoint==0.2.0")
    ours, theirs = alternating((OURS, "work_gate.py", "200"), (peer, "peer_holdpoint.py", "200"))
    ratio = ours["wall_ms"] / theirs["wall_ms"]
    return Row(
        "ask, approve, run once (SQLite, fsync on)",
        "at most 1.2 times holdpoint's wall time",
        ratio <= 1.2,
        {"assent": ours, "holdpoint": theirs, "wall_ratio": ratio},
    )


def agent() -> Row:
    """Pause → decide → resume with the agent, beside LangGraph."""
    peer = python_of(
        "langgraph", "langchain>=1.4,<2", "langgraph>=1.2,<2", "langgraph-checkpoint-sqlite>=3,<4"
    )
    ours, theirs = alternating((OURS, "work_agent.py", "100"), (peer, "peer_langgraph.py", "100"))
    wall, cpu = ours["wall_ms"] / theirs["wall_ms"], ours["cpu_ms"] / theirs["cpu_ms"]
    return Row(
        "pause, decide, resume with an agent (SQLite, fsync on)",
        "at most a sixth of LangGraph's wall and CPU time",
        wall <= 1 / 6 and cpu <= 1 / 6,
        {"assent": ours, "langgraph": theirs, "wall_ratio": wall, "cpu_ratio": cpu},
    )


def growth() -> Row:
    """The same work on a store with 100,000 open requests and on an almost empty one."""
    figures = measured(OURS, "work_growth.py", "100000")
    steps = ("pause_ms", "decide_ms", "resume_ms", "list_ms", "rows", "bytes")
    ratios = {step: figures[f"large_{step}"] / figures[f"small_{step}"] for step in steps}
    return Row(
        "pause, decide, resume, list with 100,000 open requests",
        "each within 1.3 times of the same on an empty store; the page within 5 ms",
        max(ratios.values()) <= 1.3 and figures["large_list_ms"] <= 5,
        {"figures": figures, "ratios": ratios},
    )


def history() -> Row:
    """The same work on a thread with 1,000 turns and on a new one."""
    figures = measured(OURS, "work_history.py", "1000")
    ratios = {
        step: figures[f"long_{step}"] / figures[f"short_{step}"]
        for step in ("rows", "bytes", "store_ms")
    }
    return Row(
        "pause, decide, resume on a thread with 1,000 turns",
        "within 1.3 times of the same on a new thread, in time, rows and bytes written",
        max(ratios.values()) <= 1.3,
        {"figures": figures, "ratios": ratios},
    )


def chat() -> Row:
    """An approval in a chat, POST to end, beside servers that store nothing."""
    folder = npm_of("ai_sdk", "serve_ai_sdk.mjs", "ai@7.0.169", "zod@4")
    peer = python_of("pydantic_ai", "pydantic-ai-slim>=2.66,<3", "fastapi>=0.162", "uvicorn>=0.54")
    ours = (OURS, "chat_driver.py", "300", OURS, str(HERE / "serve_assent.py"))
    node = (OURS, "chat_driver.py", "300", "node", str(folder / "serve_ai_sdk.mjs"))
    theirs = (OURS, "chat_driver.py", "300", peer, str(HERE / "serve_pydantic_ai.py"))
    assent, ai_sdk = alternating(ours, node)
    again, pydantic_ai = alternating(ours, theirs)
    to_node = assent["cpu_ms"] / ai_sdk["cpu_ms"]
    to_python = again["cpu_ms"] / pydantic_ai["cpu_ms"]
    return Row(
        "approval POST to finish, over HTTP (ours durable, fsync on; the peers store nothing)",
        "at most twice the AI SDK server's CPU, and a third of pydantic-ai's adapter's",
        to_node <= 2 and to_python <= 1 / 3,
        {
            "assent": assent,
            "ai_sdk": ai_sdk,
            "pydantic_ai": pydantic_ai,
            "cpu_ratio_ai_sdk": to_node,
            "cpu_ratio_pydantic_ai": to_python,
        },
    )


def feed() -> Row:
    """One event to 1,000 readers of the live feed, beside a bare fan-out."""
    ours = (OURS, "feed_driver.py", "1000", "assent", OURS, str(HERE / "serve_assent.py"))
    bare = (OURS, "feed_driver.py", "1000", "bare", OURS, str(HERE / "serve_sse.py"))
    assent, uvicorn = alternating(ours, bare)
    ratio = assent["last_ms"] / uvicorn["last_ms"]
    return Row(
        "an event to the last of 1,000 readers (ours asked, stored and authorised)",
        "at most three times bare uvicorn",
        ratio <= 3,
        {"assent": assent, "uvicorn": uvicorn, "ratio": ratio},
    )


def news() -> Row:
    """A decision in one process, the approved call begun in another."""
    figures = measured(OURS, "work_news.py", "200")
    return Row(
        "decision to start in another process (SQLite)",
        "median within 10 ms, 99th percentile within 50 ms",
        figures["p50_ms"] <= 10 and figures["p99_ms"] <= 50,
        figures,
    )


def imports() -> Row:
    """``import assent`` beside LangChain's agent import."""
    peer = python_of(
        "langgraph", "langchain>=1.4,<2", "langgraph>=1.2,<2", "langgraph-checkpoint-sqlite>=3,<4"
    )
    ours, theirs = alternating(
        (OURS, "work_import.py", "assent"), (peer, "work_import.py", "langchain.agents")
    )
    ratio = ours["wall_ms"] / theirs["wall_ms"]
    return Row(
        "import assent",
        "at most a tenth of `import langchain.agents`",
        ratio <= 0.1,
        {"assent": ours, "langchain": theirs, "wall_ratio": ratio},
    )


ROWS: dict[str, Callable[[], Row]] = {
    row.__name__: row for row in (once, agent, growth, history, news, chat, feed, imports)
}


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(ROWS)
    if unknown:
        print(f"no row {', '.join(sorted(unknown))}; the rows are {', '.join(ROWS)}")
        return 2
    rows = []
    for name in wanted or ROWS:
        row = ROWS[name]()
        rows.append(row)
        print(f"{'met   ' if row.met else 'MISSED'}  {row.name}: {row.goal}")
        print(f"        {json.dumps(row.figures)}", flush=True)
    machine = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "load": os.getloadavg()[0],
    }
    results = {"machine": machine, "rows": [vars(row) for row in rows]}
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
