"""Training steps that are really run: fed, timed and traced, on devices that exist.

Functions that take a `Connection` first are for `Cluster.call`: they run in the client process.
"""
