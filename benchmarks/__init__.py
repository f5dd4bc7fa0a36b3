"""Benchmarks of speed, memory and quality: `make bench`. They are not run by tests."""
