# SPDX-License-Identifier: BSD-3-Clause
"""What travels on a wire: records it, and looks for what must not be there.

    capture.py record INTERFACE FILE      until it is ended; says "ready" first
    capture.py windows FILE PLAIN         how many 16-byte windows of the recording
                                          PLAIN, the dull ones left out, FILE has too
    capture.py texts FILE TEXTS           the same of each line of TEXTS, as it stands
                                          and as the bytes that it says in hex
    capture.py values FILE VALUES         how many of the values, a line of hex each, of
                                          8 bytes or more, FILE has
    capture.py names FILE NAMES           the same of names of jobs, and of the numbers
                                          that are made of them
    capture.py sealed FILE                "N streams", all made of nothing but records
                                          of TLS 1.3; else what is wrong, and exits 1
"""

import signal
import socket
import struct
import sys

WINDOW = 16
# 16 bytes of fewer kinds are padding or counters, not data.
KINDS = 10
SO_RCVBUFFORCE = 33


def record(interface, path):
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    wire.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 128 << 20)
    wire.bind((interface, 0))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("ready", flush=True)
    with open(path, "wb", buffering=0) as out:
        while True:
            frame = wire.recv(1 << 17)
            out.write(struct.pack("<I", len(frame)) + frame)


def segments(path):
    """(flow, sequence number, whether it begins the stream, bytes) of each."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at + 4 <= len(data):
        (size,) = struct.unpack_from("<I", data, at)
        frame = data[at + 4 : at + 4 + size]
        at += 4 + size
        if frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_TCP:
            continue
        ip = frame[14:]
        head = (ip[0] & 15) * 4
        tcp = ip[head : struct.unpack_from(">H", ip, 2)[0]]
        flow = ip[12:20] + tcp[:4]
        (seq,) = struct.unpack_from(">I", tcp, 4)
        yield flow, seq, bool(tcp[13] & 2), tcp[(tcp[12] >> 4) * 4 :]


def streams(path):
    """The bytes of each direction of each connection, in order."""
    begins, got = {}, {}
    for flow, seq, is_first, payload in segments(path):
        if is_first:
            begins[flow] = seq + 1
            got[flow] = bytearray()
        if not payload:
            continue
        offset = (seq - begins.get(flow, seq)) & 0xFFFFFFFF
        if flow not in got or offset > len(got[flow]):
            sys.exit("the recording has a hole")
        got[flow][offset : offset + len(payload)] = payload
    return {flow: bytes(all_of) for flow, all_of in got.items() if all_of}


def windows_of(text):
    for i in range(len(text) - WINDOW + 1):
        yield text[i : i + WINDOW]


def hits(path, wanted):
    return sum(w in wanted for s in streams(path).values() for w in windows_of(s))


def windows(path, plain):
    wanted = {w for s in streams(plain).values() for w in windows_of(s) if len(set(w)) >= KINDS}
    print(hits(path, wanted))


def texts(path, texts_path):
    wanted = set()
    with open(texts_path, encoding="ascii") as file:
        for line in file.read().split():
            wanted.update(windows_of(line.encode()))
            wanted.update(windows_of(bytes.fromhex(line)))
    print(hits(path, wanted))


def found(path, wanted):
    everything = streams(path).values()
    print(sum(any(value in s for s in everything) for value in wanted))


def values(path, values_path):
    with open(values_path, encoding="ascii") as file:
        found(path, {bytes.fromhex(line) for line in file if len(line) > 16})


def number(name):
    """FNV-1a."""
    n = 0xCBF29CE484222325
    for byte in name:
        n = (n ^ byte) * 0x100000001B3 % (1 << 64)
    return struct.pack("<Q", n)


def names(path, names_path):
    with open(names_path, "rb") as file:
        all_of = set(file.read().split())
    found(path, all_of | {number(name) for name in all_of})


def sealed(path):
    all_of = streams(path)
    for flow, stream in all_of.items():
        at = n = 0
        while at + 5 <= len(stream):
            kind, version, size = struct.unpack_from(">BHH", stream, at)
            # Data and what follows the hellos have type 23; 20 is for old routers.
            is_well = kind in (22 if n == 0 else 23, 23, 20, 21) or kind == 22 and n < 3
            if not is_well or version not in (0x0301, 0x0303) or size > 16640:
                where = f"{socket.inet_ntoa(flow[:4])} port {struct.unpack('>H', flow[8:10])[0]}"
                sys.exit(f"record {n} from {where} is none of TLS: {stream[at:at + 16].hex()}")
            at += 5 + size
            n += 1
    print(f"{len(all_of)} streams")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
