"""Pictures of problems and schedules, as altair charts for pages and notebooks."""
