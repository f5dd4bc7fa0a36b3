"""Speed and memory, measured: `make bench`. Never part of a test."""
