"""The cost source `run`: op times measured in real steps."""
