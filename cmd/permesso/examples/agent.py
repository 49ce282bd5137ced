#!/usr/bin/env python3
"""A custom agent that requests approval before it acts. It needs only Python's standard library.

    agent.py TOOL [NAME=VALUE ...]

Copy the class Gate into your agent; main() shows how to handle every status.
Exit codes: 0 done, 1 no response to this request, 2 usage, 3 nothing ran, 4 it ran and failed or may have run, 5 timeout,
130 cancelled by Ctrl-C.
"""

import hashlib
import json
import os
import secrets
import sys
import time


class Gate:
    """The agent's two folders."""

    def __init__(self):
        self.requests = os.environ.get("PERMESSO_REQUESTS", "/permesso/requests")
        self.responses = os.environ.get("PERMESSO_RESPONSES", "/permesso/responses")

    def submit(self, tool, data, **more):
        """Write a request and return its id and its bytes. MORE: title, rationale, resubmits ..."""
        # Random: people type its first eight digits. 16 to 64 lower-case hex digits, or a UUID.
        request_id = secrets.token_hex(16)
        request = {"request_id": request_id, "tool_name": tool, "request_data": data, **more}
        body = json.dumps(request, ensure_ascii=False, allow_nan=False).encode("utf-8")
        self._put(request_id + ".json", body)
        return request_id, body

    def cancel(self, request_id):
        """Cancel a pending request; its status becomes "cancelled"."""
        self._put(request_id + ".cancel", b"")

    def wait(self, request_id, body, timeout):
        """Return the response as a dictionary. Every accepted request gets one."""
        path = os.path.join(self.responses, request_id + ".json")
        end = time.monotonic() + timeout
        while True:
            try:
                with open(path, "rb") as file:
                    response = json.load(file)
                break
            except (FileNotFoundError, ValueError):
                # Not written yet, or torn by a power cut and about to be restored.
                if time.monotonic() > end:
                    raise TimeoutError(f"timeout waiting for the response to {request_id}") from None
                time.sleep(0.1)
        if response.get("request_sha256") != hashlib.sha256(body).hexdigest():
            raise RuntimeError("the response is for another request under this id")
        return response

    def _put(self, name, body):
        """Write atomically: to a dot-name first, then rename."""
        temporary = os.path.join(self.requests, f".{name}.{secrets.token_hex(4)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)  # independent of the umask: the daemon is another user
            file.write(body)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, os.path.join(self.requests, name))


def main():
    if len(sys.argv) < 2 or not all("=" in arg for arg in sys.argv[2:]):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    tool, data = sys.argv[1], dict(arg.split("=", 1) for arg in sys.argv[2:])
    try:
        timeout = float(os.environ.get("AGENT_TIMEOUT", "600"))
    except ValueError as wrong:
        print(f"AGENT_TIMEOUT: not a number of seconds: {wrong}", file=sys.stderr)
        sys.exit(2)

    gate = Gate()
    request_id, body = gate.submit(tool, data, rationale="the user of this agent wants it")
    print(f"submitted request {request_id}", file=sys.stderr)
    try:
        response = gate.wait(request_id, body, timeout)
    except KeyboardInterrupt:
        gate.cancel(request_id)
        sys.exit(130)
    except TimeoutError as late:
        # The request stays pending. Wait for the same id: a new request could run twice.
        print(late, file=sys.stderr)
        sys.exit(5)

    status, decision = response.get("status", ""), response["decision"]
    print(status)
    if decision["note"]:
        print("note:", decision["note"])
    if status in ("approved", "auto_approved", "answered"):
        print("result:", json.dumps(response["result"], ensure_ascii=False))
        return
    if status == "overridden":
        # Nothing ran. A real agent gives this to its model and submits again with resubmits=request_id.
        print("do instead:", decision["override"])
    elif status == "request_more":
        # Nothing ran. Answer the question by a new request with resubmits=request_id, or give up.
        print("question:", response["feedback"])
    else:
        print("error:", response["error"])
    # "failed" may be partly done, "interrupted" may be done: check before you submit again. So after a status that
    # this agent does not know.
    nothing_ran = ("denied", "auto_rejected", "expired", "cancelled", "overridden", "request_more", "malformed")
    sys.exit(3 if status in nothing_ran else 4)


if __name__ == "__main__":
    main()
