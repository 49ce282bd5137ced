"""Client of a permesso approval gate. One file, Python 3.9 or later, standard library only.

    import permesso

    decision = permesso.request("x_post", {"text": "Meeting at 5"}, rationale="the team forgets")
    if decision.approved:                     # the host has run it
        print(decision.result)

    @permesso.needs_approval(rationale="the user asked for it")
    def delete(path: str) -> None:            # runs here, and only after an approval
        os.remove(path)

    permesso.run(source)                      # a program: permesso plan --teach says how to write one

PERMESSO_URL is the gate's URL (http://127.0.0.1:8765, https://..., unix:///path), PERMESSO_KEY the key.
Without PERMESSO_URL the client uses two folders, PERMESSO_REQUESTS and PERMESSO_RESPONSES (default
/permesso/requests and /permesso/responses).

A request without a response is sent again with the same Idempotency-Key, so that people are asked only
once. A refused request is not sent again. The client follows no redirect and uses no proxy: both would
send the key to another server. An approval must have a receipt for exactly the bytes of the arguments, or
of the program; otherwise it is a Mismatch.

    python3 -m permesso request x_post --data '{"text":"Meeting at 5"}'     (also: run FILE, wait ID, cancel ID)
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import email.utils
import functools
import hashlib
import http.client
import inspect
import json
import os
import random
import re
import secrets
import socket
import sys
import time
import urllib.parse
from typing import Any, Callable, Mapping, NoReturn, Optional, Sequence, TypeVar, Union, cast

__all__ = [
    "Cancelled", "Decision", "Denied", "Error", "Expired", "Failed", "Gate", "Invalid", "InvalidKey", "Mismatch",
    "Malformed", "MoreWanted", "NotAGate", "NotApproved", "NotFound", "NotPending", "Overridden", "Program", "Refused",
    "Rejected", "StillWaiting", "Submitted", "Unreachable", "cancel", "needs_approval", "request", "run", "submit", "wait",
]

RETRY_TIMEOUT = 75.0  # seconds of retries while the gate does not answer or is busy
_LONG_POLL = 30
_SETTLE_TIME = 5
_GRACE = 15.0
_MAX_RESPONSE = 16 << 20
_PREFIX = "appr_"
_HOW = "Set PERMESSO_URL and PERMESSO_KEY, or mount the folders that permesso mounts prints"
_FIELDS = {
    "action_type", "title", "preview", "rationale", "session_id", "expires_in_sec", "resubmits", "proof", "metadata", "channel",
    "target", "type", "options", "args_subset", "program", "continues",
}  # fmt: skip

Data = Union[Mapping[str, Any], str, bytes]  # text is JSON and is sent unchanged


class Error(Exception):
    """Base of all errors of this module."""


class Unreachable(Error):
    """No gate answered within the timeout. A request may have been accepted: submit it again with the same
    idempotency_key to find out. The error of a submission has the key that it used."""

    idempotency_key: str = ""


class NotAGate(Error):
    """The server is not a gate."""


class Mismatch(Error):
    """A response is for other bytes than the submitted ones."""


class StillWaiting(Error, TimeoutError):
    """No decision within the timeout. The request stays pending: wait for it again, or cancel it."""

    def __init__(self, id: str) -> None:
        super().__init__(f"no response to {id} yet")
        self.id = id


class Refused(Error):
    """The gate refused the request. status is the HTTP status, detail the gate's sentence."""

    def __init__(self, status: int, detail: str, retry_after: float = 0.0) -> None:
        super().__init__(f"the gate returned {status}: {detail}")
        self.status, self.detail, self.retry_after = status, detail, retry_after


class InvalidKey(Refused):
    """The key is unknown, or lacks a scope."""


class Invalid(Refused):
    """The gate will never accept the request as it is."""


class NotFound(Refused):
    """There is no such request, or it is another client's."""


class NotPending(Refused):
    """The request is decided or has ended: too late to cancel."""


class Unavailable(Refused, Unreachable):
    """The gate is busy or degraded."""


class NotApproved(Error):
    """The request has ended without an approval."""

    def __init__(self, decision: Decision) -> None:
        reason = decision.override or decision.feedback or decision.error
        super().__init__(f"{decision.outcome}: {reason}" if reason else decision.outcome)
        self.decision = decision


