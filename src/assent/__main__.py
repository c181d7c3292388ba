"""``python -m assent`` is the command line as well."""

from assent.cli.entry import main

if __name__ == "__main__":
    main()
