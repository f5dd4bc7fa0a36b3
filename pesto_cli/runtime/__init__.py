"""Run training steps on real devices: feed, time, trace and verify them.

Functions whose first argument is a `Connection` run in the client process, through `Cluster.call`.
"""
