"""An agent on another machine: it has an address and a token, but no database."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import sayso
from sayso.client import RemoteGate
from sayso.inbox import create_token


def agent(url: str, token: str) -> None:
    """Run anywhere; requests, decisions and results are stored on the server."""
    with RemoteGate(url, token=token) as remote:

        @remote.guard(risk="medium")
        def refund(order: str, euros: int) -> str:
            """Refund a customer."""
            print(f"  the bank moves {euros} euros for order {order}")
            return f"receipt for {euros} euros"

        for _ in range(2):  # the second time, all results come from the server
            with remote.run("complaint-17"):
                why = remote.ask_sync("What went wrong?")
                print(f"the agent continues with: {why}, {refund('A-17', 500)}")


async def review(inbox: sayso.Inbox) -> None:
    """Decide on the server."""
    async for event in inbox.watch(after=""):
        if event.type == "asked":
            request = await inbox.get(event.call)
            print(f"asked: {request.question.text if request.question else dict(request.args)}")
            edit, answer = request.edit({"euros": 50}), request.respond("too late")
            await inbox.decide(request.id, answer if request.question else edit, by="ana")
            if request.tool == "refund":
                return


def main(store: str) -> None:
    command = [sys.executable, "-m", "sayso", "serve", "--port", "0", "--store", store]
    with subprocess.Popen(command, stdout=-1, stderr=-3, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[3]  # Sayso is at http://127.0.0.1:…
        inbox = sayso.Inbox(store)
        token, _ = create_token(inbox.store, "billing-bot", by="ana", role="agent")
        with ThreadPoolExecutor() as pool:
            pool.submit(asyncio.run, review(inbox))
            agent(url, token)
        inbox.close()
        server.terminate()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"sqlite:///{folder}/sayso.db")
