// Package httpapi is the HTTP API for agents that cannot share a folder: JSON, on
// the loopback interface or a Unix socket. It only writes requests and reads
// responses and records. It keeps no state and decides nothing.
//
// # Keys
//
// Every request needs a key: Authorization: Bearer KEY. Exceptions are /healthz,
// /readyz and /openapi.json, which reveal nothing. The gate stores only the key's
// hash, finds the key by it, and reads it for every request, so that a revoked
// key is refused at once. A key's scopes say what it may do; a key that may
// request can never decide.
//
// A client is its key: the client id is the beginning of the key's hash. A key
// with the scope request sees only its own requests; others are not found. A key
// without that scope sees its whole workspace.
//
// # Local callers
//
// A LocalServer serves the same API on a Unix socket to users of this machine. The UID
// that the kernel reports (SO_PEERCRED) identifies the caller, instead of a key. A UID that
// is not known is refused as soon as it connects, unread; so is a process in a nested user
// or process namespace, as far as the kernel shows that, because a sandboxed agent has the
// UID of the user who started it. The connections of one UID are limited.
//
// LocalOperations are only for local callers, at /v1/local. The other operations are the
// operator's: with the header Permesso-Workspace instead of a key's workspace.
//
// # Browsers
//
// Browser requests are refused. A Host that is not configured is refused, against
// DNS rebinding. A request from a page of any origin is refused. No CORS header is
// ever sent. A body must have the type application/json.
//
// # Waiting
//
// GET /v1/approvals/{id}?wait=30 answers as soon as the response exists. The gate
// wakes it, not a timer. GET /v1/events follows the audit log: its event ids are
// the log's sequence numbers, so that a disconnected client can continue.
//
// # Errors
//
// Errors are problem details (RFC 9457) whose detail is a sentence. They never
// quote a body.
package httpapi
