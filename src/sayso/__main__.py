"""Run the command line with ``python -m sayso``."""

from sayso.cli.entry import main

if __name__ == "__main__":
    main()
