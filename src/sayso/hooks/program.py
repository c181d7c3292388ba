"""``sayso hook run``: the program that a coding agent starts before and after each tool use.

It reads the agent's payload, asks Sayso, waits for a decision, and prints the answer. Coding agents
*fail open*: if a hook crashes, takes too long, or exits with 1, most of them run the tool. So this
program ends in one of two ways only:

* it prints an answer that it got from Sayso, and exits with 0. For a call that only a preset
  allows it prints nothing, and the agent's own rules, prompts and sandbox apply;
* in every other case it prints the reason to standard error, and exits with 2, which denies.

That includes its own deadline, which is below the time that the agent gives it: a timer in another
OS thread ends the process whatever the first one hangs in. What happens before this program runs (a
missing interpreter, a broken environment) is up to the shell around it (``settings.GUARD``).

A repository that the user has cloned can set any variable of the agent's environment, and put
files into the folder in which the agent starts the hook. So neither decides whom to ask: the
installer writes the absolute paths of the interpreter, of this package and of the configuration
into the command, the interpreter starts isolated (``-I -S``), and ``isolate`` drops every variable
that does not say what a shell command means. A library such as OpenSSL would read the others.

If there is no decision before the deadline, the answer is a denial that tells the model to make the
same call again later; Sayso then finds the same request. After the tool ran, errors are harmless:
the result is not recorded, and the agent continues.

Standard library only, and little of it: every tool use of the agent waits for these imports. That
is why ``Server`` speaks HTTP itself; ``http.client`` takes longer to import than all the rest.
"""

from __future__ import annotations

import _thread
import json
import os
import re
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from sayso.hooks.dialects import (
    DIALECTS,
    MAX_RESULT,
    Answer,
    ToolUse,
    complete_codex,
    format_answer,
    parse_payload,
)

#: The exit code that denies, in every agent.
DENY = 2
#: How long the hook may take, in seconds. The installer gives the agent ``GRACE`` seconds more.
LIMIT = 570.0
GRACE = 30.0
#: How long before the limit the hook stops waiting, so that there is time to reply.
_REPLY_MARGIN = 3.0
#: The longest wait of one poll. Proxies cut connections after about a minute.
_POLL = 25.0
#: How long to retry while the server does not answer; it may be restarting.
_RETRY_SECONDS = 5.0
_RETRY_PAUSE = 0.3
#: How long the report of a result may take: the tool has run, and the agent waits.
_REPORT_SECONDS = 10.0
_MAX_INPUT = 32 * 1024 * 1024
_MAX_REPLY = 64 * 1024 * 1024

#: The variables that say what a shell command means: where its programs are.
_KEPT_VARIABLES = ("PATH", "CDPATH")
_ADDRESS = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::([0-9]{1,5}))?(/[!-~]*)?", re.A)
#: Tools with which Claude Code asks its user. It takes arguments from a hook as the user's answer.
_USER_QUESTIONS = ("AskUserQuestion", "ExitPlanMode")
_QUESTION = "AskUserQuestion"
#: The rule of the preset that only records. It replaces no prompt.
_WATCH = "watch"


#: The policies without a file.
_NAMED_POLICIES = ("", _WATCH, "balanced", "strict")


class HookError(Exception):
    """The hook cannot get an answer, so it denies."""


class Config(NamedTuple):
    """Where the hook asks: a server with an agent's token, or a store on this machine."""

    server: str = ""
    token: str = ""
    store: str = ""
    #: With a store: a policy file, or the name of a policy for coding agents.
    policy: str = ""
    #: The same, for a second policy that decides nothing.
    observe: str = ""


def load_config(path: str) -> Config:
    """Read the file that ``sayso hook install`` wrote for an agent. Nothing overrides it."""
    if not os.path.isabs(path):
        raise HookError("the hook was installed without its configuration: install it again")
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except (OSError, ValueError) as error:
        raise HookError(f"{path} cannot be read: {error}") from None
    if not isinstance(values, dict) or not all(isinstance(text, str) for text in values.values()):
        raise HookError(f"{path} is not a JSON object of texts: install the hook again")
    unknown = values.keys() - set(Config._fields)
    if unknown:
        raise HookError(f"{path}: unknown {', '.join(sorted(unknown))}")
    config = Config(**values)
    for policy in (config.policy, config.observe):
        if policy not in _NAMED_POLICIES and not os.path.isabs(policy):
            raise HookError(f"{path}: {policy} depends on the folder: install the hook again")
    if bool(config.server) == bool(config.store):
        raise HookError(f"{path} names neither one server nor one store: install the hook again")
    return config


