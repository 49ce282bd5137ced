package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/email"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/watcher"
)

const emailChannel = "email"

// emailPassword is where the password may stand that no file holds.
const emailPassword = "PERMESSO_EMAIL_PASSWORD" //nolint:gosec // the name of a variable

func emailKind() kind {
	return kind{emailChannel, func(cfg *config.Config) any {
		if cfg.Email == nil {
			return nil
		}
		return *cfg.Email
	}, openEmail}
}

// The drawers of the channel.
const (
	drawerTaken = "taken" // mails that had consequences, and the answers to them
	drawerInbox = "inbox" // what permesso email deliver lays down
	drawerTests = "tests" // what permesso email test waits for
	drawerState = "state" // where we are in a mailbox
)

// openEmail furnishes the channel.
func openEmail(s *server, changes <-chan approval.Key) (channel, error) {
	r, cfg := s.room(emailChannel), s.conf().Email
	if cfg == nil {
		return nil, errors.New("[channels.email] is gone")
	}
	drawers := map[string]chat.StateStore{}
	for _, name := range []string{drawerTaken, drawerInbox, drawerTests, drawerState} {
		d, err := r.notebook.State(name)
		if err != nil {
			return nil, err
		}
		drawers[name] = d
	}
	post := mailSettings{cfg, s.app.Env}
	c := &email.Channel{
		Addressing: post.addressing(), FollowUp: cfg.FollowUp, Sender: post.smtp(), Prover: post.authenticator(),
		Viewer: r, Records: r.viewer, Interceptor: r.interceptor(), Notebook: r.notebook,
		Taken: drawers[drawerTaken], Tests: drawers[drawerTests],
		Workspaces: r.workspaces, People: func(ws string) []approval.Approver { return peopleOf(s.conf(), ws) }, Style: r.style, Foot: r.foot,
		Ceiling: func(ws string) approval.Reversibility { return s.conf().EmailCeiling[ws] },
		Changes: changes, Problem: r.problem, Approve: "permesso approve", Alert: r.alert, Log: s.log.With().Str("via", emailChannel).Logger(),
	}
	if box := post.box(drawers[drawerState], c.Reports); box != nil {
		c.Boxes = append(c.Boxes, box)
	}
	c.Boxes = append(c.Boxes, &email.InboxQueue{Drawer: drawers[drawerInbox], Report: c.Reports("delivery"), Changes: s.mails[drawerInbox]})
	for _, b := range c.Boxes {
		if m, ok := b.(*email.Maildir); ok {
			m.Changes = s.mails[kindMaildir]
		}
	}
	s.watchMails(cfg)
	return c, nil
}

// mailGroup is the watcher's group of the folders that mails come in by: no
// workspace can be called so.
const (
	mailGroup   = ".mail"
	kindMaildir = "maildir"
)

// mailHints say that something came, by the watcher's word for where.
type mailHints map[string]chan struct{}

func (h mailHints) knock(kind string) {
	select {
	case h[kind] <- struct{}{}:
	default: // somebody has knocked already, or nobody is there
	}
}

// watchMails has the watcher tell of mails. What it cannot watch is looked at
// every half minute.
func (s *server) watchMails(cfg *config.Email) {
	s.watcher.Remove(mailGroup)
	folders := []watcher.Folder{{Path: s.layout.ChannelState(emailChannel, drawerInbox), Kind: drawerInbox}}
	if cfg.Maildir != "" {
		folders = append(folders,
			watcher.Folder{Path: filepath.Join(cfg.Maildir, "new"), Kind: kindMaildir},
			watcher.Folder{Path: filepath.Join(cfg.Maildir, "cur"), Kind: kindMaildir})
	}
	for _, f := range folders {
		f.Group, f.Trusted = mailGroup, true
		if err := s.watcher.Add(f); err != nil {
			s.log.Warn().Err(err).EmbedObject(advice{err}).Str("via", emailChannel).Msg("a folder of mails is not watched, but looked at every half minute")
		}
	}
}

// mailSettings make the parts of [channels.email].
type mailSettings struct {
	*config.Email
	env func(string) string
}

func (m mailSettings) addressing() email.Addressing {
	local, domain, _ := strings.Cut(m.From, "@")
	a := email.Addressing{Local: local, Domain: domain}
	if m.SubAddressing {
		a.Separator = "+"
	}
	return a
}

func (m mailSettings) smtp() *email.SMTP {
	return &email.SMTP{
		Address: m.SMTP.Address, Security: m.SMTP.Security, Username: m.SMTP.Username, CAFile: m.SMTP.CAFile, Password: m.password(m.SMTP),
		LocalName: m.addressing().Domain,
	}
}

// box is the way in; nil where mails are only handed over.
func (m mailSettings) box(state chat.StateStore, reports func(string) func(error)) email.Mailbox {
	switch {
	case m.IMAP.Address != "":
		return m.imap(email.MailboxState{Drawer: state, Name: "imap"}, reports("imap"))
	case m.Maildir != "":
		return &email.Maildir{Path: m.Maildir, State: email.MailboxState{Drawer: state, Name: "maildir"}, Report: reports("maildir")}
	}
	return nil
}

func (m mailSettings) imap(state email.State, report func(error)) *email.IMAP {
	return &email.IMAP{
		Address: m.IMAP.Address, Security: m.IMAP.Security, Username: m.IMAP.Username, Password: m.password(m.IMAP),
		CAFile: m.IMAP.CAFile, Mailbox: m.IMAP.Mailbox, State: state, Report: report,
	}
}

func (m mailSettings) authenticator() *email.Authenticator {
	return &email.Authenticator{AuthservID: m.AuthservID, DKIM: m.DKIM, TrustRelay: m.TrustRelay, Lookup: m.lookup()}
}

// lookup asks the resolver that the configuration names; nil is the system's.
func (m mailSettings) lookup() func(context.Context, string) ([]string, error) {
	if m.DNS == "" {
		return nil
	}
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, m.DNS)
	}}
	return r.LookupTXT
}

// password reads the password anew each time: a new one counts from the next
// login on.
func (m mailSettings) password(s config.MailServer) func() (string, error) {
	return func() (string, error) {
		if s.PasswordFile != "" {
			return secretLine(s.PasswordFile)
		}
		if p := m.env(emailPassword); p != "" {
			return p, nil
		}
		return "", fmt.Errorf("no password: name a password_file, or set %s", emailPassword)
	}
}

// emailNotebook is what the channel remembers, for a command.
func emailNotebook(h *house) *ipc.SentStore {
	return &ipc.SentStore{Store: h.store, Channel: emailChannel}
}
