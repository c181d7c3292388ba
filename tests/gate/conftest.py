"""Each test runs on both stores: in memory, and in a file."""

from worlds import case, clock, make_store, timed, url

__all__ = ["case", "clock", "make_store", "timed", "url"]
