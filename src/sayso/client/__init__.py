"""A gate for agents on other machines, over HTTP.

The agent has a token and no database, so it cannot change decisions or the audit log. Asking before
it acts is still up to its own code. Read ``gate`` first, then ``client``, which is the HTTP side.
"""

from sayso.client.client import Claim, Client, Unreachable
from sayso.client.gate import RemoteGate

__all__ = ["Claim", "Client", "RemoteGate", "Unreachable"]
