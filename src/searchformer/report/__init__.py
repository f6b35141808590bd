"""From result files to figures, tables and one HTML page. Never imports torch."""