def isolate() -> None:
    """Drop the environment, which a repository may have set, before a library reads it."""
    for name in os.environ.keys() - set(_KEPT_VARIABLES):
        del os.environ[name]


class Options(NamedTuple):
    """The options of ``sayso hook run``, which the installer writes into the agent's settings."""

    limit: float = LIMIT
    config: str = ""
    #: At the limit, end the agent until it is resumed, instead of telling it to ask again.
    defer: bool = False
    #: Answer for what a preset allows too, instead of the agent's own rules and prompts.
    replace_prompts: bool = False
    #: The hook is installed for the agent's prompts only. It changes nothing; the doctor reads it.
    prompts: bool = False


def parse_options(arguments: Sequence[str]) -> Options:
    """Read the options. Raise ``HookError`` for one that does not exist."""
    options = Options()
    rest = list(arguments)
    while rest:
        name = rest.pop(0)
        if name in ("--defer", "--replace-prompts", "--prompts"):
            flag = {name[2:].replace("-", "_"): True}
            options = Options(**options._asdict() | flag)
        elif name == "--config" and rest:
            options = options._replace(config=rest.pop(0))
        elif name == "--limit" and rest:
            options = options._replace(limit=_parse_limit(rest.pop(0)))
        else:
            raise HookError(f"unknown option {name}")
    return options


