// Package mcp is a server of the Model Context Protocol (modelcontextprotocol.io) in front of the gate: an agent asks for
// an approval, waits for it, has a host tool executed or a person asked. It speaks the revisions 2025-11-25 and 2026-07-28,
// on standard input and output, and by HTTP, where each request stands alone.
//
// # Waiting
//
// A person may take longer than a client waits. What a call asked is kept in a Book, and a call is held for a while with
// progress. If there is no end by then, the client gets, the best that it knows:
//
//	a task           where it declares the extension io.modelcontextprotocol/tasks: the task is the request, its handle
//	                 is good for this client only, also after a restart and in another process
//	requestState     where it speaks 2026-07-28: the retry goes on waiting. Two such rounds at most, because clients give
//	                 up on rounds without a question
//	an error         in all other cases: "waiting for a person, request a7f3b2c1; call again with the same arguments"
//
// The same call of the same client joins the request that waits, or one that has ended within 24 hours and whose end no
// caller has received. So no one is asked twice about a call, and it does not run twice. The same call after that is a new
// one. A cancelled call cancels its request, unless another caller waits for it; the end of a connection cancels nothing.
//
// # What a result says
//
// The result of a call that the gate has judged has these members in _meta. Other gateways may use them, too:
//
//	dev.permesso/request   the id of the request
//	dev.permesso/decision  {"status":…,"auto":…,"code":…,"by":…,"via":…}: how it ended, and who has decided it
//	dev.permesso/receipt   the signed receipt of an approval; permesso receipt verify checks it
//	dev.permesso/log       {"size":…,"root":…}: the newest checkpoint of the audit log at that time
//
// The traceparent of a call is in the request's metadata, and so in its record and its response.
//
// Source: modelcontextprotocol.io, revisions 2025-11-25 and 2026-07-28, and its extension for tasks of 2026-07-28.
package mcp