class Denied(NotApproved):
    """Denied by a person; feedback may have the reason."""


class Rejected(Denied):
    """Refused by the gate or its policy, without asking anyone. The reason is in the message."""


class Malformed(Denied):
    """The gate could not read the request, and never will. The reason is in the message."""


class Expired(NotApproved):
    """No decision in time."""


class Cancelled(NotApproved):
    """Cancelled by its client."""


class Overridden(NotApproved):
    """Code 5: nothing ran. Do what override says, with a new request."""

    @property
    def override(self) -> str:
        return self.decision.override or ""


class MoreWanted(NotApproved):
    """Nothing ran. Answer the question in feedback with a new request and resubmits=decision.id."""

    @property
    def feedback(self) -> str:
        return self.decision.feedback or ""


class Failed(NotApproved):
    """Approved, but failed or interrupted: it may have run completely or in part."""


_REFUSALS: dict[int, type[Refused]] = {401: InvalidKey, 403: InvalidKey, 404: NotFound, 409: NotPending, 410: NotPending}
_ENDS: dict[str, type[NotApproved]] = {
    "expired": Expired, "cancelled": Cancelled, "overridden": Overridden, "request_more": MoreWanted,
    "failed": Failed, "interrupted": Failed, "auto_rejected": Rejected, "malformed": Malformed,
}  # fmt: skip
# Status and execution of each outcome. An unknown outcome is denied.
_STATUSES = {
    "approved": ("approved", "done"), "auto_approved": ("approved", "done"), "failed": ("approved", "failed"),
    "interrupted": ("approved", "interrupted"), "overridden": ("approved", "none"), "answered": ("approved", "none"),
    "expired": ("expired", "none"),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Decision:
    """How a request ended."""

    id: str  # hex digits; by HTTP with the prefix "appr_"
    outcome: str  # approved auto_approved denied auto_rejected expired cancelled request_more overridden answered ...
    status: str  # approved, denied or expired; an overridden request is "approved" too, but nothing ran
    execution: str  # done, failed, interrupted or none
    auto: bool  # no person was asked
    code: Optional[str]  # "1" to "6"
    note: Optional[str]  # for the agent: code 4
    override: Optional[str]  # what to do instead: code 5
    feedback: Optional[str]  # the approver's reason or question
    by: Optional[str]
    via: Optional[str]
    result: Any  # a tool's result; {"answer": ...} for a question
    error: Optional[str]
    receipt: Optional[str]  # the signed note of an approval
    metadata: Any  # the request's, unchanged
    raw: Mapping[str, Any] = dataclasses.field(repr=False)  # the unchanged response

    @property
    def approved(self) -> bool:
        """True only if the action may run, or has run."""
        return self.outcome in ("approved", "auto_approved")

    @property
    def answer(self) -> Optional[str]:
        """The answer to a question."""
        return self.result.get("answer") if self.outcome == "answered" and isinstance(self.result, dict) else None

    def check(self) -> Decision:
        """Return itself if it approves, and raise a NotApproved otherwise."""
        if self.approved:
            return self
        raise _ENDS.get(self.outcome, Denied)(self)


@dataclasses.dataclass(frozen=True)
class Program:
    """How a program ended. A program that needs the results of its calls to go on is asked in several parts."""

    decisions: Sequence[Decision]  # one for each part, in order; at least one

    @property
    def approved(self) -> bool:
        """True only if all parts were approved and main has returned."""
        return all(d.approved for d in self.decisions) and self._last.get("main") == "returned"

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        """The calls of all parts so far, in order: step, tool, status, result, error, receipt."""
        return self._last.get("steps") or []

    @property
    def undo(self) -> Optional[str]:
        """A program that undoes the steps of a part that stopped, as far as their tools have an inverse."""
        return self._last.get("undo")

    def check(self) -> Program:
        """Return itself if no part ended without an approval, and raise a NotApproved otherwise."""
        self.decisions[-1].check()
        return self

    @property
    def _last(self) -> Mapping[str, Any]:
        """The result of the last part that has one."""
        return next((d.result for d in reversed(self.decisions) if isinstance(d.result, dict)), {})


@dataclasses.dataclass(frozen=True)
class Submitted:
    """A submitted request, with the digests that its end must have."""

    id: str
    tool_name: str
    args_sha256: str
    request_sha256: str = ""  # of the bytes in the folder
    program_sha256: str = ""  # of a program; its arguments are not checked


class Gate:
    """A connection to a gate. Missing arguments come from the environment. Safe for threads."""

    def __init__(
        self, url: Optional[str] = None, key: Optional[str] = None, *, requests: Optional[str] = None,
        responses: Optional[str] = None, retry_timeout: float = RETRY_TIMEOUT,
    ) -> None:  # fmt: skip
        if url is None and requests is None and responses is None:
            url = os.environ.get("PERMESSO_URL")
        self._transport: Union[_Http, _Folders]
        if url:
            self._transport = _Http(url, os.environ.get("PERMESSO_KEY", "") if key is None else key, retry_timeout)
        else:
            self._transport = _Folders(
                requests or os.environ.get("PERMESSO_REQUESTS") or "/permesso/requests",
                responses or os.environ.get("PERMESSO_RESPONSES") or "/permesso/responses",
            )

    def submit(
        self, tool_name: str = "", data: Optional[Data] = None, *, timeout: Optional[float] = None,
        idempotency_key: Optional[str] = None, **more: Any,
    ) -> Submitted:  # fmt: skip
        """Submit a request. MORE: action_type (without a tool nothing runs on the host), title, preview, rationale,
        session_id, expires_in_sec, type ("question"), options, resubmits, proof, args_subset, metadata (an object of up to 4 KiB, which
        comes back in the decision); by HTTP also channel and target. Without an answer it is Unreachable after the
        timeout, in seconds, or the gate's retry_timeout. The same idempotency_key (in folders 16 to 64 hex digits, or a UUID) is the same request."""
        _known(more)
        args = _encode({} if data is None else data)
        fields = {"tool_name": tool_name, **more}
        fields = {name: value for name, value in fields.items() if value not in (None, "", (), [])}
        key = idempotency_key or secrets.token_hex(16)
        try:
            return self._transport.submit(fields, args, key, _end(timeout))
        except Unreachable as error:
            error.idempotency_key = key
            raise

    def wait(self, request: Union[Submitted, str], timeout: Optional[float] = None) -> Decision:
        """Return the end of a request, once it has ended. Without a timeout it waits until then."""
        if isinstance(request, str):
            request = Submitted(request, "", "")
        return self._transport.wait(dataclasses.replace(request, id=_plain(request.id)), timeout)

    def request(
        self, tool_name: str = "", data: Optional[Data] = None, *, timeout: Optional[float] = None, **more: Any
    ) -> Decision:
        """Submit a request and wait for its end. The timeout, in seconds, covers both: without an answer of a gate it
        is Unreachable then, without a decision StillWaiting."""
        end = _end(timeout)
        asked = self.submit(tool_name, data, timeout=timeout, **more)
        return self.wait(asked, _left(end))

    def run(self, program: str, *, timeout: Optional[float] = None, **more: Any) -> Program:
        """Submit a program and wait for its end, and go on with it while it needs results. MORE is as in submit, without
        what a tool or a question needs. The timeout covers all parts. With the same idempotency_key, a program that was
        left after a StillWaiting goes on where it was."""
        end = _end(timeout)
        decisions: list[Decision] = []
        while True:
            asked = self.submit(program=program, timeout=_left(end), **more)
            decision = self.wait(asked, _left(end))
            decisions.append(decision)
            result = decision.result if decision.approved and isinstance(decision.result, dict) else {}
            if result.get("main") != "needs":
                return Program(tuple(decisions))
            more = {**more, "continues": asked.id, "idempotency_key": result["next_request_id"], "resubmits": None}

    def cancel(self, request: Union[Submitted, str]) -> None:
        """Cancel a pending request. By HTTP it raises NotPending if that is too late."""
        self._transport.cancel(_plain(request if isinstance(request, str) else request.id))


def _known(options: Mapping[str, Any]) -> None:
    """An option that is not known is an error: without its timeout, a request would wait for hours."""
    for name in options:
        if name not in _FIELDS:
            raise TypeError(f"unknown option {name}" + (": the timeout is timeout, in seconds" if name.startswith("timeout") else ""))


_F = TypeVar("_F", bound=Callable[..., Any])


def needs_approval(
    func: Optional[Callable[..., Any]] = None, *, gate: Optional[Gate] = None, action_type: Optional[str] = None,
    timeout: Optional[float] = None, **more: Any,
) -> Any:  # fmt: skip
    """Make a function, async or not, run only after an approval of each call; otherwise it raises NotApproved.

    The arguments become request_data, so JSON must be able to encode them; self and cls are left out. The
    default action type is custom:NAME; MORE is as in Gate.submit. After the timeout the request is cancelled."""

    _known(more)
    _end(timeout)

    def decorate(f: _F) -> _F:
        signature = inspect.signature(f)
        kind = action_type or "custom:" + re.sub(r"[^A-Za-z0-9_.-]", "_", f.__name__)[:64]

        def arguments(args: Any, kwargs: Any) -> bytes:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return _encode({name: value for name, value in bound.arguments.items() if name not in ("self", "cls")})

        def ask(args: Any, kwargs: Any) -> None:
            shown = arguments(args, kwargs)
            client = gate or Gate()
            end = _end(timeout)
            asked = client.submit("", shown, action_type=kind, timeout=timeout, **more)
            try:
                client.wait(asked, _left(end)).check()
            except (StillWaiting, KeyboardInterrupt):
                try:
                    client.cancel(asked)
                except Error:
                    pass  # it has ended, or will expire
                raise
            if arguments(args, kwargs) != shown:
                raise Mismatch("the arguments changed during the approval")

        @functools.wraps(f)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            ask(args, kwargs)
            return f(*args, **kwargs)

        @functools.wraps(f)
        async def guarded_async(*args: Any, **kwargs: Any) -> Any:
            await asyncio.to_thread(ask, args, kwargs)
            return await f(*args, **kwargs)

        return cast(_F, guarded_async if inspect.iscoroutinefunction(f) else guarded)

    return decorate if func is None else decorate(func)


def submit(tool_name: str = "", data: Optional[Data] = None, **more: Any) -> Submitted:
    """Gate().submit."""
    return Gate().submit(tool_name, data, **more)


def request(tool_name: str = "", data: Optional[Data] = None, **more: Any) -> Decision:
    """Gate().request."""
    return Gate().request(tool_name, data, **more)


def run(program: str, **more: Any) -> Program:
    """Gate().run."""
    return Gate().run(program, **more)


def wait(request: Union[Submitted, str], timeout: Optional[float] = None) -> Decision:
    """Gate().wait."""
    return Gate().wait(request, timeout)


def cancel(request: Union[Submitted, str]) -> None:
    """Gate().cancel."""
    Gate().cancel(request)


def _end(timeout: Optional[float]) -> Optional[float]:
    """When a timeout that begins now is over."""
    if timeout is not None and (not isinstance(timeout, (int, float)) or not timeout >= 0):
        raise TypeError(f"the timeout must be a number of seconds, not {timeout!r}")
    return None if timeout is None else time.monotonic() + timeout


def _left(end: Optional[float]) -> Optional[float]:
    return None if end is None else max(0.0, end - time.monotonic())


def _encode(data: Data) -> bytes:
    if isinstance(data, str):
        data = data.encode()
    if not isinstance(data, bytes):
        data = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    data = data.strip(b" \t\r\n")
    if not data.startswith(b"{"):
        raise ValueError("the arguments must be a JSON object")
    return data


def _plain(id: str) -> str:
    id = id[len(_PREFIX) :] if id.startswith(_PREFIX) else id
    if not re.fullmatch("[0-9a-f]{16,64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", id):
        raise ValueError(f"{id!r} is not a request id: 16 to 64 lower-case hex digits, or a lower-case UUID with its dashes")
    return id


def _body(fields: Mapping[str, Any], args: bytes) -> bytes:
    """A request with the unchanged bytes of its arguments."""
    head = json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()[:-1]
    return head + (b", " if fields else b"") + b'"request_data": ' + args + b"}"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _submitted(id: str, fields: Mapping[str, Any], args: bytes, body: Optional[bytes] = None) -> Submitted:
    """A request, to check its end."""
    sent = "" if body is None else _sha256(body)
    if "program" in fields:
        return Submitted(id, "", "", sent, _sha256(fields["program"].encode()))
    return Submitted(id, fields.get("tool_name", ""), _sha256(args), sent)


def _decision(id: str, outcome: str, raw: Mapping[str, Any], auto: bool) -> Decision:
    decision = raw.get("decision") or {}
    status, execution = _STATUSES.get(outcome, ("denied", "none"))
    return Decision(
        id, outcome, status, execution, auto, decision.get("code"), decision.get("note"), decision.get("override"),
        raw.get("feedback"), decision.get("by"), decision.get("via"), raw.get("result"), raw.get("error"), raw.get("receipt"),
        raw.get("metadata"), raw,
    )  # fmt: skip


class _Http:
    """The gate's HTTP API."""

    def __init__(self, url: str, key: str, retry_timeout: float) -> None:
        if not re.fullmatch("[!-~]{1,249}", key):
            raise ValueError("PERMESSO_KEY must be a key printed by permesso key create")
        parts = urllib.parse.urlsplit(url)
        named = parts.scheme in ("http", "https") and parts.hostname and not parts.username and not parts.password
        if not (named or parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/")) or parts.query:
            raise ValueError("PERMESSO_URL must be http://HOST:PORT, https://HOST or unix:///PATH")
        self._url, self._key, self._retry_timeout = parts, key, retry_timeout
        self._base = "" if parts.scheme == "unix" else parts.path.rstrip("/")

    def __repr__(self) -> str:
        return f"_Http({self._url.geturl()!r})"  # without the key

    def submit(self, fields: Mapping[str, Any], args: bytes, key: str, end: Optional[float]) -> Submitted:
        raw = self._call("POST", "/v1/approvals", _body(fields, args), key, end=end)
        if raw is None:
            raise Unreachable("no gate answered within the timeout: the request may have been accepted")
        asked = _submitted(_plain(raw["approval_id"]), fields, args)
        self._check_matches(asked, raw)
        return asked

    def wait(self, asked: Submitted, timeout: Optional[float]) -> Decision:
        end = _end(timeout)
        while True:
            began = time.monotonic()
            left = _LONG_POLL if end is None else end - began
            if left <= 0:
                raise StillWaiting(asked.id)
            poll = max(1, min(_LONG_POLL, int(left)))
            raw = self._call("GET", f"/v1/approvals/{_PREFIX}{asked.id}?wait={poll}", server_wait=poll, end=end)
            if raw is None:
                raise StillWaiting(asked.id)
            self._check_matches(asked, raw)
            if raw.get("outcome") is not None:
                return _decision(asked.id, raw["outcome"], raw, bool(raw.get("auto")))
            # A gate that is shutting down answers at once every time.
            if time.monotonic() - began < 1:
                time.sleep(1 if end is None else max(0.0, min(1.0, end - time.monotonic())))

    def cancel(self, id: str) -> None:
        path = f"/v1/approvals/{_PREFIX}{id}"
        try:
            self._call("DELETE", path)
        except NotPending:
            # Our own DELETE may have cancelled it, with its response lost. The end takes a moment.
            if self._call("GET", f"{path}?wait={_SETTLE_TIME}", server_wait=_SETTLE_TIME).get("outcome") != "cancelled":
                raise

    @staticmethod
    def _check_matches(asked: Submitted, raw: Mapping[str, Any]) -> None:
        """An approval is valid only for the bytes or the program that its receipt names."""
        if raw.get("approval_id") != _PREFIX + asked.id:
            raise Mismatch("the response is for another request")
        receipt = raw.get("receipt")
        if receipt is None:
            if raw.get("outcome") in ("approved", "auto_approved"):
                raise Mismatch("approved without a receipt")
            return
        facts = dict(line.split(": ", 1) for line in receipt.split("\n\n", 1)[0].split("\n") if ": " in line)
        wrong = facts.get("request_id") != asked.id
        if asked.program_sha256:
            wrong = wrong or facts.get("program_sha256") != asked.program_sha256
        elif asked.args_sha256:
            wrong = wrong or "program_sha256" in facts
            wrong = wrong or facts.get("args_sha256") != asked.args_sha256 or facts.get("tool") != (asked.tool_name or '""')
        if wrong:
            raise Mismatch("the receipt is for another request")

    def _call(
        self, method: str, path: str, body: Optional[bytes] = None, key: str = "", server_wait: float = 0, end: Optional[float] = None
    ) -> Any:
        """Send until the gate answers, or the retry timeout is over. At the end of the caller's time return None."""
        failing, pause = None, 0.25
        while True:
            try:
                return self._send(method, path, body, key, server_wait, end)
            except Unreachable as error:
                now = time.monotonic()
                if end is not None and now >= end:
                    return None
                failing = now if failing is None else failing
                wait = random.uniform(pause / 2, pause * 1.5)
                if isinstance(error, Refused):
                    wait = max(wait, error.retry_after)
                if now - failing + wait > self._retry_timeout:
                    raise
            if end is not None and now + wait >= end:
                time.sleep(max(0.0, end - now))
                return None
            time.sleep(wait)
            pause = min(2 * pause, 10.0)

    def _send(self, method: str, path: str, body: Optional[bytes], key: str, server_wait: float, end: Optional[float]) -> Any:
        headers = {"Authorization": "Bearer " + self._key, "Accept": "application/json", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if key:
            headers["Idempotency-Key"] = key
        timeout = server_wait + 2 * _GRACE
        if end is not None:
            timeout = max(0.05, min(timeout, end - time.monotonic()))
        connection = self._connection(timeout)
        try:
            try:
                connection.request(method, self._base + path, body, headers)
            except (BrokenPipeError, ConnectionResetError):
                pass  # a gate that refuses a body stops reading it, and has sent its response
            answer = connection.getresponse()
            text = answer.read(_MAX_RESPONSE + 1)
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"the gate cannot be reached: {error or type(error).__name__}") from None
        finally:
            connection.close()
        if answer.status >= 400:
            _refuse(answer, text)
        try:
            raw = json.loads(text) if answer.status in (200, 201) and len(text) <= _MAX_RESPONSE else None
        except ValueError:
            raw = None
        if not isinstance(raw, dict) or not isinstance(raw.get("approval_id"), str):
            raise NotAGate(f"the server is not a permesso gate: status {answer.status}, no approval in the response")
        return raw

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if self._url.scheme == "unix":
            return _UnixConnection(self._url.path, timeout)
        host = cast(str, self._url.hostname)
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(host, self._url.port, timeout=timeout)
        return http.client.HTTPConnection(host, self._url.port, timeout=timeout)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _refuse(answer: http.client.HTTPResponse, text: bytes) -> NoReturn:
    detail = answer.reason
    if answer.headers.get_content_type() == "application/problem+json":
        try:
            detail = json.loads(text)["detail"]
        except (ValueError, KeyError, TypeError):
            pass  # text from another server is not repeated
    detail = "".join(c if c.isprintable() else " " for c in str(detail))[:500]
    kind = _REFUSALS.get(answer.status, Invalid)
    if answer.status == 429 or answer.status >= 500:
        kind = Unavailable
    raise kind(answer.status, detail, _retry_after(answer.headers.get("Retry-After", "")))


def _retry_after(text: str) -> float:
    """Both forms of the header; 0: none."""
    if re.fullmatch("[0-9]{1,6}", text):
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0


class _Folders:
    """The two folders that a gate mounts into a container."""

    def __init__(self, requests: str, responses: str) -> None:
        self._requests, self._responses = requests, responses

    def submit(self, fields: Mapping[str, Any], args: bytes, key: str, end: Optional[float]) -> Submitted:
        id = _plain(key)
        body = _body({"request_id": id, **fields}, args)
        self._put(id + ".json", body)
        return _submitted(id, fields, args, body)

    def wait(self, asked: Submitted, timeout: Optional[float]) -> Decision:
        path, end, pause = os.path.join(self._responses, asked.id + ".json"), _end(timeout), 0.01
        while True:
            try:
                with open(path, "rb") as file:
                    raw = json.load(file)
                break
            except (FileNotFoundError, ValueError):  # not there yet, or torn by a power cut and about to be restored
                if end is not None and time.monotonic() >= end:
                    raise StillWaiting(asked.id) from None
            time.sleep(pause if end is None else max(0.0, min(pause, end - time.monotonic())))
            pause = min(1.5 * pause, 0.5)
        if asked.request_sha256 and raw["request_sha256"] != asked.request_sha256:
            raise Mismatch("the response is for another request under this id")
        return _decision(asked.id, raw["status"], raw, bool(raw["decision"]["auto"]))

    def cancel(self, id: str) -> None:
        self._put(id + ".cancel", b"")

    def _put(self, name: str, body: bytes) -> None:
        """Write atomically: under a name with a dot first, then sync and rename."""
        temporary = os.path.join(self._requests, f".{name}.{secrets.token_hex(4)}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileNotFoundError:
            raise Unreachable(f"no gate found: there is no folder {self._requests}. {_HOW}") from None
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)  # independent of the umask: the gate is another user
            file.write(body)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, os.path.join(self._requests, name))


def _main(argv: Optional[Sequence[str]] = None) -> int:
    """Exit codes: 0 done, 1 error, 3 nothing ran, 4 it ran and failed or may have run, 5 no decision in time."""
    parser = argparse.ArgumentParser(prog="python3 -m permesso", description=_main.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    ask = commands.add_parser("request", help="Submit a request, wait, and print the decision as JSON")
    ask.add_argument("tool_name", nargs="?", default="")
    ask.add_argument("--data", help="Arguments, a JSON object")
    ask.add_argument("--metadata", type=json.loads, help="A JSON object that comes back in the decision")
    for name in ("action-type", "title", "preview", "rationale", "session-id", "resubmits", "idempotency-key"):
        ask.add_argument("--" + name)
    ask.add_argument("--expires-in-sec", type=int)
    ask.add_argument("--question", dest="type", action="store_const", const="question")
    ask.add_argument("--option", dest="options", action="append")
    program = commands.add_parser("run", help="Submit a program, wait, and print how it ended as JSON")
    program.add_argument("file", nargs="?", default="-", help="The program; - is standard input")
    for name in ("title", "rationale", "session-id", "resubmits", "idempotency-key"):
        program.add_argument("--" + name)
    late = commands.add_parser("wait", help="Wait for a request, and print the decision as JSON")
    late.add_argument("id")
    for sub in (ask, program, late):
        sub.add_argument("--timeout", type=float, help="Seconds to wait; the request stays pending")
    commands.add_parser("cancel", help="Cancel a pending request").add_argument("id")
    given = vars(parser.parse_args(argv))
    command = given.pop("command")
    try:
        gate = Gate()
        if command == "cancel":
            gate.cancel(given["id"])
            return 0
        if command == "run":
            return _print_program(gate.run(_source(given.pop("file")), **given))
        decision = gate.request(**given) if command == "request" else gate.wait(**{"request": given["id"], "timeout": given["timeout"]})
    except StillWaiting as error:
        print(f"permesso: {error}", file=sys.stderr)
        return 5
    except (Error, OSError, ValueError) as error:
        print(f"permesso: {error}", file=sys.stderr)
        return 3 if isinstance(error, (Invalid, Mismatch)) else 1
    print(json.dumps(_members(decision), ensure_ascii=False))
    return _code(decision)


def _source(file: str) -> str:
    """A program, with its line ends as they are."""
    if file == "-":
        return sys.stdin.buffer.read().decode()
    with open(file, "rb") as source:
        return source.read().decode()


def _print_program(program: Program) -> int:
    over = {"approved": program.approved, "steps": program.steps, "undo": program.undo}
    print(json.dumps({**over, "decisions": [_members(d) for d in program.decisions]}, ensure_ascii=False))
    return _code(program.decisions[-1])


def _members(decision: Decision) -> dict[str, Any]:
    return {f.name: getattr(decision, f.name) for f in dataclasses.fields(decision) if f.name != "raw"}


def _code(decision: Decision) -> int:
    if decision.approved or decision.outcome == "answered":
        return 0
    return 4 if decision.outcome in ("failed", "interrupted") else 3


if __name__ == "__main__":
    sys.exit(_main())
