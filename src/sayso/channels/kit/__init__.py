"""What all channels to people share: whom to tell, delivery, linked accounts, and decisions.

Read ``cards`` (what a message shows, and whether it has buttons), ``planner`` (which messages there
are to be, as rows of the store), ``sender`` (sends and updates them), ``desk`` (what comes back
from a platform), and ``service``, which runs them. A channel is a class that satisfies ``Channel``.

A message goes through these states: ``due`` → ``sent`` → ``updating`` → ``closed``, and ``dead`` if
it cannot be sent. Each step is a compare-and-set of one row, so any number of processes may run it.
A process that dies between sending and recording repeats at most that message.
"""
