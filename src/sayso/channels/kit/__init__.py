"""What all channels share: whom to tell, delivery, linked accounts, and decisions.

Read ``cards`` (what a message shows, and whether it has buttons), ``planner`` (which messages there
are to be, as rows of the store), ``courier`` (one attempt to send or update one), ``sender`` (the
order of all attempts, and their pauses), ``desk`` (what comes back from a platform), ``lease`` (one
process at a time), and ``service``, which runs them. A channel to people is a class that satisfies
``Channel``. Webhooks have a planner and a courier of another kind, and share the rest.

A message goes through these states: ``due`` → ``sent`` → ``updating`` → ``closed``, and ``dead`` if
it cannot be sent. Each step is a compare-and-set of one row. A process that dies between sending
and recording repeats at most that message.
"""
