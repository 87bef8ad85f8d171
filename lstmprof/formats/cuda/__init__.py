"""Nsight Systems and nvprof: sqlite → events, names → nsys, nvprof; nvprof's CSV beside them."""
