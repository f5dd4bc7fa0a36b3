"""Learned placers: policies that TensorFlow trains by rewards from the simulator.

A policy places *super-ops* one after the other: groups of ops that share a device (`groups.py`). It
knows them by their features (`features.py`), and learns from the step times of the placements that
it has sampled (`environment.py`). TensorFlow is imported only when a policy is used.
"""
