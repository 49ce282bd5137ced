package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/email"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
)

func (a *app) emailCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "email", Short: "Set up and test the email channel", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return fail(exitUsage, "permesso email --help", "email needs a subcommand: setup, test or deliver")
		},
	}
	c.AddCommand(a.emailSetupCmd(), a.emailTestCmd(), a.emailDeliverCmd())
	return c
}

// Exit codes of sysexits.h, for mail servers.
const (
	exDataErr  = 65
	exTempFail = 75
)

func (a *app) emailDeliverCmd() *cobra.Command {
	return &cobra.Command{
		Use: "deliver", Short: "Accept an email on standard input from a mail server", Args: cobra.ArbitraryArgs,
		Long: "Accept an email on standard input, for a mail server that delivers to a program. The daemon may be stopped: it\n" +
			"processes the email after its start. Arguments are ignored. Run it as the daemon's user.\n\n" +
			"Exit codes are those of sysexits.h: 0 stored; 65 no email on standard input; 75 temporary failure, try again.",
		Example: "  |\"/usr/local/bin/permesso email deliver --home /var/lib/permesso\"   in /etc/aliases, or a .forward file",
		RunE: func(*cobra.Command, []string) error {
			err := a.deliver()
			switch {
			case err == nil:
				return nil
			case errors.Is(err, email.ErrNoMail):
				return &exit{code: exDataErr, err: err}
			}
			return &exit{code: exTempFail, err: err}
		},
	}
}

// deliver does not read the configuration, so that an error there does not
// bounce emails.
func (a *app) deliver() error {
	home, err := config.LocateHome(a.homeFlag, a.Env)
	if err != nil {
		return err
	}
	h := &instance{layout: ipc.Layout{Home: home}, fs: ipc.OS()}
	h.store = &ipc.Store{FS: h.fs, Layout: h.layout}
	if _, err := os.Stat(h.layout.Keys()); err != nil {
		return fmt.Errorf("no daemon for this user in %s", home)
	}
	if err := h.actAsOwner(); err != nil {
		return err
	}
	inbox, err := emailSentStore(h).State(storeInbox)
	if err != nil {
		return err
	}
	name := strconv.FormatInt(time.Now().UnixNano(), 10) + "." + email.NewToken()
	return (&email.InboxQueue{Drawer: inbox}).Put(name, a.In)
}

// emailSetup is the section [channels.email] as given by flags.
type emailSetup struct {
	config.NewEmail
	username, passwordFile, caFile string
	write                          bool
}

func (a *app) emailSetupCmd() *cobra.Command {
	var s emailSetup
	c := &cobra.Command{
		Use: "setup", Short: "Check the mail servers and write the configuration", Args: cobra.NoArgs,
		Long: "Log in to the servers for outgoing and incoming email and report errors. Without flags it checks the configured\n" +
			"[channels.email]. With flags it checks their values and prints the lines for the configuration, or writes them with\n" +
			"--write. The password is in a file or in " + emailPassword + ".",
		Example: "  permesso email setup --from permesso@example.org --smtp mail.example.org:587 --imap mail.example.org:993 \\\n" +
			"    --username permesso --password-file /etc/permesso/mail.password --write",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.setUpEmail(cmd, &s) },
	}
	f := c.Flags()
	f.StringVar(&s.From, "from", "", "email `address` of the daemon")
	f.StringVar(&s.SMTP.Address, "smtp", "", "`host:port` of the server for outgoing email")
	f.StringVar(&s.SMTP.Security, "smtp-security", "", "transport `security`: starttls, tls or none (default: by the port)")
	f.StringVar(&s.IMAP.Address, "imap", "", "`host:port` of the server for incoming email")
	f.StringVar(&s.IMAP.Security, "imap-security", "", "transport `security`: starttls, tls or none (default: by the port)")
	f.StringVar(&s.IMAP.Mailbox, "mailbox", "", "`mailbox` on the IMAP server (default INBOX)")
	f.StringVar(&s.Maildir, "maildir", "", "Maildir `folder` of a local mail server, instead of --imap")
	f.StringVar(&s.username, "username", "", "login `name` for both servers")
	f.StringVar(&s.passwordFile, "password-file", "", "`file` with the password for both servers")
	f.StringVar(&s.caFile, "ca-file", "", "PEM `file` with the CA of the servers' certificates")
	f.StringVar(&s.AuthservID, "authserv-id", "", "`name` in your server's Authentication-Results; see permesso email test")
	f.BoolVar(&s.SubAddressing, "sub-addressing", false, "the server also delivers name+anything@domain")
	f.StringVar(&s.DNS, "dns", "", "`host:port` of the DNS resolver for DKIM keys (default: the system's)")
	f.BoolVar(&s.write, "write", false, "write the section into the configuration")
	return c
}

