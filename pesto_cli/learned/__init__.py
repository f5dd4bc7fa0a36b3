"""Learned placers: policies that TensorFlow trains by rewards from the simulator.

A policy decides about groups of ops (`groups.py`). It knows them by their features (`features.py`),
and learns from the step times of what it has sampled (`environment.py`): placements
(`placements.py`), or plans that also split ops (`plans.py`). TensorFlow is imported only when a
policy is used.
"""
