"""``sayso hook``: install the hook of a coding agent, check it, and try it with the real agent.

``sayso hook run`` is not here: ``entry`` starts ``sayso.hooks.program`` and loads nothing else.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sayso import testing, text
from sayso.channels.layout import Line
from sayso.channels.screen import console, show
from sayso.cli import common, output
from sayso.cli.common import Exit, Usage, choices
from sayso.cli.serve import PORT
from sayso.gate.gate import read_policy
from sayso.hooks import doctor as diagnosis
from sayso.hooks import settings
from sayso.hooks.doctor import CheckResult
from sayso.hooks.program import LIMIT, Config, HookError, load_config
from sayso.hooks.settings import AGENTS, Agent, HookOptions
from sayso.inbox import create_token, os_user
from sayso.policy import Policy
from sayso.policy.loaders import PRESETS
from sayso.stores.address import address_of

AgentName = Literal["claude", "codex", "copilot", "gemini", "opencode"]

hook = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[AgentName, typer.Argument(metavar=choices(AgentName), help="The coding agent.")]
Project = Annotated[
    bool, typer.Option("--project", help="Use the settings of the project in this folder.")
]
User = Annotated[bool, typer.Option("--user", help="Use your own settings, for every project.")]


@hook.callback()
def group() -> None:
    """Gate the calls of a coding agent through its own hooks."""


@hook.command("install")
def install(
    agent: Name,
    project: Project = False,
    user: User = False,
    print_: Annotated[
        bool, typer.Option("--print", help="Show what would be written, and write nothing.")
    ] = False,
    server: Annotated[
        str, typer.Option("--server", metavar="URL", help="The address of `sayso serve`.")
    ] = "",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="A file with the agent's token (`sayso token create NAME --role agent`).",
        ),
    ] = None,
    store: Annotated[
        str,
        typer.Option(
            "--store", metavar="URL", help="Ask a store on this machine instead of a server."
        ),
    ] = "",
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="With --store: a policy file, or watch, balanced or strict.",
        ),
    ] = "",
    observe: Annotated[
        str,
        typer.Option(
            "--observe",
            metavar="FILE",
            help="With --store: a second policy that decides nothing (`sayso policy observed`).",
        ),
    ] = "",
    limit: Annotated[
        float,
        typer.Option(
            "--limit", metavar="SECONDS", min=5, max=86_400, help="How long to wait for a decision."
        ),
    ] = LIMIT,
    prompts: Annotated[
        bool,
        typer.Option(
            "--prompts",
            help="Claude Code and Codex: answer only their permission prompts, not every tool use.",
        ),
    ] = False,
    defer: Annotated[
        bool,
        typer.Option(
            "--defer", help="Claude Code with -p: end while a request waits, until it is resumed."
        ),
    ] = False,
    replace_prompts: Annotated[
        bool,
        typer.Option(
            "--replace-prompts",
            help="Run what a preset allows without the agent's own rules and prompts. A mistake "
            "of the preset then runs.",
        ),
    ] = False,
) -> None:
    """Install the hook into an agent's settings. Running it again changes nothing.

    Without --server and --store, it creates a store and a token in your data folder, and prints
    the command that serves that store. What the hook needs is in a file that only you can read.
    """
    target = AGENTS[agent]
    if prompts and not target.permission:
        raise Usage(f"--prompts: {target.title} has no hook for its prompts")
    if defer and agent != "claude":
        raise Usage("--defer is for claude only")
    if prompts and defer:
        raise Usage("--defer works before a tool use, so not with --prompts")
    path = _file(target, project=project, user=user)
    config_file = settings.config_file(agent)
    options = HookOptions(
        config=str(config_file),
        limit=limit,
        prompts=prompts,
        defer=defer,
        replace_prompts=replace_prompts,
    )
    config = _config(server, token_file, store, policy, observe)
    if print_:
        print(f"{path}:")
        output.print_json(settings.with_hook(target, path, options))
        return
    serve = ""
    if config is None:
        config, serve = _own_config(agent, config_file)
    settings.save_config(config_file, config)
    changed = settings.install(target, path, options)
    print(f"{'Installed the hook in' if changed else 'The hook is already in'} {path}")
    print(f"It asks {config.server or config.store} (see {config_file})")
    if replace_prompts:
        print(
            f"What a preset allows runs without the rules and prompts of {target.title}: if the "
            "preset is wrong about a call, nothing else stops it."
        )
    if agent == "codex":
        print("Codex skips a new hook until you trust it: start `codex`, and accept it in /hooks.")
    if serve:
        print(f"Start the server, then check the hook with `sayso hook doctor`:\n\n    {serve}\n")
    else:
        print("Check it with: sayso hook doctor")


@hook.command("uninstall")
def uninstall(agent: Name, project: Project = False, user: User = False) -> None:
    """Remove the hook from an agent's settings, and nothing else."""
    target = AGENTS[agent]
    path = _file(target, project=project, user=user)
    removed = settings.uninstall(target, path)
    print(f"{'Removed the hook from' if removed else 'There is no hook of Sayso in'} {path}")


