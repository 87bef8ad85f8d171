"""Code that all stages share: errors, files, terminal, processes, texts of numbers and names.

Import nothing here, because Python runs this file when a capture worker imports ``errors``.
"""
