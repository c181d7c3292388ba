"""Benchmarks beside other libraries, in one run on one machine: `make bench`."""
