package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/email"
	"github.com/permesso-dev/permesso/chat/email/authentic"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
	"github.com/permesso-dev/permesso/chat/email/oauth"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/watcher"
)

const emailChannel = "email"

// EmailPassword is the environment variable of the password without a password_file.
const EmailPassword = "PERMESSO_EMAIL_PASSWORD" //nolint:gosec // a variable's name

func emailKind() kind {
	return kind{emailChannel, func(cfg *config.Config) any { return settingsOf(cfg.Email) }, openEmail}
}

// The state stores of the channel.
const (
	storeTaken = "taken" // emails that were acted on, and our replies to them
	StoreInbox = "inbox" // emails from permesso email deliver
	StoreTests = "tests" // test emails that permesso email test waits for
	storeState = "state" // read positions in mailboxes
)

// openEmail creates the channel.
func openEmail(s *server, changes <-chan approval.Key) (channel, error) {
	r, cfg := s.channelEnv(emailChannel), s.Current().Email
	if cfg == nil {
		return channel{}, errors.New("[channels.email] is no longer configured")
	}
	stores := map[string]chat.StateStore{}
	for _, name := range []string{storeTaken, StoreInbox, StoreTests, storeState} {
		d, err := r.sentStore.State(name)
		if err != nil {
			return channel{}, err
		}
		stores[name] = d
	}
	post := NewMailSettings(cfg, s.app.Env, s.Layout.Keys())
	c := &email.Adapter{
		Addressing: post.Addressing(), FollowUp: cfg.FollowUp, Sender: post.Sender(), Verifier: post.Authenticator(),
		Taken: stores[storeTaken], Tests: stores[StoreTests],
		Ceiling: func(ws string) approval.Reversibility { return s.Current().EmailCeiling[ws] },
		Log:     s.log.With().Str("via", emailChannel).Logger(),
	}
	position := func(name string) mailbox.State { return mailbox.MailboxState{Store: stores[storeState], Name: name} }
	if box := post.Box(position, c.Reports, s.mails[kindMaildir]); box != nil {
		c.Mailboxes = append(c.Mailboxes, box)
	}
	c.Mailboxes = append(c.Mailboxes, &mailbox.InboxQueue{Store: stores[StoreInbox], Report: c.Reports("delivery"), Changes: s.mails[StoreInbox]})
	s.watchMails(cfg)
	ch := r.deliver(c, stores[storeState], changes, emailPlaces, nil)
	ch.Retry = email.FirstRetry
	return channel{run: ch.Run, mails: c, limited: ch.Limited}, nil
}

// emailPlaces returns the addresses of a workspace's approvers.
func emailPlaces(cfg *config.Config, ws string) (places []deliver.Place) {
	for _, p := range peopleOf(cfg, ws) {
		if to, ok := email.Place(p, emailChannel); ok {
			places = append(places, to)
		}
	}
	return places
}

// mailGroup is the watcher's group of the email folders. No workspace can have
// this name.
const (
	mailGroup   = ".mail"
	kindMaildir = "maildir"
)

// mailHints signal new emails, by the watcher's kind of folder.
type mailHints map[string]chan struct{}

// watchMails adds the email folders to the watcher. A folder that cannot be
// watched is still polled every 30 s.
func (s *server) watchMails(cfg *config.Email) {
	s.watcher.Remove(mailGroup)
	folders := []watcher.Folder{{Path: s.Layout.ChannelState(emailChannel, StoreInbox), Kind: StoreInbox}}
	if cfg.Maildir != "" {
		folders = append(folders,
			watcher.Folder{Path: filepath.Join(cfg.Maildir, "new"), Kind: kindMaildir},
			watcher.Folder{Path: filepath.Join(cfg.Maildir, "cur"), Kind: kindMaildir})
	}
	for _, f := range folders {
		f.Group, f.Trusted = mailGroup, true
		if err := s.watcher.Add(f); err != nil {
			s.log.Warn().Err(err).EmbedObject(console.Advice{Err: err}).Str("via", emailChannel).Msg("watch email folder failed, polling every 30 s")
		}
	}
}

// MailSettings builds the parts of the channel from [channels.email].
type MailSettings struct {
	*config.Email
	env    func(string) string
	Tokens *oauth.Source // nil: a login needs a password
}

// NewMailSettings returns the settings of a configuration, with the environment's password.
// The token of an authorization is in the folder keys.
func NewMailSettings(cfg *config.Email, env func(string) string, keys string) MailSettings {
	m := MailSettings{Email: cfg, env: env}
	if cfg.OAuth.ClientID != "" {
		m.Tokens = &oauth.Source{Client: m.OAuthClient, File: filepath.Join(keys, "email.oauth"), Setup: emailSetup}
	}
	return m
}

// OAuthClient is the configured client, with its secret.
func (m MailSettings) OAuthClient() (*oauth.Client, error) {
	o := m.OAuth
	c := &oauth.Client{
		AuthURL: o.AuthURL, TokenURL: o.TokenURL, DeviceURL: o.DeviceURL, ID: o.ClientID, Scopes: strings.Fields(o.Scope), Account: cmp.Or(m.SMTP.Username, m.IMAP.Username), Setup: emailSetup,
	}
	if o.ClientSecretFile == "" {
		return c, nil
	}
	secret, err := home.SecretLine(o.ClientSecretFile)
	c.Secret = secret
	return c, err
}

// accessToken gives tokens for the login to a server, nil if that needs a password, or no login.
func (m MailSettings) accessToken(s config.MailServer) *mailbox.AccessToken {
	if m.Tokens == nil || s.PasswordFile != "" {
		return nil
	}
	return &mailbox.AccessToken{
		Get: m.Tokens.AccessToken, Refused: "check that username is the account that authorized the daemon, and run " + emailSetup + " again",
	}
}

