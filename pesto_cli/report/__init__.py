"""Output for people: tables, charts, pages, traces and progress."""
