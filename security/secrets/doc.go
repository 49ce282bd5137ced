// Package secrets finds what looks like a password, a key or a token in a
// request, and says which kind and where, never what.
//
// # Rules
//
// The rules are those of gitleaks 8.30.1, as data (rules.toml, MIT licence
// beside it). A rule applies where one of its keywords occurs; its secret must
// be as disordered (entropy) as the rule says. Its allow lists are heard for
// generic-api-key alone: what has the form of a provider's key is asked about,
// an example too. No comment in the text switches anything off.
//
// # Disguises
//
// An agent that wants to carry a secret past the scan has the whole of JSON to
// hide it in. Beside each string as it is, these are searched:
//
//	context     name: "value", since many rules want a name
//	cleaned     without invisible characters, full-width letters narrowed
//	joined      all strings in their order, and neighbours in both orders
//	decoded     base64, hexadecimal and percent encoding, three deep
//
// Encryption and anything with a key defeats every scan; this one is a net, not
// a wall. What runs is never changed.
package secrets
