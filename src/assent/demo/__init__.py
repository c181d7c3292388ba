"""A small job to play with: it needs a person twice, and nothing runs twice.

It uses the public face of Assent only, and nothing else in Assent knows it.
"""

from __future__ import annotations


def main(store: str | None = None) -> int:
    """Play the job on this store, or on one that is made for it and thrown away; the exit code.

    In a terminal you are the person. Without one a scripted person decides, and the job goes on in
    other processes.
    """
    from assent.demo.orders import play

    return play(store)
