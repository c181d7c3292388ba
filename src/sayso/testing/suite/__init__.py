"""The parts of ``StoreSuite``, one file per promise; a store author needs only the whole."""
