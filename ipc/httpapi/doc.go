// Package httpapi is the door for agents that cannot share a folder: HTTP with
// JSON, on the loopback or a Unix socket. It is another writer of requests and
// reader of responses and records, and nothing more: it keeps no state of its
// own, and decides nothing.
//
// # Keys
//
// Every request but the few that say nothing (/healthz, /readyz, /openapi.json)
// carries a key: Authorization: Bearer KEY. The gate keeps only the key's hash,
// finds the key by it, and reads it anew for every request, so that a key that
// was revoked a moment ago opens nothing. What a key may do are its scopes; one
// that may request can never decide.
//
// A client is its key: the client id is the beginning of the key's hash. A key
// with the scope request sees what it asked itself; to it the requests of others
// do not exist. A key without that scope sees its whole workspace.
//
// # What a browser could do
//
// Nothing here is for browsers. A Host that is not ours is refused, which ends
// DNS rebinding; so is every request that a page of another origin, or of none,
// makes a browser send; no header ever invites one; and a body must be called
// application/json.
//
// # Waiting
//
// GET /v1/approvals/{id}?wait=30 answers as soon as the response is there. It is
// woken by the gate, not by a timer. GET /v1/events follows the audit log: its
// event ids are the log's numbers, so that a client that was cut off goes on where
// it was.
//
// # Errors
//
// Errors are problem details (RFC 9457) whose detail is a sentence. They never
// quote a body.
package httpapi