def _file(agent: Agent, *, project: bool, user: bool) -> Path:
    if project and user:
        raise Usage("use --project or --user, not both")
    return agent.file("project" if project else "user", Path.cwd())


def _config(
    server: str, token_file: Path | None, store: str, policy: str, observe: str
) -> Config | None:
    """Return the server or store of the options, or None if they name neither."""
    if server and store:
        raise Usage("use --server or --store, not both")
    if token_file is not None and not server:
        raise Usage("--token-file needs --server")
    if (policy or observe) and not store:
        raise Usage("--policy and --observe need --store: a server has policies of its own")
    if not server and not store:
        return None
    token = ""
    if token_file is not None:
        try:
            token = token_file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"--token-file {token_file} cannot be read: {error}") from None
    if store:
        common.check_shared(store)
        store = address_of(store).url  # the hook runs in the folder of the agent
        policy = _absolute(policy)
        observe = _absolute(observe)
    return Config(server=server, token=token, store=store, policy=policy, observe=observe)


def _absolute(policy: str) -> str:
    """Return the absolute path of a policy file, or the name of a preset as it is."""
    return policy if policy in ("", *PRESETS) else os.path.abspath(policy)


def _own_config(agent: str, path: Path) -> tuple[Config, str]:
    """Return a configuration for the store in the user's data folder, and how to serve that store.

    One that was saved before stays. If it is for another server, there is nothing to serve.
    """
    own_store = address_of(settings.data_folder() / "sayso.db").url
    own_server = f"http://127.0.0.1:{PORT}"
    serve = shlex.join(["sayso", "serve", "--policy", "balanced", "--store", own_store])
    try:
        saved = load_config(str(path))
    except HookError:
        pass
    else:
        return saved, serve if saved.server == own_server else ""
    settings.data_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    with common.opened(own_store, create=True) as inbox:
        token, _ = create_token(inbox.store, agent, by=os_user().name, role="agent")
    return Config(server=own_server, token=token), serve


_SIGNS = {"ok": ("✓", "green"), "warning": ("-", "yellow"), "problem": ("✗", "bold red")}


@hook.command("doctor")
def doctor(
    agent: Annotated[
        AgentName | None,
        typer.Argument(metavar=f"[{choices(AgentName)}]", help="Only this agent."),
    ] = None,
    json: common.AsJson = False,
    plain: common.Plain = False,
) -> None:
    """Diagnose problems of the hooks. Exits with code 1 if an agent would run without asking.

    Without an agent, checks those that have a hook. It cannot see everything: an agent that is
    started with its hooks turned off runs without them.
    """
    findings = list(_findings(agent))
    ok = all(finding.level != "problem" for finding in findings)
    lines = [
        Line(text.inline(result.message), style, f"{sign} {result.name:<24} ", style)
        for result in findings
        for sign, style in [_SIGNS[result.level]]
    ]
    value = {"ok": ok, "checks": [finding._asdict() for finding in findings]}
    output.emit(value, lines, json=json, plain=plain)
    raise typer.Exit(Exit.OK if ok else Exit.PROBLEM)


def _findings(agent: str | None) -> Iterator[CheckResult]:
    if os.environ.get(common.TOKEN_VARIABLE):
        yield CheckResult(
            "environment",
            "warning",
            "SAYSO_TOKEN is set: an agent started here can decide as that person. Unset it",
        )
    results = {
        name: list(diagnosis.check(coding_agent, Path.cwd()))
        for name, coding_agent in AGENTS.items()
        if agent in (None, name)
    }
    absent = {
        name
        for name, checks in results.items()
        if all(check.name == name and "not installed" in check.message for check in checks)
    }
    if agent is None and absent == set(results):
        yield CheckResult("hooks", "problem", "none is installed: run `sayso hook install`")
    for name, checks in results.items():
        if agent is not None or name not in absent:
            yield from checks


