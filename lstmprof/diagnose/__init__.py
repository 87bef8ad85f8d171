"""Explain why a step takes as long as it does, and predict what removing a cause would save.

::

    breakdown ─▶ seen ─▶ step_profile ─▶ roofline ─▶ findings ─┐
        ┌──────────────────────────────────────────────────────┘
        ├▶ certainty ─┬▶ verdict ─▶ diagnosis
        └▶ remedies ──┘
    uses of diagnoses: gate (pass or fail)  history (run by run)
                       recommend (the fastest here, and the framework's layer op)

    ``diagnosis.diagnose_all`` runs all stages in the picture. Each file imports only earlier
    stages.
"""