func (a *app) setUpEmail(cmd *cobra.Command, s *emailSetup) error {
	h, err := a.instance()
	if err != nil {
		return err
	}
	given := false
	for _, name := range []string{"from", "smtp", "imap", "maildir"} {
		given = given || cmd.Flags().Changed(name)
	}
	if !given {
		if h.cfg.Email == nil {
			return fail(exitUsage, "permesso email setup --help", "[channels.email] is not configured: give its values as flags")
		}
		return a.checkEmail(cmd.Context(), h.cfg.Email)
	}
	for _, m := range []*config.MailServer{&s.SMTP, &s.IMAP} {
		m.Username, m.PasswordFile, m.CAFile = s.username, s.passwordFile, s.caFile
	}
	section, err := config.Parse("", []byte(s.Section()))
	if err != nil {
		return withoutPosition(err)
	}
	if h.cfg.Email != nil && s.write {
		return fail(exitError, "edit "+h.cfg.File, "%s already has a section [channels.email]", h.cfg.File)
	}
	if err := a.checkEmail(cmd.Context(), section.Email); err != nil {
		return err
	}
	if !s.write {
		fmt.Fprintf(a.Out, "\n%s\nAlso: approvers need email = \"…\", and workspaces channels = [\"email\"].\n", s.Section())
		return nil
	}
	if h, err = a.editable(); err != nil {
		return err
	}
	if err := editFile(h.cfg.File, func(data []byte) ([]byte, error) { return a.reader().AddEmail(h.cfg.File, data, s.NewEmail) }); err != nil {
		return withoutPosition(err)
	}
	fmt.Fprintf(a.Out, "added   [channels.email] to %s\nNow: approvers need email = \"…\", and workspaces channels = [\"email\"]; then permesso email test\n", h.cfg.File)
	return nil
}

// checkEmail logs in to both servers.
func (a *app) checkEmail(ctx context.Context, cfg *config.Email) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	m, failed := mailSettings{cfg, a.Env}, 0
	report := func(what string, err error) {
		if err == nil {
			fmt.Fprintf(a.Out, "ok      %s\n", what)
			return
		}
		failed++
		fmt.Fprintf(a.Out, "failed  %s: %v\n", what, err)
		if hint := approval.Hint(err); hint != "" {
			fmt.Fprintf(a.Out, "  hint: %s\n", hint)
		}
	}
	report("outgoing email at "+cfg.SMTP.Address, m.smtp().Check(ctx))
	switch {
	case cfg.IMAP.Address != "":
		report("incoming email at "+cfg.IMAP.Address, m.imap(nil, nil).Check(ctx))
	case cfg.Maildir != "":
		report("incoming email in "+cfg.Maildir, (&email.Maildir{Path: cfg.Maildir}).Check(ctx))
	default:
		fmt.Fprintln(a.Out, "        incoming email: permesso email deliver")
	}
	if failed > 0 {
		return &exit{code: exitError, err: errors.New("email channel check failed")}
	}
	return nil
}

func (a *app) emailTestCmd() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "test [APPROVER]", Short: "Send a test email and check the reply", Args: cobra.MaximumNArgs(1),
		Long: "Send a test email to an approver and wait for the reply. It decides nothing. It shows whether replies arrive, how\n" +
			"your mail server authenticates the sender, and which lines of [channels.email] follow from that.",
		ValidArgsFunction: a.completeApprovers,
		RunE: func(cmd *cobra.Command, pos []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return a.testEmail(ctx, pos, timeout)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "stop waiting for the reply after this long")
	return c
}

