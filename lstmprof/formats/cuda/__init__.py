"""SQLite databases of Nsight Systems and nvprof: sqlite → events, names → nsys, nvprof."""
