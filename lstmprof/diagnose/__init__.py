"""Why a step takes as long as it does, and what removing a cause would buy.

::

    breakdown → step_profile → comparable → findings → remedies → sentences → diagnosis
                contributors                causes     host       because     roofline
                                            counts     device                 replay
                                            profiler_overhead
                                            slower_calls
                                            reasons, settings
                                            savings

``diagnosis.diagnose_all`` goes the whole way.
"""