func (a *app) testEmail(ctx context.Context, pos []string, timeout time.Duration) (err error) {
	h, _, err := a.openHome()
	if err != nil {
		return err
	}
	if h.cfg.Email == nil {
		return fail(exitError, "permesso email setup", "[channels.email] is not configured")
	}
	who, err := mailApprover(h.cfg, pos)
	if err != nil {
		return err
	}
	m := mailSettings{h.cfg.Email, a.Env}
	tests, err := emailSentStore(h).State(storeTests)
	if err != nil {
		return err
	}
	box := m.box(nil, func(string) func(error) { return func(error) {} })
	switch b := box.(type) {
	case *email.IMAP:
		b.State = &memoryState{}
	case *email.Maildir:
		b.State = &memoryState{}
	}
	inbox, err := emailSentStore(h).State(storeInbox)
	if err != nil {
		return err
	}
	test := &email.TestMail{Inbox: inbox, Drawer: tests, Addressing: m.addressing(), Sender: m.smtp(), To: who.Email}
	defer func() { err = errors.Join(err, test.End()) }()
	if err := test.Send(ctx); err != nil {
		return fmt.Errorf("send test email: %w", err)
	}
	fmt.Fprintf(a.Out, "sent    a test email to %s; reply to it (timeout %s)\n", who.Email, timeout)
	raw, err := test.Await(ctx, box)
	if errors.Is(err, context.DeadlineExceeded) {
		return fail(exitTimeout, "check the spam folder; with sub_addressing = true your server must deliver name+anything@domain", "timeout: no reply within %s", timeout)
	}
	if err != nil {
		return err
	}
	return a.reportTest(email.Examine(context.WithoutCancel(ctx), raw, m.lookup()), who)
}

// reportTest prints what a reply proves about its sender.
func (a *app) reportTest(f email.Findings, who approval.Approver) error {
	var b strings.Builder
	write := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	write("received a reply: %q", f.Answer)
	if f.Automatic != "" {
		write("⚠       it would be ignored: %s", f.Automatic)
	}
	if !f.Clear {
		write("⚠       it does not begin with a code, so the channel would reply with the menu")
	}
	if f.Field == "" {
		write("        your mail server writes no Authentication-Results")
	} else {
		write("        Authentication-Results: %s", f.Field)
	}
	yes := func(why string) string {
		if why == "" {
			return "proves the sender"
		}
		return why
	}
	write("DMARC by the server: %s", yes(f.Stated))
	write("DKIM, verified here: %s", yes(f.Signed))
	write("")
	if f.Sender == "" {
		write("The sender is not authenticated: no reply from %s will be accepted.", who.Email)
		return errors.Join(a.print(f, strings.TrimRight(b.String(), "\n")), &exit{exitError, errors.New("the reply does not authenticate its sender"), "the approver's provider must sign its emails (DKIM) and publish DMARC"})
	}
	write("Add these lines to [channels.email]:")
	for _, l := range f.Lines() {
		write("  %s", l)
	}
	if f.Stated == "" {
		write("Set authserv_id only if your server removes incoming Authentication-Results with that name; dkim works without it.")
	}
	return a.print(f, strings.TrimRight(b.String(), "\n"))
}

// mailApprover returns the approver to test with.
func mailApprover(cfg *config.Config, pos []string) (approval.Approver, error) {
	var all []string
	for name, p := range cfg.Approvers {
		if p.Email != "" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	switch {
	case len(pos) == 1 && slices.Contains(all, pos[0]):
		return cfg.Approvers[pos[0]], nil
	case len(pos) == 1:
		return approval.Approver{}, fail(exitError, "approvers with an email address: "+strings.Join(all, ", "), "%q is not an approver with an email address", pos[0])
	case len(all) != 1:
		return approval.Approver{}, fail(exitUsage, "permesso email test NAME, one of: "+strings.Join(all, ", "), "email test needs the name of an approver")
	}
	return cfg.Approvers[all[0]], nil
}

// memoryState is a mailbox state that is not saved.
type memoryState struct{ data []byte }

func (f *memoryState) Load() ([]byte, error)  { return f.data, nil }
func (f *memoryState) Save(data []byte) error { f.data = data; return nil }
