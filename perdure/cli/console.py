"""What the commands share: settings from flags, output, exits with a reason."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from tomllib import TOMLDecodeError
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec
import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from perdure.settings import Settings

from . import logs

if TYPE_CHECKING:
    from perdure.client import Client

OK, FAILED, USAGE, NO_KAFKA, WAITS, TAKEN = 0, 1, 2, 3, 4, 5
"""Exit codes (contract section 9)."""
T = TypeVar("T")


def say(text: str) -> None:
    """A line for people, on stderr: stdout carries results only."""
    with suppress(BrokenPipeError):  # who reads nothing any more does not stop a role
        print(logs.told(text), file=sys.stderr, flush=True)


def line(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def leave(code: int, text: str) -> NoReturn:
    """End the command, saying why."""
    say(f"perdure: {text}")
    raise typer.Exit(code)


def settings(**flags: Any) -> Settings:
    """Settings with the flags that were given on top. Ends the command where they can't be."""
    try:
        made = Settings(**{name: value for name, value in flags.items() if value is not None})
    except (ValueError, OSError) as error:
        leave(USAGE, _setting(error))
    logs.configure(made)
    return made


def _setting(error: Exception) -> str:
    """What is wrong with the settings, as a sentence."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        told = first["msg"].removeprefix("Value error, ")
        return f"setting {'.'.join(str(part) for part in first['loc'])}: {told}"
    if isinstance(error, SettingsError):  # of the environment: a value that must be JSON
        return f"{error}; PERDURE_KAFKA takes a JSON object"
    return f"perdure.toml can't be read: {error}"


@contextmanager
def with_kafka(**flags: Any) -> Iterator[Settings]:
    """Settings of a command that needs Kafka and no engine: on a laptop both stop with `up`, so the
    embedded Kafka of the data directory is started for as long as the command takes."""
    made = settings(**flags)
    kafka = made.data_dir / "kafka"
    if made.bootstrap_servers is not None or running(made) is not None or not kafka.is_dir():
        yield connected(**flags)
        return
    from perdure.streams.cluster.broker import EmbeddedKafka

    with EmbeddedKafka(kafka, port=0) as broker:
        yield made.model_copy(update={"bootstrap_servers": broker.bootstrap_servers})


def connected(**flags: Any) -> Settings:
    """Settings of a command that needs a running Kafka."""
    made = settings(**flags)
    if made.bootstrap_servers is None:
        found = running(made)
        if found is None:
            leave(
                USAGE,
                "no Kafka given: use --bootstrap-servers or PERDURE_BOOTSTRAP_SERVERS, or start one with `perdure up`",
            )
        if "topic_prefix" in made.model_fields_set:
            found.pop("topic_prefix", None)
        made = made.model_copy(update=found)
    return made


def running(made: Settings) -> dict[str, str] | None:
    """What `perdure up` noted in this data directory: where its Kafka is, and its prefix."""
    try:
        noted = json.loads((made.data_dir / "up.json").read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(noted, dict) or not isinstance(noted.get("bootstrap_servers"), str):
        return None
    return {
        name: noted[name]
        for name in ("bootstrap_servers", "topic_prefix")
        if isinstance(noted.get(name), str)
    }


def client(made: Settings) -> Client:
    """A client of the deployment that the settings name."""
    from perdure.client import Client

    return Client(made.bootstrap_servers or "", topic_prefix=made.topic_prefix, kafka=made.kafka)


def guarded(work: Callable[[], T]) -> T:
    """Run a command's work; known errors become one sentence and the contract's exit code."""
    from perdure.agents import AgentsError
    from perdure.client import SubmitError
    from perdure.connectors.loading import LoadError
    from perdure.schemas.errors import RecordError
    from perdure.streams.cluster.errors import ClusterError
    from perdure.streams.core.apply import BrokenHistory
    from perdure.streams.runtime.errors import RuntimeFault
    from perdure.topics_reader import ClientError, NoTopic, Unreachable

    try:
        return work()
    except Unreachable as error:
        leave(NO_KAFKA, str(error))
    except (RuntimeFault, ClusterError) as error:
        leave(error.exit_code, str(error))
    except (NoTopic, SubmitError, RecordError) as error:
        leave(FAILED, str(error))
    except BrokenHistory as error:
        leave(FAILED, f"the events are not sound: {error}. `perdure verify RUN` says where")
    except ClientError as error:
        _leave_kafka(error)
    except (ValidationError, SettingsError, TOMLDecodeError) as error:
        leave(USAGE, _setting(error))
    except (AgentsError, LoadError, ValueError) as error:
        leave(USAGE, str(error))
    except OSError as error:
        if error.filename is None:  # no path that was given, such as a pipe whose reader has left
            raise
        why = "a file is there" if isinstance(error, FileExistsError) else error.strerror
        told = f"{error.filename} can't be used: {why}"
        if error.errno in _NOT_A_PLACE:
            leave(USAGE, f"{told}; give another path")
        leave(FAILED, told)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


# where a data directory, or a file, can't be
_NOT_A_PLACE = {
    errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG,
    errno.EACCES, errno.EPERM, errno.EROFS,
}  # fmt: skip


def _leave_kafka(error: Exception) -> NoReturn:
    """What Kafka's library refuses: a setting of ``[kafka]`` that it does not take, or a connection."""
    from perdure.topics_reader import CONNECTION_LOST, SETTING_REFUSED

    about = error.args[0]
    if about.code() in SETTING_REFUSED:
        leave(USAGE, f"a setting under [kafka] (or PERDURE_KAFKA) is not taken: {about.str()}")
    leave(NO_KAFKA if about.code() in CONNECTION_LOST else FAILED, f"Kafka: {about.str()}")
