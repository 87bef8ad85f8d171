"""Commands that write runs as pages, tables, files for other tools or answers to SQL."""
