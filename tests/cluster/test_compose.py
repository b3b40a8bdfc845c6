"""docker-compose.yml and Dockerfile against the code: no Docker is needed to see that they drift."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from perdure.streams.cluster import server
from perdure.streams.cluster.jars import KAFKA_VERSION

from perdure.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ROLES = sorted(name for name, service in SERVICES.items() if service["image"] == "perdure")


def test_the_services_are_there() -> None:
    assert {"kafka", "kafka-ui", "engine", "worker", "views"} <= SERVICES.keys()
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"


def test_kafka_has_the_embedded_brokers_settings() -> None:
    given = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in SERVICES["kafka"]["environment"].items()
    }
    assert {name: given.get(name) for name in server.SETTINGS} == server.SETTINGS


@pytest.mark.parametrize("role", ROLES)
def test_a_roles_command_is_one_that_the_command_line_takes(role: str) -> None:
    command, context = typer.main.get_command(app), None
    arguments: list[str] = SERVICES[role]["command"]
    while hasattr(command, "get_command"):
        name, *arguments = arguments
        found = command.get_command(context or command.make_context("perdure", [name]), name)
        assert found is not None, name
        command = found
    command.make_context(name, arguments)  # raises for an option it does not know


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_refers_to_is_declared(name: str) -> None:
    service = SERVICES[name]
    for volume in service.get("volumes", ()):
        source = re.sub(r"\$\{\w+:-(\w+)\}", r"\1", volume).partition(":")[0]
        assert source in COMPOSE["volumes"] or (source[:2] == "./" and (ROOT / source).is_file())
    for needed, how in service.get("depends_on", {}).items():
        assert how["condition"] != "service_healthy" or "healthcheck" in SERVICES[needed]
    for port in service.get("ports", ()):
        assert port.startswith("127.0.0.1:")  # nobody else's business unless somebody decides so


def test_prometheus_and_grafana_are_a_profile_and_find_the_roles() -> None:
    assert SERVICES["prometheus"]["profiles"] == SERVICES["grafana"]["profiles"] == ["observe"]
    observe = ROOT / "examples/observe"
    (job,) = yaml.safe_load((observe / "prometheus.yml").read_text())["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert set(found["names"]) == {"engine", "worker", "views"}
    for role in found["names"]:
        command = SERVICES[role]["command"]
        assert command[command.index("--metrics-port") + 1] == str(found["port"])
        assert SERVICES[role]["environment"]["PERDURE_METRICS_HOST"] == "0.0.0.0"
    (source,) = yaml.safe_load((observe / "grafana-datasource.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((observe / "grafana-dashboards.yml").read_text())["providers"]
    mounted = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/perdure.json" in mounted


def test_the_image_holds_every_package_of_the_project() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = {word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["setuptools"]["package-dir"].values()) <= copied
    assert all((ROOT / name).exists() for name in copied)
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    assert all(f"!{name}" in sent for name in copied)