@hook.command("attack")
def attack(
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="A policy file, or watch, balanced or strict. Default: the policy of the hook.",
        ),
    ] = "",
    agent: Annotated[
        AgentName | None,
        typer.Option(
            "--agent",
            metavar=choices(AgentName),
            help="Let this agent make the calls, with a scripted model.",
        ),
    ] = None,
    json: common.AsJson = False,
    plain: common.Plain = False,
) -> None:
    """Try a corpus of attacks on your policy. Exits with code 1 if one would run unasked.

    Without --agent, judges the calls of each attack. With --agent, the real agent makes them, in a
    mode in which it runs anything, and every request is rejected; this takes some minutes. Both use
    a temporary folder, in which an attack that is not stopped does what it can: change files there.
    """
    from sayso.hooks.attacks import attack_policy

    name = policy or _policy_of_hook(agent)
    rules = read_policy(name) if name else Policy()
    if agent is None:
        outcomes = list(attack_policy(rules))
    else:
        outcomes = list(_test_kit("attack --agent").attack_agent(agent, name))
    unasked = [outcome for outcome in outcomes if outcome.unasked]
    report = {
        "ok": not unasked,
        "policy": name,
        "agent": agent,
        "attacks": len(outcomes),
        "unasked": [{"effect": attack.effect, "calls": attack.calls} for attack, _ in unasked],
    }
    sign, style = _SIGNS["problem"]
    lines = [
        Line(
            text.inline("; then ".join(attempt.attack.calls)),
            "",
            f"{sign} {attempt.attack.effect:<8} ",
            style,
        )
        for attempt in unasked
    ]
    lines.append(
        Line(f"{len(unasked)} of {text.many(len(outcomes), 'attack')} would run unasked", "bold")
    )
    output.emit(report, lines, json=json, plain=plain)
    raise typer.Exit(Exit.PROBLEM if unasked else Exit.OK)


def _policy_of_hook(agent: str | None) -> str:
    """Return the policy that the configuration of the agent's hook names, or of every hook."""
    names = list(AGENTS) if agent is None else [agent]
    files = [path for path in map(settings.config_file, names) if path.exists()]
    try:
        configs = [load_config(str(path)) for path in files]
    except HookError as error:
        raise Usage(str(error)) from None
    servers = [config.server for config in configs if config.server]
    if servers:
        raise Usage(f"the hook asks {servers[0]}: name the policy of that server with --policy")
    policies = {config.policy for config in configs}
    if len(policies) != 1:
        why = "the hooks have different policies" if policies else "no hook is installed"
        raise Usage(f"{why}: name a policy with --policy")
    return policies.pop()


def _test_kit(command: str) -> Any:
    """Return the module that runs real agents."""
    try:
        return testing.coding_agents
    except ImportError as missing:
        raise Usage(f"sayso hook {command}: {missing}") from None


@hook.command("test")
def try_real_agent(
    agent: Annotated[
        AgentName, typer.Argument(metavar=choices(AgentName), help="The coding agent.")
    ],
    json: common.AsJson = False,
    plain: common.Plain = False,
) -> None:
    """Run the real agent against a scripted model, and show what its hook does.

    Uses a temporary store, server and home folder; nothing leaves this machine. Takes some minutes.
    Needs the test kit: the extra `testing`.

    Exits with code 1 if a command ran that should not have, or did not run that should have.
    """
    trial = _test_kit("test")
    outcomes: list[dict[str, Any]] = []
    out = console(plain=plain)
    width = max(len(case.name) for case in trial.CASES)
    ok = True
    for outcome in trial.try_agent(agent):
        ok = ok and outcome.ok
        outcomes.append({**outcome._asdict(), "ok": outcome.ok})
        if not json:
            sign, style = _SIGNS["ok" if outcome.ok else "problem"]
            happened = text.inline(outcome.happened)
            more = "" if outcome.ok else f" (expected: {outcome.expected})"
            row = f"{outcome.case:<{width}}  {happened}{more}  {outcome.seconds:.0f} s"
            show(out, [Line(row, style, f"{sign} ", style)])
    if json:
        output.print_json({"ok": ok, "agent": agent, "cases": outcomes})
    raise typer.Exit(Exit.OK if ok else Exit.PROBLEM)
