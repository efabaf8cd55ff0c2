"""Adds policies to those that come with the package, and prints the tables of `bench/experiments/policies.md`."""
