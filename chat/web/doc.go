// Package web is the channel for a person at a browser of this machine: pages
// that the daemon serves on loopback, which list what waits, show a request with
// all that is known of it, and take the answer.
//
// # Who
//
// Nobody logs in with a name. A program that the daemon can identify, over a
// local socket, is given a link that holds 256 random bits, works once and for a
// minute. Opening it changes nothing: the page behind it posts the bits, and the
// answer is a session. A session is the person whom the kernel saw asking for the
// link, it lives in memory, and it ends with the daemon. What that person may is
// asked anew for every request, and Decide has the last word.
//
// # Where
//
// Browsers send cookies to every port of a host, so that a page served by an
// agent's own program at another port of 127.0.0.1 would be sent ours. Therefore
// every session has a path of its own, /s/KEY/ with 128 random bits, to which its
// cookie is bound: nobody else's address begins so. Both are needed.
//
// # What changes something
//
// Only a POST does, and only one that a page of ours sent: Origin or
// Sec-Fetch-Site must say so, Host must be one of our names, and the body a form.
// A decision carries the digest of the pending that was shown, so that what is
// approved is what was seen.
//
// # Pages
//
// Everything works without JavaScript. With it, a stream of events keeps the list
// and the request up to date: the server sends rows, rendered once for each
// pending and language, and htmx puts them in their place. Nothing of an agent's
// is ever markup: templates escape it, after chat.Escape has made it visible, and
// the content security policy knows no inline script.
package web
