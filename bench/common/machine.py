"""What a result says of the machine: its kind, never its name or its folders."""

import os
import platform
import re


def describe():
    """CPU model, cores, memory, kernel and date-free facts that figures depend on."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "virtual": "hypervisor" in _cpuinfo(),
        "tcp_congestion_control": _first_line("/proc/sys/net/ipv4/tcp_congestion_control"),
    }


def label():
    """A short name for the kind of machine, for file names."""
    words = re.sub(r"\((R|TM|tm|C)\)|\b(CPU|Processor)\b", " ", cpu_model()).replace("@", " ")
    slug = re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-")
    return f"{slug or 'unknown-cpu'}-{os.cpu_count()}core"


def cpu_model():
    """The model name of the CPU."""
    found = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return " ".join(found.group(1).split()) if found else platform.processor() or "unknown CPU"


def _first_line(path):
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return "unknown"


def _cpuinfo():
    try:
        with open("/proc/cpuinfo") as file:
            return file.read()
    except OSError:
        return ""


def load_average():
    """Load of the last minute: above a little, others disturb the measurement."""
    return os.getloadavg()[0]
