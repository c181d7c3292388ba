"""Bridges to frameworks and wires: one for each, none knows another, none is imported by itself."""
