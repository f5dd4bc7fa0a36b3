"""Explanations: why an op runs where and when it does, and what the step time consists of."""
