"""SQLite databases of Nsight Systems and nvprof."""
