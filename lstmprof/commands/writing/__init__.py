"""Commands that write runs in another form: pages, tables, files of other tools, answers to SQL."""
