"""``sayso hook run``: the program that a coding agent starts before and after each tool use.

It reads the agent's payload, asks Sayso, waits for a decision, and prints the answer. Coding agents
*fail open*: if a hook crashes, takes too long, or exits with 1, most of them run the tool. So this
program ends in one of two ways only:

* it prints an answer that it got from Sayso, and exits with 0;
* in every other case it prints the reason to standard error, and exits with 2, which denies.

That includes its own deadline, which is below the time that the agent gives it: a timer in another
OS thread ends the process whatever the first one hangs in. What happens before this program runs (a
missing interpreter, a broken environment) is up to the shell around it: ``sh -c '… || exit 2'``.

If there is no decision before the deadline, the answer is a denial that tells the model to make the
same call again later; Sayso then finds the same request. After the tool ran, errors are harmless:
the result is not recorded, and the agent continues.

Standard library only: every tool use of the agent waits for these imports.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote, urlsplit

from sayso.hooks.calls import machine_findings
from sayso.hooks.dialects import DIALECTS, MAX_RESULT, Answer, ToolUse, format_answer, parse_payload

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

ENVIRONMENT = "SAYSO_HOOK_"
#: Tools with which Claude Code asks its user. It takes arguments from a hook as the user's answer.
_USER_QUESTIONS = ("AskUserQuestion", "ExitPlanMode")
#: The rule of the policy that only records, and the default of any policy: what only these allow
#: is left to the agent's own rules and prompts.
_UNNAMED_RULES = ("watch", "default")


class HookError(Exception):
    """The hook cannot get an answer, so it denies."""


class Config(NamedTuple):
    """Where the hook asks: a server with an agent's token, or a store on this machine."""

    server: str = ""
    token: str = ""
    store: str = ""
    #: With a store: a policy file, or the name of a policy for coding agents.
    policy: str = ""


def config_path() -> str:
    """Return the file that ``sayso hook install`` writes the address and the token to."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "sayso", "hook.json")


def load_config(path: str = "") -> Config:
    """Read the hook's file. Environment variables (``SAYSO_HOOK_SERVER``, …) override it.

    ``SAYSO_TOKEN`` does not: that is a person's token, and an agent must not act as a person.
    """
    found: dict[str, Any] = {}
    path = path or config_path()
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise HookError(f"{path} cannot be read: {error}") from None
    names = ("server", "token", "store", "policy")
    unknown = set(found) - set(names) if isinstance(found, dict) else {"a list"}
    if unknown:
        raise HookError(f"{path}: unknown {', '.join(sorted(unknown))}")
    values = {name: os.environ.get(f"{ENVIRONMENT}{name.upper()}") for name in names}
    if values["server"] or values["store"]:
        found = {}  # the file's token belongs to the file's server
    config = Config(**{name: str(values[name] or found.get(name, "")) for name in names})
    if bool(config.server) == bool(config.store):
        raise HookError(
            f"the hook is not configured: run `sayso hook install`, or set {ENVIRONMENT}SERVER to "
            f"a server or {ENVIRONMENT}STORE to a store"
        )
    return config


class Options(NamedTuple):
    """The options of ``sayso hook run``, which the installer writes into the agent's settings."""

    limit: float = LIMIT
    config: str = ""
    #: At the limit, end the agent until it is resumed, instead of telling it to ask again.
    defer: bool = False
    #: Leave what the policy allows to the agent's own rules and prompts.
    keep_prompts: bool = False


