"""Why a step takes as long as it does, and what removing a cause would buy.

::

    breakdown → step_profile → comparable → findings → remedies → sentences → diagnosis
                contributors                causes     host         roofline, replay
                                            counts     device
                                            profiler_overhead

``diagnosis.diagnose_all`` goes the whole way.
"""
