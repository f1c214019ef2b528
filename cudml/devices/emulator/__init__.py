"""The CPU device: runs the same `.cu` files on NumPy arrays.

A kernel instance is compiled by the host's C++ compiler (`build.py`, cached on disk) against headers that
provide CUDA in C++ (`simt/`). A small runtime executes a block as a plain loop over its threads until one of
them has to wait (see `simt/entry.h`). `schedule` sets the order in which threads take turns, and what is
checked.
"""

from cudml.devices.emulator.device import EmulatorDevice, current_schedule, get_device
from cudml.devices.emulator.meter import Report, emulator_report
from cudml.devices.emulator.schedule import Schedule, schedule
from cudml.devices.emulator.sharing import take

__all__ = [
    "EmulatorDevice",
    "Report",
    "Schedule",
    "current_schedule",
    "emulator_report",
    "get_device",
    "schedule",
    "take",
]
