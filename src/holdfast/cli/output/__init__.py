"""What commands print: text, tables, JSON, logs."""
