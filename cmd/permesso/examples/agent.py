#!/usr/bin/env python3
"""A home-grown agent that asks before it acts. Python's standard library is all it needs.

    agent.py TOOL [NAME=VALUE ...]

Copy the class Gate into an agent of yours; main() shows what to make of every answer.
Exit codes: 0 done, 3 nothing ran, 4 it ran and failed or may have run, 5 no answer in time.
"""

import hashlib
import json
import os
import secrets
import sys
import time


class Gate:
    """The two folders that the gate has given us."""

    def __init__(self):
        self.requests = os.environ.get("PERMESSO_REQUESTS", "/permesso/requests")
        self.responses = os.environ.get("PERMESSO_RESPONSES", "/permesso/responses")

    def submit(self, tool, data, **more):
        """Write a request and return its id and its bytes. MORE: title, rationale, resubmits ..."""
        # Random, because its first eight digits must be free; 16 to 64 lower-case hex digits.
        request_id = secrets.token_hex(16)
        request = {"request_id": request_id, "tool_name": tool, "request_data": data, **more}
        body = json.dumps(request, ensure_ascii=False, allow_nan=False).encode("utf-8")
        self._put(request_id + ".json", body)
        return request_id, body

    def cancel(self, request_id):
        """Drop a request that nobody has decided yet; the answer then says "cancelled"."""
        self._put(request_id + ".cancel", b"")

    def wait(self, request_id, body, timeout):
        """Return the response as a dictionary. The gate answers every request that it has taken in."""
        path = os.path.join(self.responses, request_id + ".json")
        end = time.monotonic() + timeout
        while True:
            try:
                with open(path, "rb") as file:
                    response = json.load(file)
                break
            except (FileNotFoundError, json.JSONDecodeError):
                # Not there yet; or torn by a power cut, and about to be restored.
                if time.monotonic() > end:
                    raise TimeoutError(f"no response to {request_id} yet") from None
                time.sleep(0.1)
        if response["request_sha256"] != hashlib.sha256(body).hexdigest():
            raise RuntimeError("the response is for another request under this id")
        return response

    def _put(self, name, body):
        """Whole or not at all: under a dot-name first, and renamed when it is on disk."""
        temporary = os.path.join(self.requests, f".{name}.{secrets.token_hex(4)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)  # whatever the umask says: the gate is another user
            file.write(body)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, os.path.join(self.requests, name))


def main():
    if len(sys.argv) < 2 or not all("=" in arg for arg in sys.argv[2:]):
        sys.exit(__doc__)
    tool, data = sys.argv[1], dict(arg.split("=", 1) for arg in sys.argv[2:])
    timeout = float(os.environ.get("AGENT_TIMEOUT", "600"))

    gate = Gate()
    request_id, body = gate.submit(tool, data, rationale="the user of this agent wants it")
    print(f"asked, request {request_id}", file=sys.stderr)
    try:
        response = gate.wait(request_id, body, timeout)
    except KeyboardInterrupt:
        gate.cancel(request_id)
        sys.exit(130)
    except TimeoutError as late:
        # The request stays. Wait again under the same id: asking anew could do it twice.
        print(late, file=sys.stderr)
        sys.exit(5)

    status, decision = response["status"], response["decision"]
    print(status)
    if decision["note"]:
        print("note:", decision["note"])
    if status in ("approved", "auto_approved", "answered"):
        print("result:", json.dumps(response["result"], ensure_ascii=False))
        return
    if status == "overridden":
        # Nothing ran. A real agent gives this to its model, and asks again with resubmits=request_id.
        print("do instead:", decision["override"])
    elif status == "request_more":
        # Nothing ran. Answer from facts, or drop it; the answer is a new request with resubmits=request_id.
        print("they want to know:", response["feedback"])
    else:
        print("why:", response["error"])
    # "failed" may be half done and "interrupted" may be done: look before asking for it again.
    sys.exit(4 if status in ("failed", "interrupted") else 3)


if __name__ == "__main__":
    main()
