package telegram

import (
	"net/url"
	"strings"
)

// masked stands where a token stood.
const masked = "***"

// secretLength is the least that the half of a token behind its colon must have to be looked for by
// itself: Telegram's has 35 characters, and "x" would take the sense out of every sentence.
const secretLength = 8

// Redact returns err with the token taken out of its text. The token stands in every URL of the Bot API,
// and so in the errors of net/http and of the library. What the result unwraps to are only those parts of
// err that do not hold the token themselves, so that errors.Is and errors.As find a cancelled context, a
// *bot.TooManyRequestsError or a net.OpError, and never a *url.Error that would tell. An err that does not
// hold the token is returned as it is; so is any err where the token is empty.
func Redact(token string, err error) error {
	secrets := secretsOf(token)
	if err == nil || !holds(secrets, err) {
		return err
	}
	return &redacted{text: mask(secrets, err.Error()), causes: harmless(secrets, err)}
}

// redacted is an error whose text was cleaned, and what of its causes needs no cleaning.
type redacted struct {
	text   string
	causes []error
}

func (r *redacted) Error() string   { return r.text }
func (r *redacted) Unwrap() []error { return r.causes }

// secretsOf lists the forms in which a token is found in a text, the longest first.
func secretsOf(token string) []string {
	if token == "" {
		return nil
	}
	secrets := []string{token, url.QueryEscape(token)}
	if _, secret, ok := strings.Cut(token, ":"); ok && len(secret) >= secretLength {
		secrets = append(secrets, secret)
	}
	return secrets
}

func mask(secrets []string, text string) string {
	for _, s := range secrets {
		text = strings.ReplaceAll(text, s, masked)
	}
	return text
}

// holds says whether a secret is in the text of err or of anything that it wraps.
func holds(secrets []string, err error) bool {
	if text := err.Error(); mask(secrets, text) != text {
		return true
	}
	for _, cause := range causes(err) {
		if holds(secrets, cause) {
			return true
		}
	}
	return false
}

// harmless returns the topmost errors below err whose whole tree is free of secrets.
func harmless(secrets []string, err error) []error {
	var found []error
	for _, cause := range causes(err) {
		if holds(secrets, cause) {
			found = append(found, harmless(secrets, cause)...)
		} else {
			found = append(found, cause)
		}
	}
	return found
}

func causes(err error) []error {
	switch wrapper := err.(type) { //nolint:errorlint // we walk the tree ourselves, one level at a time
	case interface{ Unwrap() error }:
		if cause := wrapper.Unwrap(); cause != nil {
			return []error{cause}
		}
	case interface{ Unwrap() []error }:
		return wrapper.Unwrap()
	}
	return nil
}