def _parse_limit(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 5.0 <= seconds <= 86_400.0:
        raise HookError(f"--limit {text}: use 5 to 86400 seconds")
    return seconds


# -- a server


class Server:
    """Asks ``sayso serve`` over HTTP, with one connection for each request and without proxies."""

    def __init__(self, url: str, token: str) -> None:
        address = _ADDRESS.fullmatch(url)
        if address is None:
            raise HookError(f"{url!r} is not the address of a server")
        scheme, host, port, path = address.groups()
        self._url = url
        self._secure = scheme == "https"
        self._host = host
        self._port = int(port or (443 if self._secure else 80))
        self._path = (path or "").rstrip("/")
        self._token = token

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        deadline: float,
        extra_seconds: float = 0.0,
    ) -> dict[str, Any]:
        """Send a request and return the reply's JSON. Retry for a moment if there is no reply.

        Sending a request again is safe: idempotency keys and states make the second one a no-op.
        ``extra_seconds`` is how much longer than usual the server may take.
        """
        headers = {"accept": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        if method == "POST":
            headers["idempotency-key"] = os.urandom(16).hex()
            headers["content-type"] = "application/json"
        data = b"" if body is None else json.dumps(body).encode()
        failed_at = 0.0
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise HookError("timed out")
            try:
                status, reply = self._send(
                    method, path, data, headers, min(left, _RETRY_SECONDS * 2 + extra_seconds)
                )
            except OSError as error:
                status = 0
                reply = {"message": f"{type(error).__name__}: {error}"}
            if 200 <= status < 300:
                return reply
            failed_at = failed_at or time.monotonic()
            waited = time.monotonic() - failed_at
            if status in (0, 429, 502, 503, 504) and waited < _RETRY_SECONDS:
                time.sleep(_RETRY_PAUSE)
                continue
            raise HookError(_failure_message(self._url, status, reply))

    def _send(
        self, method: str, path: str, data: bytes, headers: Mapping[str, str], timeout: float
    ) -> tuple[int, dict[str, Any]]:
        lines = [
            f"{method} {self._path}{path} HTTP/1.1",
            f"host: {self._host}:{self._port}",
            f"content-length: {len(data)}",
            "connection: close",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        head = "\r\n".join(lines).encode("ascii") + b"\r\n\r\n"
        host = self._host.strip("[]")
        connection = socket.create_connection((host, self._port), timeout)
        if self._secure:
            import ssl

            connection = ssl.create_default_context().wrap_socket(connection, server_hostname=host)
        with connection, connection.makefile("rb") as stream:
            connection.sendall(head + data)
            return _parse_reply(stream.read(_MAX_REPLY))

    # -- the steps

    def ask(self, use: ToolUse, deadline: float, *, prompts: bool = False) -> dict[str, Any]:
        """Ask about a tool use, wait for the decision, and release the call.

        Return the request as JSON. If it is still pending, the server has recorded that the agent
        will ask again. With ``prompts``, the agent would ask its user, so what a preset allows is
        asked about too.
        """
        body: dict[str, Any] = {
            "tool": use.tool,
            "args": use.shown_args,
            "schema": use.schema,
            "run": use.run,
            "title": use.title,
            "note": use.note,
            "caller": use.caller,
            **_agent_fields(self._token, use),
            **({"needs_approval": True} if prompts else {}),
        }
        from sayso.hooks.calls import machine_findings  # only this moment needs them
        from sayso.hooks.footprints import TOOLS, resolve

        if machine := machine_findings(use.tool, use.shown_args):
            body["machine"] = machine
        if use.tool in TOOLS:
            body["resolved"] = resolve(use.tool, use.shown_args)
        wait_until = deadline - _REPLY_MARGIN
        request = self.call("POST", "/api/requests", body, deadline=deadline)
        if not re.fullmatch(r"[\w.-]+", str(request["id"]), re.A):
            raise HookError("the server sent an id that is not one of Sayso's")
        use = use.known_as(request["caller"])
        path = f"/api/requests/{request['id']}"
        caller = {"caller": use.caller}
        while True:
            if request["execution"]["status"] == "ready":
                released = {"caller": use.caller_of(request["args"])}
                request = self.call("POST", f"{path}/release", released, deadline=deadline)
                if request["execution"]["status"] == "ready":
                    time.sleep(_RETRY_PAUSE)  # it changed at the same moment
            elif request["status"] != "pending":
                return request
            elif (left := wait_until - time.monotonic()) <= 0:
                request = self.call("POST", f"{path}/defer", caller, deadline=deadline)
                if request["status"] == "pending":
                    return request
            else:
                wait = min(left, _POLL)
                query = f"{path}/wait?timeout={wait:.3f}"
                request = self.call("GET", query, deadline=deadline, extra_seconds=wait)

    def report(self, use: ToolUse, deadline: float) -> dict[str, Any]:
        """Report what a tool use did. Return the request as JSON."""
        body = {
            "run": use.run,
            "tool": use.tool,
            "caller": use.caller,
            "ok": use.ok,
            "result": use.short_result,
            "args": use.shown_args,
            **_agent_fields(self._token, use),
        }
        return self.call("POST", "/api/requests/released/result", body, deadline=deadline)

    def note_prompt(self, use: ToolUse, deadline: float) -> None:
        """Report that the user has written something new."""
        body = {"run": use.run, **_agent_fields(self._token, use)}
        self.call("POST", "/api/requests/session/prompt", body, deadline=deadline)


def _parse_reply(reply: bytes) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON of an HTTP reply. The status is 0 if it is not from Sayso."""
    head, _, body = reply.partition(b"\r\n\r\n")
    first = re.match(rb"HTTP/1\.[01] ([1-5][0-9][0-9])\b", head)
    if re.search(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*(\r|$)", head, re.I):
        body = _join_chunks(body)
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    status = 0 if first is None else int(first[1])
    if isinstance(content, dict):
        return status, content
    # a proxy, or another program on this port
    return status if status >= 300 else 0, {"message": "the reply is not from Sayso"}


def _join_chunks(body: bytes) -> bytes:
    """Return the content of a chunked body, up to where it breaks off."""
    content = b""
    while (size := re.match(rb"([0-9A-Fa-f]{1,8})[^\r\n]*\r\n", body)) is not None:
        end = size.end() + int(size[1], 16)
        content += body[size.end() : end]
        body = body[end + 2 :]
    return content


def _agent_fields(token: str, use: ToolUse) -> dict[str, str]:
    """Return the agent's name, for a server that does not know it by a token."""
    return {} if token else {"agent": use.dialect}


def _failure_message(url: str, status: int, reply: Mapping[str, Any]) -> str:
    """Explain why there is no answer, and what to do."""
    message = str(reply.get("message", ""))[:500]
    if status == 0:
        return f"the server at {url} cannot be reached ({message}): start it with `sayso serve`"
    if status in (401, 403):
        return f"the server at {url} refuses the token ({message}): see `sayso hook doctor`"
    return f"the server at {url} answered {status}: {message}"


# -- from a request to an answer


def answer_to(use: ToolUse, request: Mapping[str, Any], options: Options) -> Answer:
    """Return the answer for an agent, from a request that was asked, waited for and released."""
    if request["execution"]["status"] == "released":
        return _approval_answer(use, request, options)
    if request["status"] == "pending":
        if options.defer and DIALECTS[use.dialect].defers and use.moment == "ask":
            return Answer(verdict="defer", reason=_pending_message(request))
        return Answer(
            verdict="deny",
            reason=f"{_pending_message(request)} It was not run. Continue with something else, or "
            "stop and tell the user. To ask for the answer later, make exactly the same call "
            "again.",
        )
    return Answer(verdict="deny", reason=_denial_reason(request))


def _pending_message(request: Mapping[str, Any]) -> str:
    return f"No answer yet: {request['id']} waits for a person to decide in Sayso."


def _approval_answer(use: ToolUse, request: Mapping[str, Any], options: Options) -> Answer:
    decision = request["decision"]
    source = decision["source"]
    # The agent may prompt about an edit that it has taken before.
    if request["original"] is None or request["args"] == use.shown_args:
        if not request.get("masked") and request["args"] != use.shown_args:
            raise HookError("the server answered for a different call")
        if source == "preset" and (not options.replace_prompts or request["rule"] == _WATCH):
            return Answer(verdict="pass")
        by_policy = source in ("rule", "preset", "model")
        by = f"the policy ({request['rule']})" if by_policy else decision["by"]
        # Send the agent's own arguments back: another hook may have changed them meanwhile.
        send_args = DIALECTS[use.dialect].last_wins and use.moment == "ask" and not by_policy
        return Answer(
            verdict="allow",
            reason=f"Approved by {by} in Sayso ({request['id']}).",
            args=dict(use.args) if send_args and use.tool not in _USER_QUESTIONS else None,
        )
    if request.get("masked"):
        raise HookError(
            "a person edited the call, and the server hides secrets from agents "
            "without a token: use one"
        )
    approved_args = request["args"]
    if any(approved_args.get(name) != value for name, value in use.fixed.items()):
        raise HookError(f"an edit changed {', '.join(use.fixed)}, which a hook cannot do")
    args = use.own_args(approved_args)
    return Answer(
        verdict="allow",
        reason=f"Approved with changes by {decision['by']} in Sayso ({request['id']}).",
        args=args,
        notice=edit_notice(use, args, decision),
    )


def edit_notice(use: ToolUse, args: Mapping[str, Any], decision: Mapping[str, Any]) -> str:
    """Describe an edit for the model: no agent tells its model about one."""
    ran = json.dumps(args, ensure_ascii=False)
    why = f" They said: {decision['message']}" if decision.get("message") else ""
    return (
        f"A person changed the arguments of this {use.tool} call before approving it. "
        f"It runs with {ran[:MAX_RESULT]} instead.{why}"
    )


_END_REASONS = {
    "expired": "Nobody decided in time, so it was not run.",
    "cancelled": "The request was cancelled, so it was not run.",
    "superseded": "The request was replaced, so it was not run.",
}


def _denial_reason(request: Mapping[str, Any]) -> str:
    status = request["status"]
    decision = request["decision"] or {}
    message = decision.get("message", "")
    if decision.get("type") == "deny":
        why = f"The policy ({request['rule']}) denies this call, so it was not run."
        return f"{why} {message}".strip()
    if status == "rejected":
        reason = f" The reason given: {message}" if message else ""
        who = "A model that reviews calls" if decision.get("source") == "model" else "A person"
        return f"{who} rejected this call, so it was not run.{reason}"
    if status == "responded":
        value = json.dumps(decision.get("value"), ensure_ascii=False)
        return f"A person answered instead, and it was not run. The answer: {value[:MAX_RESULT]}"
    if status in _END_REASONS:
        return _END_REASONS[status]
    return f"Sayso did not release {request['id']} ({status}), so it was not run."


# -- the program


def deny(reason: str) -> NoReturn:
    """End the process with a denial, whatever other OS threads are doing."""
    try:
        os.write(2, f"Sayso: not run: {reason}\n".encode(errors="replace"))
    finally:
        os._exit(DENY)


def _deny_after(seconds: float) -> None:
    time.sleep(seconds)
    deny(f"no answer within {seconds:g} seconds")


def run(arguments: Sequence[str], stdin: bytes | None = None) -> dict[str, Any]:
    """Return what to print for the payload on standard input. Raise if there is no answer."""
    began = time.monotonic()
    options = parse_options(arguments)
    # Denies even if the main thread hangs.
    _thread.start_new_thread(_deny_after, (options.limit,))
    data = sys.stdin.buffer.read(_MAX_INPUT + 1) if stdin is None else stdin
    if len(data) > _MAX_INPUT:
        raise HookError("the input is too long to be shown to a person")
    payload = json.loads(data)
    use = parse_payload(payload)
    if use.dialect == "codex" and use.moment != "said":
        use = complete_codex(use, payload, os.getcwd())
    if use.moment in ("ask", "prompt"):
        _check_directory(use)
    deadline = began + options.limit - 1.0
    if use.moment in ("ran", "said"):
        return _report(use, options, min(deadline, began + _REPORT_SECONDS))
    prompts = use.moment == "prompt" and not options.replace_prompts
    if prompts and use.tool == _QUESTION:
        return {}  # the user answers it, and nothing else happens
    config = load_config(options.config)
    if config.store:
        _find_packages()
        from sayso.hooks.local import ask_store

        wait = deadline - _REPLY_MARGIN - time.monotonic()
        request = ask_store(
            config.store, config.policy, use, wait, prompts=prompts, observe=config.observe
        )
    else:
        request = Server(config.server, config.token).ask(use, deadline, prompts=prompts)
    return format_answer(use, answer_to(use, request, options))


def _check_directory(use: ToolUse) -> None:
    """Raise ``HookError`` if an argument has the name under which people see the directory.

    Some agents ignore an argument that their tool does not have, and pass it on. The model would
    choose what counts as the project.
    """
    from sayso.hooks.footprints import TOOLS  # only this moment needs it

    if use.tool in TOOLS and use.args.get("cwd", use.cwd) != use.cwd:
        raise HookError("the call has an argument cwd, which is not where it runs: leave it out")


def _find_packages() -> None:
    """Let an interpreter that was started with ``-S`` import what a store needs."""
    if sys.flags.no_site:
        import site

        site.main()


def _report(use: ToolUse, options: Options, deadline: float) -> dict[str, Any]:
    """Record a result, or that the user has written something new. Errors are only printed.

    The tool has already run; and without the new text, rejections only last longer.
    """
    try:
        config = load_config(options.config)
        server = None if config.store else Server(config.server, config.token)
        if server is not None and use.moment == "said":
            server.note_prompt(use, deadline)
        elif server is not None:
            server.report(use, deadline)
        else:
            _find_packages()
            from sayso.hooks.local import note_prompt, report_to_store

            report = note_prompt if use.moment == "said" else report_to_store
            report(config.store, use)
    except Exception as error:
        what = "new prompt" if use.moment == "said" else "result"
        print(f"Sayso: the {what} was not recorded: {error}", file=sys.stderr)
    return {}


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the hook: print an answer and exit with 0, or exit with 2."""
    try:
        isolate()
        output = run(arguments)
        if output:
            sys.stdout.buffer.write(f"{json.dumps(output)}\n".encode())
            sys.stdout.buffer.flush()
    except HookError as error:
        deny(str(error))
    except BaseException as error:
        deny(f"{type(error).__name__}: {error}")
    os._exit(0)
