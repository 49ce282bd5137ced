"""An agent of an earlier gate, over files: agent.py REQUESTS RESPONSES hex|uuid TYPE SOURCE_GROUP TEXT.

It prints the id, then the response that it has polled for."""

import json
import os
import sys
import time
import uuid

requests, responses, form, kind, group, text = sys.argv[1:]
request_id = uuid.uuid4().hex if form == "hex" else str(uuid.uuid4())
print(request_id, flush=True)
request = {"type": kind, "request_id": request_id, "source_group": group, "text": text}
temp = os.path.join(requests, request_id + ".tmp")
with open(temp, "w") as f:
    json.dump(request, f)
os.rename(temp, os.path.join(requests, request_id + ".json"))

answer = os.path.join(responses, request_id + ".json")
until = time.time() + 300
while time.time() < until:
    if os.path.exists(answer):
        with open(answer) as f:
            response = json.load(f)
        print("error: " + response["error"] if response.get("error") else "result: " + json.dumps(response["result"]))
        sys.exit(0)
    time.sleep(0.5)
sys.exit("no response")
