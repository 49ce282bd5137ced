package config

import (
	"fmt"
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
	sub := ""
	if e.SubAddressing {
		sub = "true"
	}
	return tableText("channels.email", []entry{
		{"from", quoted(e.From)},
		{"smtp", e.SMTP.inline()},
		{"imap", e.IMAP.inline()},
		{"maildir", quoted(e.Maildir)},
		{"authserv_id", quoted(e.AuthservID)},
		{"sub_addressing", sub},
		{"dns", quoted(e.DNS)},
	})
}

func (m MailServer) inline() string {
	if m.Address == "" {
		return ""
	}
	var parts []string
	for _, e := range []entry{
		{"address", m.Address},
		{"security", m.Security},
		{"username", m.Username},
		{"password_file", m.PasswordFile},
		{"ca_file", m.CAFile},
		{"mailbox", m.Mailbox},
	} {
		if e.value != "" {
			parts = append(parts, e.key+" = "+quoted(e.value))
		}
	}
	return "{ " + strings.Join(parts, ", ") + " }"
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
	out := []byte(e.Section())
	if len(data) > 0 {
		out = appended(data, e.Section())
	}
	if _, err := rd.Parse(name, out); err != nil {
		return nil, err
	}
	return out, nil
}