// emailSetup is the command that authorizes the daemon.
const emailSetup = "permesso email setup"

// Addressing is how the daemon names itself in emails.
func (m MailSettings) Addressing() email.Addressing {
	local, domain, _ := strings.Cut(m.From, "@")
	a := email.Addressing{Local: local, Domain: domain}
	if m.SubAddressing {
		a.Separator = "+"
	}
	return a
}

// Sender sends through the configured server.
func (m MailSettings) Sender() *mailbox.SMTP {
	return &mailbox.SMTP{
		Address: m.SMTP.Address, Security: m.SMTP.Security, Username: m.SMTP.Username, CAFile: m.SMTP.CAFile, Password: m.password(m.SMTP),
		AccessToken: m.accessToken(m.SMTP),
		LocalName:   m.Addressing().Domain,
	}
}

// Box returns the mailbox of incoming emails, nil if only permesso email deliver is used.
// changes signals new emails in a maildir; it may be nil.
func (m MailSettings) Box(position func(name string) mailbox.State, reports func(string) func(error), changes <-chan struct{}) mailbox.Mailbox {
	switch {
	case m.IMAP.Address != "":
		return m.Mailbox(position("imap"), reports("imap"))
	case m.Maildir != "":
		return &mailbox.Maildir{Path: m.Maildir, State: position("maildir"), Report: reports("maildir"), Changes: changes, Likely: m.Addressing().Likely}
	}
	return nil
}

// Mailbox reads the configured IMAP mailbox.
func (m MailSettings) Mailbox(state mailbox.State, report func(error)) *mailbox.IMAP {
	return &mailbox.IMAP{
		Address: m.IMAP.Address, Security: m.IMAP.Security, Username: m.IMAP.Username, Password: m.password(m.IMAP), AccessToken: m.accessToken(m.IMAP),
		CAFile: m.IMAP.CAFile, Mailbox: m.IMAP.Mailbox, State: state, Report: report, Likely: m.Addressing().Likely,
	}
}

// Authenticator proves the sender of a reply.
func (m MailSettings) Authenticator() *authentic.Authenticator {
	return &authentic.Authenticator{AuthservID: m.AuthservID, Unnamed: m.Unnamed, DKIM: m.DKIM, TrustRelay: m.TrustRelay, Lookup: m.Lookup()}
}

// Lookup queries the configured resolver; nil means the system's.
func (m MailSettings) Lookup() func(context.Context, string) ([]string, error) {
	if m.DNS == "" {
		return nil
	}
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, m.DNS)
	}}
	return r.LookupTXT
}

// password reads the password at each login, so that a changed file takes
// effect without a restart.
func (m MailSettings) password(s config.MailServer) func() (string, error) {
	return func() (string, error) {
		if s.PasswordFile != "" {
			return home.SecretLine(s.PasswordFile)
		}
		if p := m.env(EmailPassword); p != "" {
			return p, nil
		}
		return "", fmt.Errorf("no password: set password_file or %s", EmailPassword)
	}
}

// EmailSentStore is the channel's sent store, for a command.
func EmailSentStore(h *home.Home) *ipc.SentStore {
	return &ipc.SentStore{Store: h.Store, Channel: emailChannel}
}

func telegramKind() kind {
	return kind{telegram.Via, func(cfg *config.Config) any { return settingsOf(cfg.Telegram) }, openTelegram}
}

// openTelegram creates the channel. It reads the token at every start of the
// channel, so that a corrected token works without a restart of the daemon.
func openTelegram(s *server, changes <-chan approval.Key) (channel, error) {
	cfg := s.Current().Telegram
	if cfg == nil {
		return channel{}, errors.New("[channels.telegram] is no longer configured")
	}
	token, err := home.BotToken(cfg, s.app.Env)
	if err != nil {
		return channel{}, err
	}
	r := s.channelEnv(telegram.Via)
	updates, err := r.sentStore.State("updates")
	if err != nil {
		return channel{}, err
	}
	notes, err := r.sentStore.State("notes")
	if err != nil {
		return channel{}, err
	}
	a := &telegram.Adapter{Token: token, ServerURL: cfg.ServerURL, Updates: updates}
	if w := cfg.Webhook; w != nil {
		secret, err := home.SecretWord(w.SecretFile)
		if err != nil {
			return channel{}, err
		}
		a.Webhook = &telegram.Webhook{Listen: w.Listen, URL: w.URL, Secret: secret}
	}
	c := r.deliver(a, notes, changes, TelegramPlaces, func() bool { return cfg.Feed })
	return channel{run: c.Run, alert: c.Alert, limited: c.Limited}, nil
}

// TelegramPlaces returns the chats of a workspace: the configured chat, or the private chats of its approvers.
func TelegramPlaces(cfg *config.Config, ws string) []deliver.Place {
	people := peopleOf(cfg, ws)
	if at, ok := cfg.TelegramChats[ws]; ok {
		place := deliver.Place{Address: deliver.Address{Chat: deliver.NumberID(at.ChatID), Thread: deliver.NumberID(int64(at.ThreadID))}}
		for _, p := range people {
			if p.IDs[telegram.Via] == string(place.Chat) {
				place.Language, place.Person = p.Language, p.Name
			}
		}
		return []deliver.Place{place}
	}
	var places []deliver.Place
	for _, p := range people {
		if id := p.IDs[telegram.Via]; id != "" {
			places = append(places, deliver.Place{Address: deliver.Address{Chat: deliver.ID(id)}, Language: p.Language, Person: p.Name})
		}
	}
	return places
}
