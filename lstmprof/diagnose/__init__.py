"""Why a step takes as long as it does, and what removing a cause would buy.

::

    breakdown ─▶ seen ─▶ step_profile ─▶ causes ─▶ roofline ─▶ findings ─┐
        ┌────────────────────────────────────────────────────────────────┘
        ├▶ certainty ─▶ sentences ─┐
        └▶ remedies ───────────────┴▶ diagnosis
    of diagnoses: verdicts (several)  gate (pass or fail)  history (run by run)
                  recommend (the fastest that runs here)  builtin (against the layer op)

``diagnosis.diagnose_all`` goes the whole way; a room or file imports only what it is made of.
"""
