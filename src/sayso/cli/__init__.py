"""The command line: thin callers of the inbox, one function per command.

``entry`` lists the commands and starts one, ``common`` is what they share (exit codes, options,
opening a store). Requests: ``inbox``, ``decide``. Agents: ``chat`` (with ``conversation``),
``serve``, ``hook`` and ``proxy``. The rest: ``admin`` and ``doctor``. ``output`` prints tables and
JSON. ``main`` has all commands in one app, for tests and the documentation.
"""
