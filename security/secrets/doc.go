// Package secrets finds text that looks like a password, a key or a token in a
// request. It reports the kind and the place, never the secret.
//
// # Rules
//
// The rules are those of gitleaks 8.30.1, as data (rules.toml, MIT license beside
// it). A rule applies where one of its keywords occurs, if the secret has the
// rule's minimum entropy. Allow lists apply only to generic-api-key: text in the
// form of a provider's key is always reported, even an example. No comment in the
// text disables a rule.
//
// # Disguises
//
// An agent may try to hide a secret in its JSON. Besides each verbatim string,
// these are searched:
//
//	context     name: "value", because many rules need a name
//	cleaned     without invisible characters, full-width letters narrowed
//	joined      all strings in their order, and neighbors in both orders
//	decoded     base64, hexadecimal and percent encoding, three levels
//
// # Masks
//
// A card may mask a secret in a value if it is one token of [A-Za-z0-9_+/=.~-] between
// other characters, found in the value's own bytes, or encoded there alone. It may stand
//
//	in a text, a list or a table   anywhere, unless the value is used in a URL or a path
//	in JSON                        but not in a member that names a place, such as "path"
//	in a diff                      but not in the names of its files
//	in a command or a program      after a name of a secret only: --password, "token: "
//
// A text that stands in two places is masked only if it may be masked in both. A Redactor
// takes these tokens out and searches the rest. What it finds then is never masked: the
// value does not leave the host, and an approver decides where it is shown.
//
// Encrypted secrets cannot be found. The scan never changes what runs.
package secrets
