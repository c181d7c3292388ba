"""``sayso selftest``: prove the promises with your own policy, tools and server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import sayso
from sayso import codec
from sayso.channels.layout import Line
from sayso.cli import common, output
from sayso.cli.common import Usage
from sayso.cli.load_agents import load_agents
from sayso.errors import SaysoError
from sayso.gate.gate import read_policy
from sayso.policy import Policy
from sayso.text import inline

if TYPE_CHECKING:
    from sayso.testing.selftest import Declaration, Result

_SIGNS = {"ok": "✓", "failed": "✗", "skipped": "-"}
_STYLES = {"ok": "green", "failed": "bold red", "skipped": "dim"}
_REFUSALS = (401, 403, 404)

# The operations that are open to a role, by their names in the OpenAPI document. Every other
# operation must refuse it, one that was added since included.
_EVERYONE = r"sign_in|sign_out|get_me|list_agents|list_passkeys"
_AGENT = (
    _EVERYONE + r"|open_request|wait_for_decision|claim_request|release_request|defer_request"
    r"|report_released|note_prompt|renew_claim|report_result|get_request|cancel_request|list_hooks"
)
_CHAT = (
    _EVERYONE + r"|(resume_)?chat.*|list_messages.*|run_agent.*|list_chats|get_request"
    r"|decide_request|undo_decision|cancel_request|check_edit|begin_confirmation"
    r"|.*own_(session|channel|account|address|notices).*|.*passkey.*"
)
_ADMIN = (
    r"add_person|change_person|get_person|list_groups|create_token|end_sessions|list_people"
    r"|list_channels|list_sessions|list_tokens|remove_person|revoke_token|export_audit_log"
    r"|replay_policy|observe_policy"
)
_OPEN = {"nobody": r"(?!)", "agent": _AGENT, "chat": _CHAT, "reviewer": rf"(?!({_ADMIN})$).*"}


def selftest(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODULE:ATTRIBUTE", help="Agents whose tools are checked."),
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", metavar="FILE", help="The policy: a file, or a preset.")
    ] = "",
    tool: Annotated[
        list[str] | None,
        typer.Option("--tool", metavar="NAME", help="Check this tool; repeatable."),
    ] = None,
    args: Annotated[
        str, typer.Option("--args", metavar="JSON", help="The arguments of --tool.")
    ] = "{}",
    agent: Annotated[
        str, typer.Option("--agent", metavar="NAME", help="The agent that calls --tool.")
    ] = "gate",
    server: Annotated[
        str, typer.Option("--server", metavar="URL", help="Also check what this server refuses.")
    ] = "",
    token_file: Annotated[
        list[Path] | None,
        typer.Option(
            "--token-file", metavar="FILE", help="A token whose limits are checked; repeatable."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Also write a report.")
    ] = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
    json: common.AsJson = False,
    plain: common.Plain = False,
) -> None:
    """Prove the promises with your policy and your tools. Exits with code 1 if one does not hold.

    No tool of yours runs: each is known by its declaration, and its body only records. The checks
    use scratch files, or scratch schemas of the PostgreSQL database that --store names, and remove
    them.
    """
    from sayso.testing.selftest import check_tool, place_for

    declared, rules = _declared(targets or [], policy, tool or [], args, agent)
    results: list[Result] = []
    with place_for(store) as place:
        for one in declared:
            results += check_tool(place, rules[one.agent], one)
    if server:
        results += _server_results(server, token_file or [])
    elif token_file:
        raise Usage("--token-file is for --server: name the server, or leave it out")
    failed = sum(result.outcome == "failed" for result in results)
    value = {
        "version": sayso.__version__,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "store": "PostgreSQL" if store.startswith("postgres") else "SQLite",
        "policies": {name: policy.digest for name, policy in rules.items()},
        "failed": failed,
        "results": [result._asdict() for result in results],
    }
    if report is not None:
        report.write_text("\n".join(_report(value, results)) + "\n", "utf-8")
    output.emit(value, _lines(results), json=json, plain=plain)
    if failed:
        raise typer.Exit(1)


def _declared(
    targets: list[str], policy: str, tools: list[str], args: str, agent: str
) -> tuple[list[Declaration], dict[str, Policy]]:
    """Return the tools to check, and the policy of each agent."""
    from sayso.testing.selftest import declarations, named, policy_of

    given = read_policy(policy) if policy else None
    rules = {agent: given or Policy()}
    declared = [named(agent, name, common.json_object(args)) for name in tools]
    for one in load_agents(targets):
        rules[one.name] = given or policy_of(one)
        declared += declarations(one)
    known = {one.tool.name for one in declared}
    if given is not None:
        exact = [name for rule in given.rules for name in rule.tool if not set(name) & set("*?[")]
        declared += [named(agent, name, {}) for name in dict.fromkeys(exact) if name not in known]
    return declared or [named(agent, "any_tool", {})], rules


def _server_results(server: str, token_files: Iterable[Path]) -> Iterator[Result]:
    """Call every operation that a role must not call, and check that the server refuses it."""
    import httpx

    with httpx.Client(base_url=server, timeout=30, trust_env=False) as client:
        try:
            document = client.get("/api/openapi.json").raise_for_status().json()
        except (httpx.HTTPError, ValueError) as error:
            raise SaysoError(f"{server} cannot be asked: {error}") from None
        yield from _refusals(client, document, "nobody", {})
        for file in token_files:
            headers = {"authorization": f"Bearer {file.read_text('utf-8').strip()}"}
            role = client.get("/api/me", headers=headers).json().get("role", "")
            if role not in _OPEN:
                raise Usage(f"{file}: the token of a {role or 'stranger'} has no limits to check")
            yield from _refusals(client, document, role, headers)


def _refusals(
    client: Any, document: Mapping[str, Any], role: str, headers: dict[str, str]
) -> Iterator[Result]:
    from sayso.testing.selftest import Result

    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            name = operation["operationId"]
            is_public = operation.get("security") == []
            if is_public or re.fullmatch(_OPEN[role], name):
                continue
            address = re.sub(r"\{[^}]*\}", "selftest-nothing", path)
            with client.stream(
                method, address, headers=headers, content=_body(document, operation)
            ) as response:
                status = response.status_code
            outcome = "ok" if status in _REFUSALS else "failed"
            check = f"The server refuses {name} to {role}"
            yield Result(f"{method.upper()} {path}", check, outcome, f"status {status}")


def _body(document: Mapping[str, Any], operation: Mapping[str, Any]) -> str | None:
    """Return a body that the operation allows, so that the role alone decides about it."""
    from sayso.testing.selftest import sample

    if "requestBody" not in operation:
        return None
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return codec.dumps(sample(schema, document["components"]["schemas"]))


def _lines(results: list[Result]) -> Iterator[Line]:
    subject = ""
    on_server = [result for result in results if result.check.startswith("The server refuses")]
    for result in results:
        if result in on_server and result.outcome == "ok":
            continue
        if result.tool != subject:
            subject = result.tool
            yield Line(inline(subject), "bold")
        sign = _SIGNS[result.outcome]
        text = inline(f"{result.check}: {result.detail}")
        yield Line(text, "", f"  {sign} ", _STYLES[result.outcome])
    if on_server:
        refused = sum(result.outcome == "ok" for result in on_server)
        yield Line(f"server: {refused} of {len(on_server)} forbidden calls were refused", "bold")
    counts = [f"{sum(r.outcome == kind for r in results)} {kind}" for kind in _SIGNS]
    yield Line(", ".join(counts), "bold")


def _report(value: Mapping[str, Any], results: list[Result]) -> Iterator[str]:
    """Return a report in Markdown, to hand over."""
    yield "# Self-test of Sayso"
    yield ""
    yield f"Version {value['version']}, {value['at']}, {value['store']}."
    for name, digest in value["policies"].items():
        yield f"Policy of {inline(name)}: `{digest}`."
    yield f"{len(results)} checks, {value['failed']} failed. No tool ran: each body only records."
    yield ""
    yield "| tool or operation | check | outcome | |"
    yield "|---|---|---|---|"
    for result in results:
        cells = [inline(cell).replace("|", "\\|") for cell in result]
        yield f"| `{cells[0]}` | {cells[1]} | {cells[2]} | {cells[3]} |"
