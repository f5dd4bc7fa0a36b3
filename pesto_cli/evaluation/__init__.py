"""Evaluation of schedules: simulator, memory, critical path, and an independent check."""
