"""Splitting ops into parts: layouts of tensors, rules, plans, and the rewriting of graphs."""
