package exec

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval/codec"
)

const (
	maxSecret = 8 << 10
	minSecret = 8 // redacting shorter ones would redact unrelated text
	maxCA     = 1 << 20
)

var secretPattern = pattern(`^(?:([A-Za-z][A-Za-z0-9-]{0,31}) )?(/.*)$`)

// secretFile parses "/file" or "Bearer /file".
func secretFile(value string) (scheme, file string, err error) {
	m := secretPattern().FindStringSubmatch(value)
	if m == nil || !cleanPath(m[2]) {
		return "", "", errors.New(`write the path of a file with the secret, as in "/path" or "Bearer /path"`)
	}
	return m[1], m[2], nil
}

// readSecret returns the header's value, and its secret part. It reads the file at
// each run, so that a new secret applies without a restart.
func readSecret(value string) (header, secret string, err error) {
	scheme, file, err := secretFile(value)
	if err != nil {
		return "", "", err
	}
	b, err := readSmall(file, maxSecret, true)
	if err != nil {
		return "", "", err
	}
	secret = strings.TrimSuffix(string(b), "\n")
	switch {
	case !validValue(secret):
		return "", "", fmt.Errorf("%s: must contain one line of printable ASCII", file)
	case len(secret) < minSecret:
		return "", "", fmt.Errorf("%s: shorter than %d characters", file, minSecret)
	case scheme != "":
		return scheme + " " + secret, secret, nil
	}
	return secret, secret, nil
}

// readSmall reads a regular file of limited size. It does not block on a pipe.
func readSmall(file string, limit int64, private bool) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			err = pe.Err
		}
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: not a regular file", file)
	case private && info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s: other users can read it; run chmod 600 %s", file, file)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, errors.Unwrap(err))
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: longer than %d bytes", file, limit)
	}
	return b, nil
}

// redactor replaces secrets in a server's text by a visible mark. It finds a
// secret verbatim, percent-encoded, in base64, and escaped as in JSON.
type redactor struct{ words []string }

// add adds a secret that is sent with scheme.
func (r *redactor) add(scheme, secret string) {
	words := []string{
		secret, url.QueryEscape(secret), url.PathEscape(secret), strings.ReplaceAll(secret, "/", `\/`),
		base64.StdEncoding.EncodeToString([]byte(secret)),
	}
	if quoted, err := jsontext.AppendQuote(nil, secret); err == nil {
		words = append(words, string(quoted[1:len(quoted)-1]))
	}
	if plain, err := base64.StdEncoding.DecodeString(secret); err == nil && strings.EqualFold(scheme, "Basic") && len(plain) > 0 {
		words = append(words, string(plain))
	}
	r.words = append(r.words, words...)
	// Longest first: one may be part of another.
	slices.SortFunc(r.words, func(a, b string) int { return len(b) - len(a) })
	r.words = slices.Compact(r.words)
}

func (r *redactor) text(s string) string {
	for _, w := range r.words {
		if strings.Contains(s, w) {
			s = strings.ReplaceAll(s, w, fmt.Sprintf("[redacted: secret of %d characters]", len(w)))
		}
	}
	return s
}

// sanitize makes text from a server valid, short and free of secrets.
func (r *redactor) sanitize(s string) string {
	s = strings.ToValidUTF8(strings.TrimSpace(r.text(s)), "\uFFFD")
	if len(s) <= tailSize {
		return s
	}
	return strings.ToValidUTF8(s[:tailSize], "") + "…"
}

// end removes a possible beginning of a secret from the end of an incomplete body.
func (r *redactor) end(b []byte) []byte {
	const least = 4 // fewer reveal nothing, and would cut unrelated text
	longest := 0
	for _, w := range r.words {
		for n := min(len(w)-1, len(b)); n > longest && n >= least; n-- {
			if string(b[len(b)-n:]) == w[:n] {
				longest = n
			}
		}
	}
	return b[:len(b)-longest]
}

// json redacts valid JSON string by string, because a server may have escaped any
// character. It returns false if the outcome would still contain a secret, such as
// a number, or would not be JSON.
func (r *redactor) json(b []byte) ([]byte, bool) {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		if b[i] != '"' {
			out = append(out, b[i])
			i++
			continue
		}
		end := i + 1
		for ; b[end] != '"'; end++ {
			if b[end] == '\\' {
				end++
			}
		}
		out = append(out, r.literal(b[i:end+1])...)
		i = end + 1
	}
	return out, r.text(string(out)) == string(out) && isJSON(out)
}

func (r *redactor) literal(quoted []byte) []byte {
	plain, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return quoted
	}
	clean := r.text(string(plain))
	if clean == string(plain) {
		return quoted
	}
	return codec.Quote(clean)
}
