"""Use asyncio: two calls wait at once while a reviewer decides; nothing blocks."""

from __future__ import annotations

import asyncio
import tempfile

import sayso


async def review(inbox: sayso.Inbox) -> None:
    """Follow new requests from the first event on, and approve small cities only."""
    async for event in inbox.watch(after=""):
        if event.type != "asked":
            continue
        request = await inbox.get(event.call)
        if request.args["city"] == "Oslo":
            decision: sayso.Decision = request.approve()
        else:
            decision = request.reject("too big for this example")
        await inbox.decide(request.id, decision, by="ana")


async def main(store: str) -> None:
    gate = sayso.Gate(store, wait=10)  # wait at most ten seconds, then raise Paused
    inbox = sayso.Inbox(store)

    @gate.guard
    async def forecast(city: str) -> str:
        """Ask the weather service."""
        await asyncio.sleep(0.01)
        return f"rain in {city}"

    reader = asyncio.create_task(review(inbox))
    async with gate.run("travel-plan"):
        outcomes = await asyncio.gather(forecast("Oslo"), forecast("Tokyo"), return_exceptions=True)
    for outcome in outcomes:
        print(f"{type(outcome).__name__}: {outcome}")

    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    gate.close()
    inbox.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"sqlite:///{folder}/sayso.db"))
