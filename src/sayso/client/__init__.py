"""The door for agents on other machines: the same verbs as a gate's, over HTTP.

Such an agent has a token and no database, so that decisions and record are out of its reach. That
it asks before it acts is still up to its own code.
"""

from sayso.client.client import Claim, Client
from sayso.client.gate import RemoteGate
from sayso.client.wire import Unreachable

__all__ = ["Claim", "Client", "RemoteGate", "Unreachable"]
