"""What a person looks at: tables and traces."""
