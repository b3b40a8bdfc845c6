"""Known values are those of Kafka's own tests and of Java clients."""

from __future__ import annotations

import pytest
from perdure.streams.runtime.partitioner import murmur2, partition_of

# org.apache.kafka.common.utils.UtilsTest.testMurmur2
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("data", sorted(JAVA))
def test_murmur2_is_javas(data: bytes) -> None:
    assert murmur2(data) == JAVA[data] & 0xFFFFFFFF


def test_partition_of_a_key_with_a_negative_hash_is_not_negative() -> None:
    assert partition_of("21", 6) == (-973932308 & 0x7FFFFFFF) % 6
    assert partition_of("", 3) == (murmur2(b"") & 0x7FFFFFFF) % 3
    assert {partition_of(f"run-{i}", 4) for i in range(100)} == {0, 1, 2, 3}
