"""Benchmarks behind the figures of `docs/benchmarks.md`; `make bench` runs most of them."""
