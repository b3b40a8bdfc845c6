"""The settings of the embedded broker: one node, both roles, one machine.

``describe_configs`` of a running broker is compared with this table by a test, because Kafka
only logs a setting it doesn't know.
"""

from __future__ import annotations

from perdure.schemas.topics import MAX_INBOUND_BYTES

NODE_ID = 1
HOST = "127.0.0.1"

SETTINGS: dict[str, str] = {
    # A killed member is out after 5 s, not 45: failover is this plus a restore.
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.min.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    # An abandoned transaction is aborted within a second of its timeout, not ten.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # After a kill -9 the node waits for its own former session to run out: 3 s, not 9.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # An idle node writes nothing; by default it adds to its metadata log twice a second.
    "metadata.max.idle.interval.ms": "0",
    # Offsets of a deployment that stood still for a while are still its offsets.
    "offsets.retention.minutes": "525600",
    # A misspelt topic is an error, never a topic.
    "auto.create.topics.enable": "false",
    "message.max.bytes": str(MAX_INBOUND_BYTES + 200_000),
    "replica.fetch.max.bytes": str(MAX_INBOUND_BYTES + 200_000),
    # One node: one copy. Few partitions of the internal topics: each costs files and start time.
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # The cleaner's default buffer (128 MB) would take a quarter of the heap.
    "log.cleaner.dedupe.buffer.size": "16777216",
}

FSYNC = {"log.flush.interval.messages": "1"}

JVM = ("-Xmx512m", "-XX:+UseSerialGC")
"""No TieredStopAtLevel=1: it starts a little sooner and halves the throughput later."""

LOG4J = """\
status = error
# Every start would print all settings seven times.
logger.settings.name = org.apache.kafka.common.config.AbstractConfig
logger.settings.level = warn
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:perdure.log}
appender.file.filePattern = ${sys:perdure.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %p %c{1}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 5MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""


def properties(port: int, controller_port: int, log_dir: str, *, fsync: bool) -> str:
    """The server.properties of a start; addresses follow the ports, which may change.

    ``log_dir`` is relative to where the broker is started: Kafka splits it at commas and reads
    this file as Latin-1, and a user's path may have both.
    """
    lines = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": log_dir,
        **SETTINGS,
        **(FSYNC if fsync else {}),
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())
