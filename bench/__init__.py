"""Benchmarks behind the figures of the README; `make bench` runs them."""
