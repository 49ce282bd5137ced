// Package web is the browser channel. The daemon serves its pages on loopback. They
// list pending requests, show a request with all its evidence, and take the decision.
//
// # Who
//
// There are no user names and passwords. A process that the daemon can identify over
// a local socket gets a login link with 256 random bits, which works once and for one
// minute. Opening the link changes nothing: its page posts the bits, and the response
// is a session. The session's user is the person whom the kernel reported for that
// process. Sessions are in memory and end with the daemon. The rights of the user are
// checked for every HTTP request, and Decide checks them again.
//
// # Where
//
// Browsers send cookies to every port of a host. So a server that an agent starts at
// another port of 127.0.0.1 would get our cookies. Therefore every session has its own
// path, /s/KEY/ with 128 random bits, and its cookie is limited to that path. A request
// needs both.
//
// # What changes something
//
// Only a POST from one of our pages: Origin or Sec-Fetch-Site must say so, Host must be
// one of our names, and the body must be a form. A decision carries the digest of the
// pending that was shown, so that only what the user saw can be approved.
//
// # Pages
//
// After a decision the next request opens, with a note about the decision. If the
// approved request then fails or has to wait, an event changes the note. For 400 ms a new
// page takes no click for a decision: it may be the second click of a double click on the
// page before.
//
// Everything works without JavaScript. With JavaScript, an event stream updates the
// list and the request: the server sends rows, rendered once for each pending and
// language, and htmx swaps them in. No text of an agent becomes markup: chat.Escape
// makes invisible characters visible, templates escape the result, and the content
// security policy forbids inline scripts.
package web
