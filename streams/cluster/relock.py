"""Writes ``kafka.lock`` anew: ``python -m perdure.streams.cluster.relock``.

For whoever moves to another Kafka: resolves the two roots with jgo, with everything they need,
and writes versions and SHA-256 of the jars. Needs the network; the broker itself never does this.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from perdure.streams.cluster.jars import KAFKA_VERSION, LOCK_FILE
from perdure.streams.cluster.repositories import here

LOG4J_VERSION = "2.25.5"
"""The one Kafka itself asks for; without the binding the broker would log nothing."""

ROOTS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    # `!`: its dependency management stays its own, it would hold back Kafka's versions.
    f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J_VERSION}!",
)

HEADER = """\
# Every jar of the embedded broker, by exact version and SHA-256, in jgo's lock format.
# Written by `python -m perdure.streams.cluster.relock`; where the jars come from is the
# machine's own setting (see repositories.py), so no address stands here.

[environment]
name = "apache-kafka-{version}"
"""


def main() -> int:
    from jgo.env import LockFile
    from jgo.maven import MavenContext

    with tempfile.TemporaryDirectory() as cache:
        context = MavenContext(repo_cache=Path(cache), remote_repos=here().remote or None)
        roots = [context.create_dependency(root) for root in ROOTS]
        inputs, transitive = context.resolver.resolve(roots)
        found = LockFile.from_resolved_dependencies([*inputs, *transitive]).dependencies
    text = HEADER.format(version=KAFKA_VERSION)
    for jar in sorted(found, key=lambda jar: (jar.groupId, jar.artifactId)):
        row = {name: value for name, value in jar.to_dict().items() if isinstance(value, str)}
        text += "\n[[dependencies]]\n"
        text += "".join(f'{name} = "{value}"\n' for name, value in row.items())
    LOCK_FILE.write_text(text)
    print(f"{LOCK_FILE.name}: {len(found)} jars")
    return 0


if __name__ == "__main__":
    sys.exit(main())
