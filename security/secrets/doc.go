// Package secrets finds text that looks like a password, a key or a token in a
// request. It reports the kind and the place, never the secret.
//
// # Rules
//
// The rules are data: those of gitleaks 8.30.1 (rules.toml, MIT license beside it), and
// those for what people and programs write every day (everyday.toml). A rule applies
// where one of its keywords occurs, if the secret has the rule's minimum entropy and
// passes its check. A check refuses variables, placeholders and names. Text in the form
// of a provider's key is always reported, even an example. No comment in the text
// disables a rule. A generic rule finds what the text around it calls a secret; its
// finding is dropped where a provider's rule found one. Where a rule of gitleaks wants the
// end of a line or a string behind a key, the marks that end it in a sentence, an address or
// a tag count, too.
//
// Some kinds have no keyword: payment cards (an issuer's digits in a usual grouping, and
// Luhn's check), bank accounts (an IBAN with its check digits), tokens of Discord, and
// seed phrases (12 to 24 words of BIP-39 with the right last bits; seed_words.txt, MIT
// license beside it).
//
// # Disguises
//
// An agent may try to hide a secret in its JSON. Besides each verbatim string,
// these are searched:
//
//	context     name: "value", because many rules need a name
//	cleaned     without invisible characters, full-width letters narrowed
//	reversed    each value from its end
//	joined      all strings in their order, and each with the three before it, in both orders
//	decoded     base64 and hexadecimal (in lines, or between slashes; of UTF-16 or gzip),
//	            percent encoding, HTML entities and escapes of programs, three levels
//	names       of the tool, the action and the session, each alone
//
// What is unpacked and what is searched is bounded. A request that has more asks.
//
// A card or an account counts in one value only, and a text and a recipient together form
// no password.
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
// value does not leave the host, and an approver decides where it is shown. So it is with
// all other disguises, with what only a name before it makes a secret (password: x), with addresses, phrases
// and numbers of cards: a mask would hide which card is charged.
//
// A bank account is neither masked nor withheld, because a person must see where money
// goes. It asks, unless its argument is declared as what a request goes to: recipients,
// host, url, path or amount.
//
// Encrypted secrets cannot be found. The scan never changes what runs.
package secrets
