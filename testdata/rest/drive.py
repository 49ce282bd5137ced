"""Runs scenarios.json with the Python client: drive.py SCENARIOS [NAME ...]. See README."""

import concurrent.futures
import json
import os
import sys
import time

import permesso

KINDS = {
    permesso.InvalidKey: "invalid_key", permesso.Invalid: "invalid", permesso.NotFound: "not_found",
    permesso.NotPending: "not_pending", permesso.Unreachable: "unreachable", permesso.NotAGate: "not_a_gate",
    permesso.Mismatch: "mismatch", permesso.StillWaiting: "still_waiting", permesso.Denied: "denied",
    permesso.Expired: "expired", permesso.Cancelled: "cancelled", permesso.Overridden: "overridden",
    permesso.MoreWanted: "more_wanted", permesso.Failed: "failed", permesso.Rejected: "rejected", permesso.Malformed: "malformed",
}  # fmt: skip


def result_of(decision):
    d = {name: getattr(decision, name) for name in ("outcome", "auto", "code", "note", "override", "feedback", "by", "via", "error", "metadata")}
    d["result"] = json.dumps(decision.result, ensure_ascii=False, separators=(",", ":"))
    return {"decision": d}


def fields_of(s):
    fields = dict(s.get("request", {}))
    fields.setdefault("session_id", s["name"])
    data = fields.pop("data", "{}")
    if "pad" in s:
        data = data.replace('""', '"' + "x" * s["pad"] + '"')
    return fields.pop("tool_name", ""), data, fields


def run_scenario(s):
    gate = permesso.Gate(key=s["key"]) if "key" in s else permesso.Gate()
    assert os.environ.get("PERMESSO_KEY", "permesso_") not in repr(vars(gate))
    tool, data, fields = fields_of(s)
    timeout = s.get("timeout")
    if s["do"] == "request":
        return result_of(gate.request(tool, data, timeout=timeout, **fields))
    if s["do"] == "run":
        program = gate.run(timeout=timeout, **fields)
        assert program.steps == ((program.decisions[-1].result or {}).get("steps") or []) and program.undo is None
        return {"parts": len(program.decisions), "same": program.approved, **result_of(program.decisions[-1])}
    if s["do"] == "cancel":
        asked = gate.submit(tool, data, **fields)
        gate.cancel(asked)
        if os.environ.get("PERMESSO_URL"):
            gate.cancel(asked.id)
        return result_of(gate.wait("appr_" + asked.id))
    if s["do"] == "late":
        asked = gate.submit(tool, data, **fields)
        gate.wait(asked)
        gate.cancel(asked)
    if s["do"] == "again":
        first = gate.submit(tool, data, idempotency_key="again", **fields)
        same = gate.submit(tool, data, idempotency_key="again", **fields).id == first.id
        try:
            gate.submit(tool, '{"a":2}', idempotency_key="again", **fields)
        except permesso.Refused as error:
            return {"same": same, "error": KINDS[type(error)], "status": error.status}
    if s["do"] == "foreign":
        try:
            gate.cancel(os.environ["FOREIGN"])
        except permesso.NotFound:
            gate.wait(os.environ["FOREIGN"])
    if s["do"] == "no_gate":
        retry = {} if timeout else {"retry_timeout": 0.3}
        try:
            permesso.Gate("http://127.0.0.1:9", "permesso_x", **retry).request(tool, data, timeout=timeout)
        except permesso.Unreachable as error:
            assert len(error.idempotency_key) == 32
            raise
    if s["do"] == "mutate":
        return guard(s, MutatingGate(), fields, timeout)
    if s["do"] == "guard":
        return guard(s, gate, fields, timeout)
    raise AssertionError("unexpected result of " + s["do"])


class MutatingGate(permesso.Gate):
    """Changes an argument after it was shown."""

    def submit(self, *args, **more):
        asked = super().submit(*args, **more)
        self.changes.append("more")
        return asked


def guard(s, gate, fields, timeout):
    ran = []

    @permesso.needs_approval(gate=gate, timeout=timeout, **fields)
    def guarded(path, n=None, flag=None, list=()):
        ran.append([path, n, flag, list])
        return "value"

    args = dict(s["args"])
    if s["do"] == "mutate":
        args["list"] = []
        gate.changes = args["list"]
    try:
        assert guarded(**args) == "value"
        assert ran == [[args["path"], args["n"], args["flag"], args["list"]]]
    except permesso.Error as error:
        return {"ran": len(ran), "error": KINDS[type(error)]}
    return {"ran": len(ran)}


def run(s):
    began = time.monotonic()
    try:
        got = run_scenario(s)
    except permesso.Error as error:
        assert os.environ.get("PERMESSO_KEY", "permesso_") not in str(error)
        kind = next(KINDS[k] for k in type(error).__mro__ if k in KINDS)
        got = {"error": kind, "status": getattr(error, "status", 0)}
    except Exception as error:
        got = {"error": repr(error)}
    return json.dumps({"name": s["name"], "took": time.monotonic() - began, **got})


with open(sys.argv[1], encoding="utf-8") as file:
    todo = [s for s in json.load(file) if s["name"] in sys.argv[2:]]
with concurrent.futures.ThreadPoolExecutor(len(todo)) as pool:
    print(*pool.map(run, todo), sep="\n")
