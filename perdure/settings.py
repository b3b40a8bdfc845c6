"""Settings of the command line and the client: ``PERDURE_*``, ``perdure.toml``, flags (flags win)."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from perdure.streams.runtime.settings import RuntimeSettings

if TYPE_CHECKING:  # half a second of imports, which only a worker needs
    from perdure.connectors.worker import WorkerSettings


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()) or "localhost"


class Settings(BaseSettings):
    """Everything a role needs to know; each field has a default that works on a laptop."""

    model_config = SettingsConfigDict(
        env_prefix="PERDURE_", toml_file="perdure.toml", extra="ignore"
    )

    bootstrap_servers: str | None = Field(
        None, description="Kafka's host:port; `up` starts its own where it is not given"
    )
    topic_prefix: str = Field("", description="before every topic, group and transactional id")
    instance_id: str = Field(
        default_factory=_host_name, description="who this process is, also after a restart"
    )
    data_dir: Path = Field(
        Path(".perdure"), description="stores, locks, blobs and the embedded Kafka"
    )
    blob_url: str | None = Field(
        None, description="fsspec URL for values above 256 kB; default <data_dir>/blobs"
    )
    partitions: int = Field(
        2, ge=1, le=1000, description="partitions of a new deployment (12 advised on a cluster)"
    )
    cache_bytes: int = Field(
        4_000_000,
        ge=100_000,
        description="state kept decoded in memory for each partition, by its stored size",
    )
    drain_seconds: float = Field(
        60.0, ge=0, description="how long a stop waits for calls in flight"
    )
    group_protocol: str = Field(
        "consumer", pattern="^(consumer|classic)$", description="consumer (KIP-848) or classic"
    )
    wire_format: str = Field(
        "json", pattern="^json$", description="json; avro comes with the schema registry"
    )
    approver_keys: Path | None = Field(
        None, description="JWKS of the approvers' public keys; default <data_dir>/approvers.jwks"
    )
    require_signatures: bool = Field(
        False, description="engines take signed decisions only, whatever the agents say"
    )
    signing_key: Path | None = Field(
        None,
        description="the key that commands sign decisions with; default <data_dir>/keys/NAME.jwk",
    )
    breaker_failures: int = Field(
        5, ge=0, description="failures of a service in a row that open its breaker; 0: never"
    )
    breaker_within_seconds: float = Field(
        30.0, gt=0, description="they count if the first is no older than this"
    )
    breaker_open_seconds: float = Field(
        10.0, gt=0, description="how long a breaker is open at first; doubled while probes fail"
    )
    breaker_longest_seconds: float = Field(
        300.0, gt=0, description="how long at most, whatever a service asks for in Retry-After"
    )
    offline_within_seconds: float = Field(
        10.0,
        ge=0,
        description="two hosts not reached within this: the worker is offline; 0: never",
    )
    tokens_file: Path | None = Field(
        None,
        description="who may call the views: a JSON object {token_sha256, user, roles} a line",
    )
    page_url: str | None = Field(
        None, description="where people reach the page; questions carry a link to it"
    )
    stuck_seconds: float = Field(
        600.0,
        gt=0,
        description="a run that ought to move and has not for so long is shown as stuck",
    )
    metrics_port: int | None = Field(
        None, ge=0, le=65535, description="serves /live, /ready and /metrics; 0: any free port"
    )
    metrics_host: str = Field(
        "127.0.0.1",
        description="the address they are served on; another than loopback where Prometheus runs elsewhere",
    )
    log_level: str = Field("WARNING", description="DEBUG, INFO, WARNING or ERROR")
    log_format: str = Field(
        "text", pattern="^(text|json)$", description="text, or json: one object a line"
    )
    trace_share: float = Field(
        1.0,
        ge=0,
        le=1,
        description="of the runs whose task brings no traceparent; traces are made where "
        "OTEL_EXPORTER_OTLP_ENDPOINT names a collector",
    )
    kafka: dict[str, str] = Field(
        default_factory=dict, description="goes to every Kafka client as it is"
    )

    @field_validator("log_level")
    @classmethod
    def _level(cls, given: str) -> str:
        if given.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise ValueError(f"{given!r} is none of DEBUG, INFO, WARNING, ERROR")
        return given

    @model_validator(mode="after")
    def _breaker_times(self) -> Settings:
        if self.breaker_open_seconds > self.breaker_longest_seconds:
            raise ValueError(
                f"breaker_open_seconds {self.breaker_open_seconds:g} must be at most "
                f"breaker_longest_seconds {self.breaker_longest_seconds:g}"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    def runtime(self) -> RuntimeSettings:
        """The runtime's part. Raises ValueError without ``bootstrap_servers``."""
        if self.bootstrap_servers is None:
            raise ValueError(
                "bootstrap_servers is not set: use --bootstrap-servers or PERDURE_BOOTSTRAP_SERVERS"
            )
        protocol: Any = self.group_protocol
        return RuntimeSettings(
            bootstrap_servers=self.bootstrap_servers,
            data_dir=self.data_dir,
            topic_prefix=self.topic_prefix,
            instance_id=self.instance_id,
            kafka=self.kafka,
            group_protocol=protocol,
            cache_bytes=self.cache_bytes,
            drain_seconds=self.drain_seconds,
        )

    def worker(self) -> WorkerSettings:
        """The worker's part."""
        from perdure.connectors.breaker import BreakerSettings
        from perdure.connectors.offline import OfflineSettings
        from perdure.connectors.worker import WorkerSettings

        return WorkerSettings(
            instance_id=self.instance_id,
            breaker=BreakerSettings(
                failures=self.breaker_failures,
                within_seconds=self.breaker_within_seconds,
                open_seconds=self.breaker_open_seconds,
                longest_seconds=self.breaker_longest_seconds,
            ),
            offline=OfflineSettings(within_seconds=self.offline_within_seconds),
        )

    def keys_of_approvers(self) -> Path:
        """The JWKS that engines verify signatures against; it need not be there."""
        return self.approver_keys or self.data_dir / "approvers.jwks"

    def blobs(self) -> str:
        """The URL of the blob store."""
        return self.blob_url or str(self.data_dir.absolute() / "blobs")

    def client_conf(self) -> dict[str, str]:
        """Settings of a plain Kafka client."""
        return {**self.kafka, "bootstrap.servers": self.bootstrap_servers or ""}
