"""Small faults planted in the code, each held against its area's own tests: ``make mutants``.

tree (a copy of the checkout) → recording (which test runs which line) → drawing (the mutants) →
running (the tests chosen for each) → the table and what survived.
"""
