package config

import "fmt"

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
	return inlineTable([]entry{
		{"address", quoted(m.Address)},
		{"security", quoted(m.Security)},
		{"username", quoted(m.Username)},
		{"password_file", quoted(m.PasswordFile)},
		{"ca_file", quoted(m.CAFile)},
		{"mailbox", quoted(m.Mailbox)},
	})
}

// AddEmail appends the section to data, the content of the file called name. It
// keeps every existing byte. An error about the result is an *Error.
func (rd Reader) AddEmail(name string, data []byte, e NewEmail) ([]byte, error) {
	return rd.edit(name, data, func(f *file, before *Config) error {
		if before.Email != nil {
			return fmt.Errorf("%s already has a section [channels.email]", name)
		}
		f.tail += "\n" + e.Section()
		return nil
	}, func(before, after *Config) bool { return before.differsOnly(after, "channels.email.") })
}
