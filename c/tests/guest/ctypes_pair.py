"""Two Python processes are the ranks of a job: ctypes loads the library, and each rank writes into the other's memory.

ctypes_pair.py LIBRARY [NAME RANK]"""
import ctypes as c
import os
import subprocess
import sys

LIMIT = c.c_int64(30_000_000_000)


class Options(c.Structure):  # the first members of snd_fabric_options: an older program has no others
    _fields_ = [("threading", c.c_int), ("progress", c.c_int), ("executor", c.c_int), ("check_payloads", c.c_uint32)]


class Config(c.Structure):
    _fields_ = [("receive_cq", c.c_void_p), ("initiator_cq", c.c_void_p), ("srq", c.c_void_p), ("context", c.c_uint64)] + \
               [(n, c.c_uint32) for n in ("receive_depth", "initiator_depth", "max_receive_sge", "max_initiator_sge", "inline_size", "check_payloads")]


class Descriptor(c.Structure):
    _fields_ = [("address", c.c_uint64), ("length", c.c_uint64), ("token", c.c_uint32), ("reserved", c.c_uint32)]


class Sge(c.Structure):
    _fields_ = [("buffer", c.c_void_p), ("length", c.c_uint32), ("token", c.c_uint32)]


class Result(c.Structure):
    _fields_ = [("status", c.c_uint32), ("bytes", c.c_uint32), ("endpoint_context", c.c_uint64), ("request_context", c.c_uint64),
                ("type", c.c_uint32), ("invalidated_token", c.c_uint32)]


def play(lib, name, rank):
    def ok(status):
        if status:
            raise OSError("%#x: %s" % (status & 0xFFFFFFFF, lib.snd_last_error().decode()))

    lib.snd_last_error.restype = c.c_char_p
    lib.snd_job_adapter.restype = lib.snd_mr_buffer.restype = c.c_void_p
    job, mr, cq, ep = c.c_void_p(), c.c_void_p(), c.c_void_p(), c.c_void_p()
    ok(lib.snd_job_join(c.c_size_t(c.sizeof(Options)), name.encode(), c.c_uint32(rank), c.c_uint32(2), c.byref(Options()), LIMIT,
                        c.byref(job)))
    adapter = c.c_void_p(lib.snd_job_adapter(job))
    ok(lib.snd_cq_create(adapter, c.c_uint32(16), c.byref(cq)))
    ok(lib.snd_job_connect(c.c_size_t(c.sizeof(Config)), job, c.c_uint32(1 - rank), c.byref(Config(receive_cq=cq, initiator_cq=cq)), LIMIT,
                           c.byref(ep)))
    ok(lib.snd_mr_allocate(adapter, c.c_uint64(4096), c.c_uint32(7), c.byref(mr)))
    mine, both = Descriptor(), (Descriptor * 2)()
    ok(lib.snd_mr_query(mr, c.byref(mine)))
    ok(lib.snd_job_exchange(job, c.byref(mine), c.c_uint64(c.sizeof(mine)), both, LIMIT))
    memory = c.cast(lib.snd_mr_buffer(mr), c.POINTER(c.c_char * 4096)).contents
    memory[0:12] = b"from rank %2d" % rank
    token = lib.snd_mr_local_token(mr)
    theirs = both[1 - rank]
    sge = Sge(c.addressof(memory), 12, token)
    ok(lib.snd_endpoint_write(ep, c.c_uint64(5), c.byref(sge), c.c_uint32(1), c.c_uint64(theirs.address + 100), c.c_uint32(theirs.token), c.c_uint32(0)))
    result, taken = Result(), c.c_uint32()
    ok(lib.snd_cq_wait(cq, c.byref(result), c.c_uint32(1), LIMIT, c.byref(taken)))
    assert taken.value == 1 and result.status == 0 and result.request_context == 5, result.status
    ok(lib.snd_job_barrier(job, LIMIT))
    assert bytes(memory[100:112]) == b"from rank %2d" % (1 - rank), memory[100:112]
    assert lib.snd_job_barrier(None, LIMIT) & 0xFFFFFFFF == 0xC0000008 and lib.snd_last_error()
    ok(lib.snd_job_close(job))


def main():
    lib = c.CDLL(sys.argv[1])
    if len(sys.argv) == 4:
        return play(lib, sys.argv[2], int(sys.argv[3]))
    name = "python.%d" % os.getpid()
    other = subprocess.Popen([sys.executable, sys.argv[0], sys.argv[1], name, "1"])
    play(lib, name, 0)
    assert subprocess.run(["true"]).returncode == 0
    assert other.wait() == 0


main()
