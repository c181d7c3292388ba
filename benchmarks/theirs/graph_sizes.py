"""Measure what a pause of LangGraph adds to the file, on a new thread and on one with a history.

python graph_sizes.py THREADS MESSAGES
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

from graph import agent_on, config, saver_at
from langchain_core.messages import AIMessage, HumanMessage


def size(saver: Any, path: str) -> int:
    saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return os.path.getsize(path)


def added(threads: int, messages: int) -> float:
    """The growth of the file by the pauses alone, each."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/graph.db"
        with saver_at(path) as saver:
            agent = agent_on(saver)
            said = {"messages": [{"role": "user", "content": "send it " + "z" * 180}]}
            agent.invoke(said, config("warm"))
            for i in range(threads if messages else 0):
                talk = [HumanMessage("question " + "x" * 180), AIMessage("answer " + "y" * 180)]
                talk = [part.model_copy() for _ in range(messages // 2) for part in talk]
                agent.update_state(config(f"t{i}"), {"messages": talk})
            before = size(saver, path)
            for i in range(threads):
                assert agent.invoke(said, config(f"t{i}"))["__interrupt__"]
            return (size(saver, path) - before) / threads


def main(threads: int, messages: int) -> None:
    print(json.dumps({"new_bytes": added(threads, 0), "long_bytes": added(threads, messages)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
