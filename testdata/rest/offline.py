"""What the Python client does without a gate. It says nothing where all is well."""

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


def refuses(kind, call, *args, **more):
    try:
        call(*args, **more)
    except kind as why:
        assert "hunter2" not in str(why) and "hunter2" not in repr(why), why
        return why
    raise AssertionError(f"{kind.__name__} was to come of {args} {more}")


for url in ("ftp://x", "http://hunter2:pw@x", "http://a:hunter2@x", "unix://host/p", "nonsense", "", "http://", "http://h/?hunter2"):
    refuses(ValueError, permesso.Gate, url or "x", "permesso_x")
for key in ("", "two words", "new\nline", "hunter2ü", "x" * 300):
    refuses(ValueError, permesso.Gate, "http://127.0.0.1:1", key)
secret = permesso.Gate("http://127.0.0.1:1", "hunter2", patience=0)
assert "hunter2" not in repr(secret) + repr(secret._way)
refuses(permesso.Unreachable, secret.request, "x")

# What JSON cannot say is not asked for.
for data in ({"a": float("nan")}, {"a": object()}, {"a": {1, 2}}, {(1,): 2}):
    refuses((TypeError, ValueError), secret.submit, "x", data)
for data in ("[1]", "", b"null"):
    refuses(ValueError, secret.submit, "x", data)


places = []
over = threading.Event()


class Answering:
    """A gate's folders, and a gate that answers what comes in."""

    def __init__(self, status="approved", **more):
        self.dir = tempfile.mkdtemp()
        self.gate = permesso.Gate(requests=self.dir, responses=self.dir + "/r")
        os.mkdir(self.dir + "/r")
        self.status, self.more, self.asked, self.cancelled = status, more, [], 0
        self.thread = threading.Thread(target=self.answer)
        self.thread.start()
        places.append(self)

    def answer(self):
        seen = set()
        while not over.wait(0.005):
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
                with open(f"{self.dir}/r/.{name}", "w") as file:
                    json.dump(response, file)
                os.rename(f"{self.dir}/r/.{name}", f"{self.dir}/r/{name}")


os.umask(0o077)  # agents are careful, and the gate is another user


def main():
    yes = Answering()


    class Thing:
        @permesso.needs_approval(gate=yes.gate, title="t")
        def method(self, a, *rest, b=2, **more):
            return [a, rest, b, more]

        @permesso.needs_approval(gate=yes.gate, action_type="exec_cmd")
        async def later(self, a):
            return a


    assert Thing().method("ü", 3, c=4) == ["ü", (3,), 2, {"c": 4}]
    asked = yes.asked[-1]
    assert asked["request_data"] == {"a": "ü", "rest": [3], "b": 2, "more": {"c": 4}}, asked
    assert asked["action_type"] == "custom:method" and asked["title"] == "t" and "tool_name" not in asked, asked
    assert asyncio.run(Thing().later(2**53 + 1)) == 2**53 + 1
    assert yes.asked[-1]["request_data"] == {"a": 2**53 + 1} and yes.asked[-1]["action_type"] == "exec_cmd"
    assert Thing.method.__name__ == "method"
    refuses(TypeError, Thing().method)  # as the function itself would
    refuses(TypeError, Thing().method, object())

    for status, kind in (
        ("denied", permesso.Denied), ("auto_rejected", permesso.Denied), ("malformed", permesso.Denied), ("answered", permesso.Denied),
        ("expired", permesso.Expired), ("cancelled", permesso.Cancelled), ("overridden", permesso.Overridden),
        ("request_more", permesso.MoreWanted), ("failed", permesso.Failed), ("interrupted", permesso.Failed),
        ("perhaps", permesso.Denied), ("APPROVED", permesso.Denied), ("", permesso.Denied),
    ):  # fmt: skip
        no, ran = Answering(status, override="do that"), []
        why = refuses(kind, permesso.needs_approval(ran.append, gate=no.gate, action_type="custom:x"), 1)
        assert not ran and type(why) is kind and why.decision.outcome == status
        assert status != "overridden" or why.override == "do that"

    silent = Answering(None)
    refuses(permesso.StillWaiting, permesso.needs_approval(lambda a: a, gate=silent.gate, action_type="custom:x", timeout=0.05), 1)
    end = time.monotonic() + 60
    while not silent.cancelled and time.monotonic() < end:
        time.sleep(0.005)
    assert silent.cancelled == 1
    refuses(permesso.Mismatch, Answering(request_sha256="0" * 64).gate.request, "x")

    # The command line.
    os.environ.pop("PERMESSO_URL", None)


    def typed(place, *args):
        os.environ.update(PERMESSO_REQUESTS=place.dir, PERMESSO_RESPONSES=place.dir + "/r")
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = permesso._main(args)
        return code, out.getvalue(), err.getvalue()


    code, out, err = typed(yes, "request", "say", "--data", '{"a":1}', "--title", "t", "--timeout", "60")
    assert (code, err) == (0, "") and json.loads(out)["outcome"] == "approved", (code, out, err)
    assert yes.asked[-1]["tool_name"] == "say" and yes.asked[-1]["request_data"] == {"a": 1}
    code, out, err = typed(silent, "request", "--action-type", "exec_cmd", "--timeout", "0.05")
    assert code == 5 and out == "" and err.startswith("permesso: no response to "), (code, out, err)
    assert typed(silent, "cancel", "0123456789abcdef") == (0, "", "")
    assert typed(silent, "wait", "nonsense")[0] == 1
    assert typed(Answering("denied"), "request", "x", "--timeout", "60")[0] == 3
    assert typed(Answering("failed"), "request", "x", "--timeout", "60")[0] == 4


try:
    main()
finally:
    over.set()
    for place in places:
        place.thread.join()
        shutil.rmtree(place.dir)
