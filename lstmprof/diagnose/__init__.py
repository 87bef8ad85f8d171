"""Explain why a step is slow, and predict the time of the step without the cause.

::

    breakdown ─▶ seen ─▶ step_profile ─▶ roofline ─▶ findings ─┐
        ┌──────────────────────────────────────────────────────┘
        ├▶ certainty ─┬▶ verdict ─▶ diagnosis ─▶ gate, recommend
        └▶ remedies ──┘

``diagnosis.diagnose_all`` runs the stages up to ``diagnosis``. A stage imports only earlier stages.
"""
