"""The command line: thin callers of the inbox, one function per command."""
