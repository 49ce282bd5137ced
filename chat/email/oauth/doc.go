// Package oauth gets the access tokens with which the email channel logs in to mail servers
// that accept no password (RFC 6749). It keeps the refresh token in a file.
//
// A person authorizes the gate once, in a browser: with a code and PKCE (RFC 7636), which
// the browser brings back to a server on this machine (RFC 8252), or with a short code that
// the person types on any device (RFC 8628). From then on the gate refreshes the access
// token by itself, before it expires. If the authorization is revoked, it must be given
// again.
package oauth
