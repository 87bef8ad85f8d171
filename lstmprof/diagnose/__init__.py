"""Explain why a step takes as long as it does, and predict what removing a cause would save.

::

    breakdown ─▶ seen ─▶ step_profile ─▶ causes ─▶ roofline ─▶ findings ─┐
        ┌────────────────────────────────────────────────────────────────┘
        ├▶ certainty ─▶ sentences ─┐
        └▶ remedies ───────────────┴▶ diagnosis
    uses of diagnoses: verdicts (several)  gate (pass or fail)  history (run by run)
                       recommend (the fastest here)  builtin (against the layer op)

``diagnosis.diagnose_all`` runs all of these stages. Each file imports only stages before its own.
"""
