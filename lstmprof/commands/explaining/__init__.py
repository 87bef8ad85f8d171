"""Commands that explain runs on the terminal: where their time goes, and why they are slow."""
