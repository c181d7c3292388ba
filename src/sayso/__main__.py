"""Run the command line with ``python -m sayso``.

The hooks of coding agents start this file by its path, isolated: ``python -I -S …/__main__.py hook
run``. Then no path leads to this package yet. It goes last, so that nothing next to it can replace
the standard library.
"""

import sys

if not __package__:
    sys.path.append(__file__.rpartition("/sayso/")[0])

from sayso.cli.entry import main

if __name__ == "__main__":
    main()
