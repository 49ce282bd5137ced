package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/chat/email"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/daemon"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/setup"
)

func (a *app) emailCmd() *cobra.Command {
	return console.Group(&cobra.Command{Use: "email", Short: "Set up and test the email channel"},
		a.emailSetupCmd(), a.emailTestCmd(), a.emailDeliverCmd())
}

// Exit codes of sysexits.h, for mail servers.
const (
	exDataErr  = 65
	exTempFail = 75
)

func (a *app) emailDeliverCmd() *cobra.Command {
	return &cobra.Command{
		Use: "deliver", Short: "Accept an email on standard input from a mail server", Args: cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			err := a.deliver()
			switch {
			case err == nil:
				return nil
			case errors.Is(err, mailbox.ErrNoMail):
				return console.Wrap(exDataErr, err, "give the message on standard input")
			}
			return console.Wrap(exTempFail, err, console.HintFor(err))
		},
	}
}

// deliver does not read the configuration, so that an error there does not
// bounce emails.
func (a *app) deliver() error {
	h, err := home.Existing(a.Console)
	if err != nil {
		return err
	}
	if err := h.ActAsOwner(); err != nil {
		return err
	}
	inbox, err := daemon.EmailSentStore(h).State(daemon.StoreInbox)
	if err != nil {
		return err
	}
	name := strconv.FormatInt(time.Now().UnixNano(), 10) + "." + email.NewToken()
	return (&mailbox.InboxQueue{Store: inbox}).Put(name, a.In)
}

func (a *app) emailSetupCmd() *cobra.Command {
	var s setup.EmailSection
	c := &cobra.Command{
		Use: "setup", Short: "Check the mail servers and write the configuration", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := slices.ContainsFunc([]string{"from", "smtp", "imap", "maildir", "oauth"}, cmd.Flags().Changed)
			return setup.SetUpEmail(cmd.Context(), a.Console, &s, given)
		},
	}
	f := c.Flags()
	f.StringVar(&s.From, "from", "", "email `address` of the daemon")
	f.StringVar(&s.SMTP.Address, "smtp", "", "`host:port` of the server for outgoing email")
	f.StringVar(&s.SMTP.Security, "smtp-security", "", "transport `security`: starttls, tls or none (default: by the port)")
	f.StringVar(&s.IMAP.Address, "imap", "", "`host:port` of the server for incoming email")
	f.StringVar(&s.IMAP.Security, "imap-security", "", "transport `security`: starttls, tls or none (default: by the port)")
	f.StringVar(&s.IMAP.Mailbox, "mailbox", "", "`mailbox` on the IMAP server (default INBOX)")
	f.StringVar(&s.Maildir, "maildir", "", "Maildir `folder` of a local mail server, instead of --imap")
	f.StringVar(&s.Username, "username", "", "login `name` for both servers")
	f.StringVar(&s.PasswordFile, "password-file", "", "`file` with the password for both servers")
	f.StringVar(&s.CAFile, "ca-file", "", "PEM `file` with the CA of the servers' certificates")
	f.StringVar(&s.AuthservID, "authserv-id", "", "`name` in your server's Authentication-Results; see permesso email test")
	f.BoolVar(&s.SubAddressing, "sub-addressing", false, "the server also delivers name+anything@domain")
	f.StringVar(&s.DNS, "dns", "", "`host:port` of the DNS resolver for DKIM keys (default: the system's)")
	f.StringVar(&s.OAuth.Provider, "oauth", "", "log in without a password, at this `provider`: google, microsoft or other")
	f.StringVar(&s.OAuth.ClientID, "client-id", "", "`ID` of the OAuth client that you registered there")
	f.StringVar(&s.OAuth.ClientSecretFile, "client-secret-file", "", "`file` with the secret of the OAuth client")
	f.StringVar(&s.OAuth.AuthURL, "auth-url", "", "`URL` of another provider, for a browser on this machine")
	f.StringVar(&s.OAuth.TokenURL, "token-url", "", "`URL` of another provider that gives tokens")
	f.StringVar(&s.OAuth.DeviceURL, "device-url", "", "`URL` of another provider, for a browser on any device")
	f.StringVar(&s.OAuth.Scope, "scope", "", "`scope` for mail of another provider")
	f.BoolVar(&s.Write, "write", false, "write the section into the configuration")
	return c
}

func (a *app) emailTestCmd() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "test [APPROVER]", Short: "Send a test email and check the reply", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, pos []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return setup.SendTestEmail(ctx, a.Console, pos, timeout)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "stop waiting for the reply after this long")
	return c
}
