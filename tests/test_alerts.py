"""deploy/alerts.yaml and deploy/dashboard.json name metrics that real processes report."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import sayso_process
import yaml
from live_server import LiveServer
from postgres_server import shared_url, why_not
from prometheus_client.parser import text_string_to_metric_families
from waiting import until

from sayso.keys import Keyring, new_key
from sayso.server import create_app
from sayso.server.serving import server_config
from sayso.server.webhooks import Endpoint
from sayso.stores import open_store
from sayso.stores.postgres import PostgresStore

DEPLOY = Path(__file__).parent.parent / "deploy"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((DEPLOY / "alerts.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "dashboard.json").read_text("utf-8"))
EXPRESSIONS = [rule["expr"] for rule in RULES] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
]
#: The labels that Prometheus itself adds, and those of histograms.
_ADDED = {"instance", "le"}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the labels of every metric that a server, a worker or doctor reports, by its name."""
    if why_not():
        pytest.skip(why_not())
    store = PostgresStore(shared_url(), schema="alerts", keys=Keyring.parse(new_key()))
    hook = Endpoint("https://hooks.example.com/sayso", "whsec_" + "A" * 32)
    server = LiveServer(server_config(create_app(store=store, auth=False, webhooks=[hook])))
    server.start()
    try:
        body = {"tool": "Bash", "caller": "use:1", "run": "session-1", "args": {"command": "make"}}
        assert httpx.post(f"{server.url}/api/requests", json=body).status_code == 201
        page = httpx.get(f"{server.url}/metrics").text
    finally:
        server.stop()
        store.close()
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page + _doctor_page(tmp_path_factory)):
        names = {family.name, f"{family.name}_total"} if family.type == "counter" else {family.name}
        if family.type == "histogram":
            names = {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
        for name in names:
            labels[name] = {label for sample in family.samples for label in sample.labels}
    return labels


def _doctor_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what a watching doctor serves."""
    folder = tmp_path_factory.mktemp("doctor")
    open_store(f"sqlite:///{folder}/sayso.db").close()
    with (folder / "log").open("w") as log:
        command = ("doctor", "--watch", "--metrics", "0")
        process = sayso_process.start(*command, cwd=folder, env=os.environ, stderr=log)
    try:
        line = until(lambda: (folder / "log").read_text())
        url = line.split()[-1]
        return until(lambda: "sayso_doctor_lines{" in (page := httpx.get(url).text) and page)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression_names_real_metrics(expression: str, reported: dict[str, set[str]]) -> None:
    names = set(re.findall(r"\bsayso_\w+", expression))
    assert names
    assert names <= set(reported)
    labels = set(re.findall(r"(\w+)(?==~?\")", expression))
    for grouping in re.findall(r"\bby \(([^)]*)\)", expression):
        labels |= {label.strip() for label in grouping.split(",")}
    known = set().union(*(reported[name] for name in names))
    if known:  # a metric with labels that counted nothing yet shows none
        assert labels <= known | _ADDED


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression_is_promql(expression: str) -> None:
    promql_parser = pytest.importorskip("promql_parser")
    promql_parser.parse(expression)


def test_rules_are_complete() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]


def test_panels_do_not_overlap() -> None:
    places = set()
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        for x in range(grid["x"], grid["x"] + grid["w"]):
            for y in range(grid["y"], grid["y"] + grid["h"]):
                assert (x, y) not in places, panel["title"]
                assert x < 24
                places.add((x, y))


def test_every_metric_of_the_store_has_an_alert_or_a_panel(
    reported: dict[str, set[str]],
) -> None:
    used = set(re.findall(r"\bsayso_\w+", " ".join(EXPRESSIONS)))
    families = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in used}
    store_wide = ("sayso_store", "sayso_requests", "sayso_runs", "sayso_seal", "sayso_pool")
    expected = {name for name in reported if name.startswith(store_wide)}
    assert {re.sub(r"_total$", "", name) for name in expected} - families == set()
