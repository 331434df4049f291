"""Messages on a descriptor: a length of four bytes, little-endian, and so many bytes of JSON. The other end is src/core/channel."""

import json
import os
import struct


def receive(descriptor):
    """The next message, or None at the end of the stream."""
    header = _read(descriptor, 4)
    if header is None:
        return None
    body = _read(descriptor, struct.unpack("<I", header)[0])
    return None if body is None else json.loads(body.decode("utf-8"))


def send(descriptor, message, allow_nan=True):
    """errors: ValueError for NaN and infinities where they are not allowed, before anything is written."""
    body = json.dumps(message, allow_nan=allow_nan).encode("utf-8")
    data = struct.pack("<I", len(body)) + body
    while data:
        data = data[os.write(descriptor, data) :]


def _read(descriptor, size):
    """Exactly `size` bytes, or None at the end of the stream."""
    data = bytearray()
    while len(data) < size:
        part = os.read(descriptor, size - len(data))
        if not part:
            return None
        data += part
    return bytes(data)
