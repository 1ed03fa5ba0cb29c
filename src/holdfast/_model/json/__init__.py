"""Values, errors and texts as JSON that PostgreSQL stores."""