def parse_options(arguments: Sequence[str]) -> Options:
    """Read the options. Raise ``HookError`` for one that does not exist."""
    options, rest = Options(), list(arguments)
    while rest:
        name = rest.pop(0)
        if name == "--defer":
            options = options._replace(defer=True)
        elif name == "--keep-prompts":
            options = options._replace(keep_prompts=True)
        elif name in ("--limit", "--config") and rest:
            value = rest.pop(0)
            if name == "--config":
                options = options._replace(config=value)
            else:
                options = options._replace(limit=_parse_limit(value))
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
    """Asks ``sayso serve`` over HTTP."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise HookError(f"{url!r} is not the address of a server")
        self._parts = parts
        self._token = token
        self._connection: http.client.HTTPConnection | None = None

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
        data = None if body is None else json.dumps(body).encode()
        failed_at = 0.0
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise HookError("timed out")
            try:
                status, reply = self._send(
                    method, path, data, headers, min(left, _RETRY_SECONDS * 2 + extra_seconds)
                )
            except (OSError, http.client.HTTPException) as error:
                status, reply = 0, {"message": f"{type(error).__name__}: {error}"}
                self.close()
            if 200 <= status < 300:
                return reply
            failed_at = failed_at or time.monotonic()
            waited = time.monotonic() - failed_at
            if status in (0, 429, 502, 503, 504) and waited < _RETRY_SECONDS:
                time.sleep(_RETRY_PAUSE)
                continue
            raise HookError(_failure_message(self._parts.geturl(), status, reply))

    def _send(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str], timeout: float
    ) -> tuple[int, dict[str, Any]]:
        if self._connection is None:
            https = self._parts.scheme == "https"
            connect = http.client.HTTPSConnection if https else http.client.HTTPConnection
            self._connection = connect(self._parts.hostname or "", self._parts.port)
        self._connection.timeout = timeout
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        target = self._parts.path.rstrip("/") + path
        self._connection.request(method, target, body=data, headers=headers)
        response = self._connection.getresponse()
        try:
            reply = json.loads(response.read())
        except ValueError:
            reply = None
        if not isinstance(reply, dict):  # a proxy, or another program on this port
            status = response.status if response.status >= 300 else 0
            return status, {"message": "the reply is not from Sayso"}
        return response.status, reply

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- the steps

    def ask(self, use: ToolUse, deadline: float) -> dict[str, Any]:
        """Ask about a tool use, wait for the decision, and release the call.

        Return the request as JSON. If it is still pending, the server has recorded that the agent
        will ask again.
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
        }
        if machine := machine_findings(use.tool, use.shown_args):
            body["machine"] = machine
        wait_until = deadline - _REPLY_MARGIN
        request = self.call("POST", "/api/requests", body, deadline=deadline)
        path = f"/api/requests/{quote(str(request['id']), safe='')}"
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
    decision = request["decision"] or {}
    by_rule = decision.get("type") == "allow"
    if request["original"] is None:
        if not request.get("masked") and request["args"] != use.shown_args:
            raise HookError("the server answered for a different call")
        if by_rule and (options.keep_prompts or request["rule"] in _UNNAMED_RULES):
            return Answer(verdict="pass")
        by = f"the policy ({request['rule']})" if by_rule else decision.get("by", "a person")
        # Send the agent's own arguments back: another hook may have changed them meanwhile.
        send_args = DIALECTS[use.dialect].last_wins and use.moment == "ask" and not by_rule
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
    shown = request["args"]
    if use.adds_cwd and shown.get("cwd") != use.cwd:
        raise HookError("an edit changed the working directory, which a hook cannot do")
    args = use.own_args(shown)
    return Answer(
        verdict="allow",
        reason=f"Approved with changes by {decision.get('by', 'a person')} in Sayso "
        f"({request['id']}).",
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
    status, decision = request["status"], request["decision"] or {}
    message = decision.get("message", "")
    if decision.get("type") == "deny":
        why = f"The policy ({request['rule']}) denies this call, so it was not run."
        return f"{why} {message}".strip()
    if status == "rejected":
        reason = f" The reason given: {message}" if message else ""
        return f"A person rejected this call, so it was not run.{reason}"
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


def run(arguments: Sequence[str], stdin: bytes | None = None) -> dict[str, Any]:
    """Return what to print for the payload on standard input. Raise if there is no answer."""
    began = time.monotonic()
    options = parse_options(arguments)
    # Denies even if the main thread hangs.
    timer = threading.Timer(options.limit, deny, [f"no answer within {options.limit:g} seconds"])
    timer.daemon = True
    timer.start()
    data = sys.stdin.buffer.read(_MAX_INPUT + 1) if stdin is None else stdin
    if len(data) > _MAX_INPUT:
        raise HookError("the input is too long to be shown to a person")
    use = parse_payload(json.loads(data))
    deadline = began + options.limit - 1.0
    if use.moment in ("ran", "said"):
        return _report(use, options, min(deadline, began + _REPORT_SECONDS))
    config = load_config(options.config)
    if config.store:
        from sayso.hooks.local import ask_store

        wait = deadline - _REPLY_MARGIN - time.monotonic()
        request = ask_store(config.store, config.policy, use, wait)
    else:
        request = Server(config.server, config.token).ask(use, deadline)
    return format_answer(use, answer_to(use, request, options))


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
        output = json.dumps(run(arguments))
        sys.stdout.buffer.write(f"{output}\n".encode())
        sys.stdout.buffer.flush()
    except HookError as error:
        deny(str(error))
    except BaseException as error:
        deny(f"{type(error).__name__}: {error}")
    os._exit(0)
