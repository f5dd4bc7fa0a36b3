"""Op times of recorded traces: `--source trace:PATH`."""
