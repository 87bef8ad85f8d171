"""Small faults planted in the code, each held against its area's own tests: ``make mutants``.

tree (a copy of the checkout) → drawing (the mutants) → area (a process that has collected the
area's tests, and forks) → probing, recording (which tests come to which mutant) → running (these
tests, with the mutant's code in the place of the function's: ``planting``) → the table.
"""
