"""Serve an app on a real socket, from an OS thread of the test process."""

from __future__ import annotations

import asyncio
import socket
import threading

import uvicorn
from waiting import PATIENCE, until


class LiveServer:
    """A uvicorn server. It listens from the start, so clients may connect at once."""

    def __init__(self, config: uvicorn.Config, at: socket.socket | None = None) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0)) if at is None else at
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server = _PromptServer(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), daemon=True
        )

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Return once the server has started."""
        self._thread.start()
        until(lambda: self._server.started or not self.is_alive)
        assert self._server.started

    def stop(self) -> None:
        """Shut down gracefully, and close the socket."""
        if self._thread.ident is not None:
            self._server.should_exit = True
            self._thread.join(PATIENCE)
            assert not self.is_alive
        self._socket.close()


class _PromptServer(uvicorn.Server):
    """Stops as uvicorn does, but looks every few milliseconds: hundreds of tests wait for that."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            await asyncio.sleep(_LOOK)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        open_ones = self.server_state.connections
        for connection in list(open_ones):
            connection.shutdown()
        tasks = self.server_state.tasks
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while open_ones or tasks:
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            for task in tasks:
                task.cancel()
        await self.lifespan.shutdown()


_LOOK = 0.005
