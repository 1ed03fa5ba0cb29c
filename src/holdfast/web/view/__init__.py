"""How pages show values: formats, charts, pictures, templates."""
