"""Mutation testing: do the tests notice small faults in the code? ``make mutants``.

A mutant is the code with one small fault. The steps: copy the checkout → draw mutants (``drawing``)
→ collect the tests of an area of the code (``area``) → record which tests execute which mutant's
statement (``probing``, ``recording``) → run these tests in a fork that has the mutant's code
(``planting``, ``running``) → print a table.
"""
