"""The command line: thin callers of the inbox, one function per command.

``entry`` lists the commands and starts one, ``common`` is what they share (exit codes, options,
opening a store). Requests: ``inbox``, ``decide``. Agents: ``chat`` (with ``conversation``) and
``serve``. The rest: ``admin`` and ``doctor``. ``output`` draws tables and JSON.
"""
