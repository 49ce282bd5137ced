package telegram

import (
	"net/url"
	"slices"
	"strings"
)

// masked replaces a token.
const masked = "***"

// minSecretLength is the shortest secret part of a token that is masked by itself. Telegram's has 35
// characters; masking a short one would garble every text.
const minSecretLength = 8

// Redact returns err without the token in its text. Every Bot API URL holds the token, and so do the errors of
// net/http and of the library. The result unwraps only to those causes that do not hold the token. So errors.Is
// and errors.As still find a canceled context, a *bot.TooManyRequestsError or a net.OpError, but never a
// *url.Error with the token. If err does not hold the token, or the token is empty, err is returned unchanged.
func Redact(token string, err error) error {
	secrets := secretsOf(token)
	if err == nil || !holds(secrets, err) {
		return err
	}
	return &redacted{text: mask(secrets, err.Error()), causes: cleanCauses(secrets, err)}
}

// redacted is a masked error text with the clean causes.
type redacted struct {
	text   string
	causes []error
}

func (r *redacted) Error() string   { return r.text }
func (r *redacted) Unwrap() []error { return r.causes }

// secretsOf lists the forms of a token in a text, the longest first.
func secretsOf(token string) []string {
	if token == "" {
		return nil
	}
	secrets := []string{token, url.QueryEscape(token)}
	if _, secret, ok := strings.Cut(token, ":"); ok && len(secret) >= minSecretLength {
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

// holds reports whether a secret is in the text of err or of any error that it wraps.
func holds(secrets []string, err error) bool {
	text := err.Error()
	held := func(cause error) bool { return holds(secrets, cause) }
	return mask(secrets, text) != text || slices.ContainsFunc(causes(err), held)
}

// cleanCauses returns the topmost errors below err that are free of secrets.
func cleanCauses(secrets []string, err error) []error {
	var found []error
	for _, cause := range causes(err) {
		if holds(secrets, cause) {
			found = append(found, cleanCauses(secrets, cause)...)
		} else {
			found = append(found, cause)
		}
	}
	return found
}

func causes(err error) []error {
	switch wrapper := err.(type) { //nolint:errorlint // walks the tree one level at a time
	case interface{ Unwrap() error }:
		if cause := wrapper.Unwrap(); cause != nil {
			return []error{cause}
		}
	case interface{ Unwrap() []error }:
		return wrapper.Unwrap()
	}
	return nil
}
