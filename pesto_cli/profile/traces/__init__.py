"""The cost source `trace`: op times from recorded traces."""
