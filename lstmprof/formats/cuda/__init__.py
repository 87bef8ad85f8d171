"""Nsight Systems and nvprof: database_tables → events, names → nsys_events → nsys; nvprof."""
