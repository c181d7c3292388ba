"""Approval for anything that speaks MCP: ``sayso proxy`` and ``sayso mcp``.

The proxy runs between an MCP client and its servers. It holds the servers' credentials; if it runs
as another user than the client, a call reaches a server only through it. Read the modules in this
order:

- ``config``: the ``mcpServers`` JSON, and what the proxy adds to it
- ``upstreams``: one connection per server, which reconnects, and the tools of all of them
- ``state``: what outlives a process or is shared: open calls, live connections, declarations
- ``calls``: each call in a task of its own, found again by its natural key or its ticket
- ``front``: what both servers share: holding clients, progress, elicitation, stdio and HTTP
- ``proxy``: the endpoint that clients see
- ``advisory``: the small server with ``ask_human`` and ``request_approval``
"""

from importlib.util import find_spec

if find_spec("mcp_types") is None:
    raise ImportError('the MCP SDK is not installed: pip install "sayso[mcp]"', name="mcp")
