"""The parts of ``StoreSuite``, one file per topic. Use ``StoreSuite`` itself."""
