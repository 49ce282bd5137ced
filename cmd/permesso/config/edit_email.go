package config

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// NewEmail is [channels.email] to add. Zero fields get the defaults.
type NewEmail struct {
	From                string
	SMTP, IMAP          MailServer
	Maildir, AuthservID string
	DNS                 string
	SubAddressing       bool
}

// Section formats it as TOML.
func (e NewEmail) Section() string {
	var b strings.Builder
	b.WriteString("[channels.email]\n")
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s = %s\n", key, strconv.QuoteToASCII(value))
		}
	}
	line("from", e.From)
	for _, s := range []struct {
		key string
		MailServer
	}{{"smtp", e.SMTP}, {"imap", e.IMAP}} {
		if s.Address != "" {
			fmt.Fprintf(&b, "%s = { %s }\n", s.key, s.inline())
		}
	}
	line("maildir", e.Maildir)
	line("authserv_id", e.AuthservID)
	if e.SubAddressing {
		b.WriteString("sub_addressing = true\n")
	}
	line("dns", e.DNS)
	return b.String()
}

func (m MailServer) inline() string {
	var parts []string
	for _, p := range []struct{ key, value string }{
		{"address", m.Address},
		{"security", m.Security},
		{"username", m.Username},
		{"password_file", m.PasswordFile},
		{"ca_file", m.CAFile},
		{"mailbox", m.Mailbox},
	} {
		if p.value != "" {
			parts = append(parts, p.key+" = "+strconv.QuoteToASCII(p.value))
		}
	}
	return strings.Join(parts, ", ")
}

// AddEmail appends the section to data, the content of the file called name. It
// keeps every existing byte. An error about the result is an *Error.
func (rd Reader) AddEmail(name string, data []byte, e NewEmail) ([]byte, error) {
	before, err := rd.Parse(name, data)
	if err != nil {
		return nil, err
	}
	if before.Email != nil {
		return nil, fmt.Errorf("%s already has a section [channels.email]", name)
	}
	out := bytes.Clone(data)
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	if len(out) > 0 {
		out = append(out, '\n')
	}
	out = append(out, e.Section()...)
	if _, err := rd.Parse(name, out); err != nil {
		return nil, err
	}
	return out, nil
}
