"""SQL with a policy: reads are free; other statements can be approved or rejected, not edited.

Scripted by default. To use a real model: python sql_agent.py --model openai:gpt-4o
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
from typing import Any

import sayso
from sayso.testing import ScriptedModel, call, say

database = sqlite3.connect(":memory:", check_same_thread=False)
database.execute("CREATE TABLE records (id INTEGER, age INTEGER)")
database.executemany("INSERT INTO records VALUES (?, ?)", [(n, n * 10) for n in range(10)])

#: The mapping of LangChain's middleware; a policy can express more.
POLICY = sayso.Policy.from_interrupt_on(
    {"execute_sql": {"allowed_decisions": ["approve", "reject"]}, "read_data": False}
)


@sayso.tool
def read_data(query: str) -> list[list[Any]]:
    """Read from the database."""
    return [list(row) for row in database.execute(query).fetchall()]


@sayso.tool
def execute_sql(query: str) -> str:
    """Execute a statement on the database."""
    return f"{database.execute(query).rowcount} rows"


SCRIPT: list[Any] = [
    call("read_data", {"query": "SELECT count(*) FROM records WHERE age > 30"}),
    call("execute_sql", {"query": "DELETE FROM records WHERE age > 30"}),
    say("The old records are deleted."),
]


async def main(model: Any) -> None:
    agent = sayso.Agent("sql", model=model, tools=[read_data, execute_sql], policy=POLICY)
    result = await agent.run("Delete old records from the database", thread="sql-1")
    while result.status == "paused":
        for request in result.interruptions:
            print(f"{request.args['query']}: {' or '.join(request.allowed)}?")
        decisions = [request.approve() for request in result.interruptions]
        result = await agent.resume("sql-1", decisions=decisions, by="ana")
    print(f"{result.output or result.error} Left: {len(read_data('SELECT 1 FROM records'))}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=ScriptedModel(SCRIPT))
    asyncio.run(main(parser.parse_args().model))
    database.close()
