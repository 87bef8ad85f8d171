"""A library with what a worker's meters call of NVML and of the driver, compiled here.

Two devices: 0 on bus 02, whose energy grows by 1 J from one reading to the next, and 1 on bus 82,
by 2 J. The clocks are an H200's at work; that of the memory is answered with an error. Names, order
and types are those of nvml.h and cuda.h.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

LIBRARY = r"""
#include <string.h>
typedef void *Device;
#ifndef FAULT
#define FAULT 0
#endif
#ifndef NEWEST
#define NEWEST 13000
#endif
int cuInit(unsigned flags) { return FAULT; }
int cuDriverGetVersion(int *version) { *version = NEWEST; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGetName(char *name, int len, int device) {
    strncpy(name, device ? "NVIDIA H200" : "NVIDIA H100", len); return 0;
}
int nvmlSystemGetDriverVersion(char *text, unsigned len) {
    strncpy(text, "580.65.06", len); return 0;
}
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal > 1; }
int cuDeviceGetPCIBusId(char *id, int len, int device) {
    strncpy(id, device ? "0000:82:00.0" : "0000:02:00.0", len); return 0;
}
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, Device *d) {
    *d = (Device)(id[5] == '8' ? 2L : 1L); return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(Device d, unsigned long long *mj) {
    static unsigned long long now = 5000; *mj = now += 1000 * (long)d; return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device d, unsigned long long *bits) {
    *bits = 0x1 | 0x4 | 0x40; return 0;
}
#ifdef MIG
int nvmlDeviceGetMigMode(Device d, unsigned *now, unsigned *next) { *now = *next = 1; return 0; }
#endif
#ifdef SINCE_535
int nvmlDeviceGetCurrentClocksEventReasons(Device d, unsigned long long *bits) {
    *bits = 0x1 | 0x80; return 0;
}
#endif
int nvmlDeviceGetUtilizationRates(Device d, unsigned rates[2]) {
    rates[0] = 87; rates[1] = 12; return 0;
}
int nvmlDeviceGetMemoryInfo(Device d, unsigned long long memory[3]) {
    memory[0] = 80000000000; memory[1] = 75000000000; memory[2] = 5000000000;
    return d == (Device)2L;
}
int nvmlDeviceGetTemperature(Device d, int sensor, unsigned *celsius) { *celsius = 61; return 0; }
int nvmlDeviceGetClockInfo(Device d, int clock, unsigned *mhz) {
    *mhz = clock == 1 ? 1980 : 3201; return clock == 2 ? 999 : 0;
}
"""


def built(folder: Path, *defined: str) -> Path:
    """Compile the library into ``folder``, named as NVML is.

    ``SINCE_535`` adds the names that came with driver 535, ``MIG`` divides the GPUs, ``FAULT=100``
    is what cuInit returns, and ``NEWEST=12040`` the CUDA that the driver allows.
    """
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to compile a library with NVML's functions")
    source, library = folder / "nvml.c", folder / "libnvidia-ml.so.1"
    source.write_text(LIBRARY)
    options = ["-shared", "-fPIC", "-Wl,-Bsymbolic", *(f"-D{name}" for name in defined)]
    subprocess.run(["gcc", *options, "-o", library, source], check=True)
    return library
