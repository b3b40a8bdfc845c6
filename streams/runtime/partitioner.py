"""Java's default partitioner, so that any Kafka client and we agree on a run's owner."""

from __future__ import annotations

from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """32 bits, unsigned: `org.apache.kafka.common.utils.Utils.murmur2`, after A. Appleby."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ h >> 15


@lru_cache(maxsize=65_536)
def partition_of(key: str, partitions: int) -> int:
    """The owner of ``key``. Cached: a hot run's id comes by many times a second."""
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions
