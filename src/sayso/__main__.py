"""``python -m sayso`` is the command line as well."""

from sayso.cli.entry import main

if __name__ == "__main__":
    main()
