"""The door for agents on other machines: the same verbs as a gate's, over HTTP.

Such an agent has a token and no database, so that decisions and record are out of its reach. That
it asks before it acts is still up to its own code.
"""

from assent.client.client import Claim, Client
from assent.client.gate import RemoteGate
from assent.client.wire import Unreachable

__all__ = ["Claim", "Client", "RemoteGate", "Unreachable"]
