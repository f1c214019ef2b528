"""The C structures of simt/interface.h, member for member."""

import ctypes

_ULL = ctypes.c_ulonglong


class Dim(ctypes.Structure):
    """uint3."""

    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class Traffic(ctypes.Structure):
    """SimtTraffic."""

    _fields_ = [
        ("bytes_read", _ULL),
        ("bytes_written", _ULL),
        ("requests_read", _ULL),
        ("requests_written", _ULL),
        ("sectors_read", _ULL),
        ("sectors_written", _ULL),
        ("atomics", _ULL),
        ("bank_conflicts", _ULL),
    ]


class Region(ctypes.Structure):
    """SimtRegion."""

    _fields_ = [
        ("start", ctypes.c_void_p),
        ("bytes", _ULL),
        ("name", ctypes.c_char_p),
        ("initialised", ctypes.c_void_p),
        ("writable", _ULL),
        ("traffic", Traffic),
    ]


class Check(ctypes.Structure):
    """SimtCheck."""

    _fields_ = [
        ("regions", ctypes.POINTER(Region)),
        ("num_regions", _ULL),
        ("use_meter", _ULL),
        ("shared", Traffic),
        ("block_barriers", _ULL),
        ("warp_collectives", _ULL),
    ]


class Launch(ctypes.Structure):
    """SimtLaunch."""

    _fields_ = [
        ("grid", Dim),
        ("block", Dim),
        ("cluster_blocks", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("cooperative", ctypes.c_uint),
        ("workers", ctypes.c_uint),
        ("order", ctypes.c_uint),
        ("strict", ctypes.c_uint),
        ("guard", ctypes.c_uint),
        ("use_poison", ctypes.c_uint),
        ("poison", ctypes.c_uint),
        ("stack_kib", ctypes.c_uint),
        ("seed", _ULL),
        ("time_limit", ctypes.c_double),
        ("check", ctypes.POINTER(Check)),
    ]
