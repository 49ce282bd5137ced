"""Tests of the Python client that need no gate. It prints nothing on success."""

import ast
import asyncio
import contextlib
import io
import json
import os
import shutil
import tempfile
import threading
import time

import permesso

with open(permesso.__file__, encoding="utf-8") as file:
    ast.parse(file.read(), feature_version=(3, 9))


def raises(kind, call, *args, **more):
    try:
        call(*args, **more)
    except kind as error:
        assert "hunter2" not in str(error) and "hunter2" not in repr(error), error
        return error
    raise AssertionError(f"{kind.__name__} expected for {args} {more}")


for url in ("ftp://x", "http://hunter2:pw@x", "http://a:hunter2@x", "unix://host/p", "nonsense", "", "http://", "http://h/?hunter2"):
    raises(ValueError, permesso.Gate, url or "x", "permesso_x")
for key in ("", "two words", "new\nline", "hunter2ü", "x" * 300):
    raises(ValueError, permesso.Gate, "http://127.0.0.1:1", key)
secret = permesso.Gate("http://127.0.0.1:1", "hunter2", retry_timeout=0)
assert "hunter2" not in repr(secret) + repr(secret._transport)
raises(permesso.Unreachable, secret.request, "x")

# Data that JSON cannot encode is not submitted.
for data in ({"a": float("nan")}, {"a": object()}, {"a": {1, 2}}, {(1,): 2}):
    raises((TypeError, ValueError), secret.submit, "x", data)
for data in ("[1]", "", b"null"):
    raises(ValueError, secret.submit, "x", data)


gates = []
stop = threading.Event()


class FakeGate:
    """A fake gate: its folders, and a thread that answers every request."""

    def __init__(self, status="approved", **more):
        self.dir = tempfile.mkdtemp()
        self.gate = permesso.Gate(requests=self.dir, responses=self.dir + "/r")
        os.mkdir(self.dir + "/r")
        self.status, self.more, self.asked, self.cancelled, self.results = status, more, [], 0, []
        self.thread = threading.Thread(target=self.answer)
        self.thread.start()
        gates.append(self)

    def answer(self):
        seen = set()
        while not stop.wait(0.005):
            for name in sorted(os.listdir(self.dir)):
                if name in seen or name == "r" or name.startswith("."):
                    continue
                seen.add(name)
                self.cancelled += name.endswith(".cancel")
                with open(f"{self.dir}/{name}", "rb") as file:
                    body = file.read()
                if not body or self.status is None:
                    continue
                self.asked.append(json.loads(body))
                mode = os.stat(f"{self.dir}/{name}").st_mode & 0o777
                assert mode == 0o644, oct(mode)
                decision = {"code": None, "note": None, "override": None, "by": "x", "via": "y", "auto": False}
                decision.update(self.more)
                response = {"status": self.status, "request_sha256": permesso._sha256(body), "decision": decision, "result": None}
                response.update({k: v for k, v in self.more.items() if k in response})
                if self.results:
                    response["result"] = self.results.pop(0)
                with open(f"{self.dir}/r/.{name}", "w") as file:
                    json.dump(response, file)
                os.rename(f"{self.dir}/r/.{name}", f"{self.dir}/r/{name}")


os.umask(0o077)  # agents may have a strict umask, and the gate is another user


