"""A Python program that calls the library through ctypes writes from one queue pair to another, and reads back. loaded.py LIBRARY"""
import ctypes
import os
import sys
import time
from ctypes import POINTER, addressof, byref, c_char_p, c_int, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

os.environ["SOFTND_VERBS_FABRIC"] = "verbs-ctypes-%d" % os.getpid()
verbs = ctypes.CDLL(sys.argv[1], use_errno=True)


def structure(name, *fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


# Only the fields that a program reads have names of their own; calls in the table of a context are after 25 and 11 others.
Context = structure("Context", ("device", c_void_p), ("calls", c_void_p * 32))
QP = structure("QP", ("pointers", c_void_p * 6), ("handle", c_uint32), ("number", c_uint32))
MR = structure("MR", ("pointers", c_void_p * 3), ("length", c_size_t), ("handle", c_uint32), ("lkey", c_uint32), ("rkey", c_uint32))
Caps = structure("Caps", ("send_wr", c_uint32), ("recv_wr", c_uint32), ("send_sge", c_uint32), ("recv_sge", c_uint32), ("inline", c_uint32))
InitAttr = structure("InitAttr", ("context", c_void_p), ("send_cq", c_void_p), ("recv_cq", c_void_p), ("srq", c_void_p), ("cap", Caps), ("type", c_int), ("signal_all", c_int))
Path = structure("Path", ("gid", c_uint64 * 2), ("label", c_uint32), ("index", c_uint8), ("hops", c_uint8), ("traffic_class", c_uint8), ("lid", c_uint16), ("level", c_uint8),
                 ("source", c_uint8), ("rate", c_uint8), ("is_global", c_uint8), ("port", c_uint8))
Attr = structure("Attr", ("state", c_int), ("current", c_int), ("mtu", c_int), ("migration", c_int), ("qkey", c_uint32), ("rq_psn", c_uint32), ("sq_psn", c_uint32), ("dest", c_uint32),
                 ("access", c_uint32), ("cap", Caps), ("path", Path), ("other_path", Path), ("pkey", c_uint16), ("other_pkey", c_uint16), ("notify", c_uint8), ("draining", c_uint8),
                 ("reads", c_uint8), ("dest_reads", c_uint8), ("rnr_timer", c_uint8), ("port", c_uint8), ("timeout", c_uint8), ("retries", c_uint8), ("rnr_retries", c_uint8),
                 ("other_port", c_uint8), ("other_timeout", c_uint8), ("rate", c_uint32))
Entry = structure("Entry", ("address", c_uint64), ("length", c_uint32), ("key", c_uint32))
Request = structure("Request", ("id", c_uint64), ("next", c_void_p), ("entries", POINTER(Entry)), ("count", c_int), ("opcode", c_int), ("flags", c_uint32), ("immediate", c_uint32),
                    ("address", c_uint64), ("key", c_uint32), ("rest", c_uint64 * 8))
Completion = structure("Completion", ("id", c_uint64), ("status", c_int), ("opcode", c_int), ("error", c_uint32), ("bytes", c_uint32), ("rest", c_uint32 * 6))

calls = {
    "ibv_get_device_list": (POINTER(c_void_p), c_void_p),
    "ibv_get_device_name": (c_char_p, c_void_p),
    "ibv_open_device": (POINTER(Context), c_void_p),
    "ibv_alloc_pd": (c_void_p, c_void_p),
    "ibv_create_cq": (c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_int),
    "ibv_reg_mr": (POINTER(MR), c_void_p, c_void_p, c_size_t, c_int),
    "ibv_create_qp": (POINTER(QP), c_void_p, POINTER(InitAttr)),
    "ibv_modify_qp": (c_int, c_void_p, POINTER(Attr), c_int),
    "ibv_close_device": (c_int, c_void_p),
}
for name, (result, *arguments) in calls.items():
    call = getattr(verbs, name)
    call.restype, call.argtypes = result, arguments
for name in "ibv_free_device_list", "ibv_destroy_qp", "ibv_dereg_mr", "ibv_destroy_cq", "ibv_dealloc_pd":
    getattr(verbs, name).argtypes = [c_void_p]

INIT, RTR, RTS = 1, 2, 3
RC, WRITE, READ, SIGNALED, RIGHTS = 2, 0, 4, 2, 7
MASKS = {INIT: 0x39, RTR: 0x1 | 0x80 | 0x100 | 0x100000 | 0x1000 | 0x20000 | 0x8000, RTS: 0x1 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x2000}

devices = verbs.ibv_get_device_list(None)
print(verbs.ibv_get_device_name(devices[0]).decode())
context = verbs.ibv_open_device(devices[0])
verbs.ibv_free_device_list(devices)
poll = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, POINTER(Completion))(context.contents.calls[11])
post = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Request), POINTER(c_void_p))(context.contents.calls[25])
pd = verbs.ibv_alloc_pd(context)
cq = verbs.ibv_create_cq(context, 16, None, None, 0)
near, far = ctypes.create_string_buffer(5000), ctypes.create_string_buffer(5000)
regions = [verbs.ibv_reg_mr(pd, addressof(b), len(b), RIGHTS) for b in (near, far)]
qps = [verbs.ibv_create_qp(pd, byref(InitAttr(send_cq=cq, recv_cq=cq, cap=Caps(4, 4, 1, 1, 0), type=RC))) for _ in range(2)]
for qp, peer in (qps, qps[::-1]):
    for state in INIT, RTR, RTS:
        attr = Attr(state=state, port=1, access=RIGHTS, path=Path(lid=1, port=1), mtu=5, dest=peer.contents.number, reads=1, dest_reads=1, rnr_timer=12, timeout=14, retries=7, rnr_retries=7)
        error = verbs.ibv_modify_qp(qp, byref(attr), MASKS[state])
        assert error == 0, (state, error)


def transfer(opcode):
    entry = Entry(addressof(near), len(near), regions[0].contents.lkey)
    request = Request(id=opcode, entries=ctypes.pointer(entry), count=1, opcode=opcode, flags=SIGNALED, address=addressof(far), key=regions[1].contents.rkey)
    assert post(qps[0], byref(request), byref(c_void_p())) == 0
    end = time.monotonic() + 30
    done = Completion()
    while poll(cq, 1, byref(done)) == 0:
        assert time.monotonic() < end, "no completion"
    assert (done.id, done.status) == (opcode, 0), (done.id, done.status)


near.raw = data = os.urandom(len(near))
transfer(WRITE)
assert far.raw == data
far.raw = data = os.urandom(len(far))
transfer(READ)
assert near.raw == data
for call, things in (verbs.ibv_destroy_qp, qps), (verbs.ibv_dereg_mr, regions), (verbs.ibv_destroy_cq, [cq]), (verbs.ibv_dealloc_pd, [pd]), (verbs.ibv_close_device, [context]):
    for thing in things:
        assert call(thing) == 0