def main():
    yes = FakeGate()


    class Thing:
        @permesso.needs_approval(gate=yes.gate, title="t", args_subset=["rest"])
        def method(self, a, *rest, b=2, **more):
            return [a, rest, b, more]

        @permesso.needs_approval(gate=yes.gate, action_type="exec_cmd")
        async def later(self, a):
            return a


    assert Thing().method("ü", 3, c=4) == ["ü", (3,), 2, {"c": 4}]
    asked = yes.asked[-1]
    assert asked["request_data"] == {"a": "ü", "rest": [3], "b": 2, "more": {"c": 4}}, asked
    assert asked["action_type"] == "custom:method" and asked["title"] == "t" and asked["args_subset"] == ["rest"] and "tool_name" not in asked, asked
    assert asyncio.run(Thing().later(2**53 + 1)) == 2**53 + 1
    assert yes.asked[-1]["request_data"] == {"a": 2**53 + 1} and yes.asked[-1]["action_type"] == "exec_cmd"
    assert Thing.method.__name__ == "method"
    raises(TypeError, Thing().method)  # as the function itself raises
    raises(TypeError, Thing().method, object())

    for status, kind in (
        ("denied", permesso.Denied), ("auto_rejected", permesso.Rejected), ("malformed", permesso.Malformed), ("answered", permesso.Denied),
        ("expired", permesso.Expired), ("cancelled", permesso.Cancelled), ("overridden", permesso.Overridden),
        ("request_more", permesso.MoreWanted), ("failed", permesso.Failed), ("interrupted", permesso.Failed),
        ("perhaps", permesso.Denied), ("APPROVED", permesso.Denied), ("", permesso.Denied),
    ):  # fmt: skip
        no, ran = FakeGate(status, override="do that"), []
        error = raises(kind, permesso.needs_approval(ran.append, gate=no.gate, action_type="custom:x"), 1)
        assert not ran and type(error) is kind and error.decision.outcome == status
        assert status != "overridden" or error.override == "do that"

    silent = FakeGate(None)
    raises(permesso.StillWaiting, permesso.needs_approval(lambda a: a, gate=silent.gate, action_type="custom:x", timeout=0.05), 1)
    end = time.monotonic() + 60
    while not silent.cancelled and time.monotonic() < end:
        time.sleep(0.005)
    assert silent.cancelled == 1

    # Nothing listens there: the function's timeout ends also the retries of what submits the request.
    nowhere, began = permesso.Gate("http://127.0.0.1:9", "permesso_x"), time.monotonic()
    raises(permesso.Unreachable, permesso.needs_approval(lambda a: a, gate=nowhere, action_type="custom:x", timeout=0.05), 1)
    assert time.monotonic() - began < 30, "long before its own end of retries"
    # What is not an option is said, and where no gate is, how to name one.
    for ask in (lambda: yes.gate.submit("x", {}, timeout_ms=5), lambda: permesso.needs_approval(print, action_type="custom:x", timeout_ms=5)):
        assert str(raises(TypeError, ask)) == "unknown option timeout_ms: the timeout is timeout, in seconds"
    for timeout in ("3", float("nan"), -1):
        for ask in (
            lambda: yes.gate.submit("x", {}, timeout=timeout), lambda: yes.gate.request("x", {}, timeout=timeout),
            lambda: yes.gate.wait("0" * 16, timeout), lambda: permesso.needs_approval(print, action_type="custom:x", timeout=timeout),
        ):  # fmt: skip
            assert str(raises(TypeError, ask)) == f"the timeout must be a number of seconds, not {timeout!r}"
    none = permesso.Gate(requests="/nowhere/requests", responses="/nowhere/responses")
    assert str(raises(permesso.Unreachable, none.request, "x")).startswith("no gate found: there is no folder /nowhere/requests. Set PERMESSO_URL")
    raises(permesso.Unreachable, none.cancel, "0" * 16)
    raises(permesso.Mismatch, FakeGate(request_sha256="0" * 64).gate.request, "x")

    # The command line.
    os.environ.pop("PERMESSO_URL", None)


    def run_cli(fake, *args):
        os.environ.update(PERMESSO_REQUESTS=fake.dir, PERMESSO_RESPONSES=fake.dir + "/r")
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = permesso._main(args)
        return code, out.getvalue(), err.getvalue()


    code, out, err = run_cli(yes, "request", "say", "--data", '{"a":1}', "--title", "t", "--timeout", "60")
    assert (code, err) == (0, "") and json.loads(out)["outcome"] == "approved", (code, out, err)
    assert yes.asked[-1]["tool_name"] == "say" and yes.asked[-1]["request_data"] == {"a": 1}
    # A program goes on under the id that its first part names, and its last part has all steps.
    source, parts = "def main():\r\n    tools.say()\r\n", FakeGate()
    parts.results = [{"main": "needs", "steps": [1], "next_request_id": "f" * 16}, {"main": "returned", "steps": [1, 2], "undo": "def main(): pass"}]
    with open(parts.dir + "/r/.program", "w", newline="") as file:
        file.write(source)

    code, out, err = run_cli(parts, "run", parts.dir + "/r/.program", "--title", "t", "--resubmits", "e" * 16, "--timeout", "60")
    over = json.loads(out)
    assert (code, err, over["approved"], over["steps"], over["undo"], len(over["decisions"])) == (0, "", True, [1, 2], "def main(): pass", 2), (code, out, err)
    first, second = parts.asked
    assert first["program"] == second["program"] == source and "continues" not in first and first["resubmits"] == "e" * 16, first
    assert second["continues"] == first["request_id"] and second["request_id"] == "f" * 16 and second["title"] == "t", second
    assert "resubmits" not in second and "tool_name" not in second, second
    for status, code in (("denied", 3), ("auto_rejected", 3), ("interrupted", 4)):
        no = FakeGate(status)
        assert run_cli(no, "run", parts.dir + "/r/.program", "--timeout", "60")[0] == code
        program = no.gate.run(source)
        assert not program.approved and program.steps == [] and program.undo is None
        raises(permesso.NotApproved, program.check)
    assert run_cli(yes, "run", "/nowhere")[0] == 1

    code, out, err = run_cli(silent, "request", "--action-type", "exec_cmd", "--timeout", "0.05")
    assert code == 5 and out == "" and err.startswith("permesso: no response to "), (code, out, err)
    assert run_cli(silent, "cancel", "0123456789abcdef") == (0, "", "")
    assert run_cli(silent, "wait", "nonsense")[0] == 1
    assert run_cli(FakeGate("denied"), "request", "x", "--timeout", "60")[0] == 3
    assert run_cli(FakeGate("failed"), "request", "x", "--timeout", "60")[0] == 4


try:
    main()
finally:
    stop.set()
    for fake in gates:
        fake.thread.join()
        shutil.rmtree(fake.dir)
