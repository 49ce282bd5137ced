package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/email"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
	"github.com/permesso-dev/permesso/chat/email/oauth"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/daemon"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// EmailSection is the section [channels.email] as given by flags.
type EmailSection struct {
	config.NewEmail
	Username, PasswordFile, CAFile string
	Write                          bool
}

// SetUpEmail checks the mail servers, and writes the section if it was given by flags.
func SetUpEmail(ctx context.Context, a *console.Console, s *EmailSection, given bool) error {
	h, err := home.Load(a)
	if err != nil {
		return err
	}
	if !given {
		if h.Config.Email == nil {
			return console.Fail(console.ExitUsage, "permesso email setup --help", "[channels.email] is not configured: give its values as flags")
		}
		return checkEmail(ctx, a, h, h.Config.Email, false)
	}
	s.fillProvider()
	for _, m := range []*config.MailServer{&s.SMTP, &s.IMAP} {
		m.Username, m.PasswordFile, m.CAFile = s.Username, s.PasswordFile, s.CAFile
	}
	section, err := config.Parse("", []byte(s.Section()))
	if err != nil {
		return withoutPosition(err)
	}
	if h.Config.Email != nil && s.Write {
		return console.Fail(console.ExitError, "edit "+h.Config.File, "%s already has a section [channels.email]", h.Config.File)
	}
	if err := checkEmail(ctx, a, h, section.Email, true); err != nil {
		return err
	}
	if !s.Write {
		fmt.Fprintf(a.Out, "\n%s\nAlso: approvers need email = \"…\", and workspaces channels = [\"email\"].\n", s.Section())
		return nil
	}
	if h, err = editable(a); err != nil {
		return err
	}
	if err := editFile(h.Config.File, func(data []byte) ([]byte, error) { return home.Reader(a).AddEmail(h.Config.File, data, s.NewEmail) }); err != nil {
		return withoutPosition(err)
	}
	fmt.Fprintf(a.Out, "added   [channels.email] to %s\nNow: approvers need email = \"…\", and workspaces channels = [\"email\"]; then permesso email test\n", h.Config.File)
	return nil
}

// fillProvider fills in what is known of a provider.
func (s *EmailSection) fillProvider() {
	known := config.MailProviders[s.OAuth.Provider]
	s.SMTP.Address = cmp.Or(s.SMTP.Address, known.SMTP)
	if s.Maildir == "" {
		s.IMAP.Address = cmp.Or(s.IMAP.Address, known.IMAP)
	}
	if s.OAuth.Provider != "" {
		s.Username = cmp.Or(s.Username, s.From)
	}
}

// checkEmail logs in to both servers. With OAuth, it lets a person authorize the daemon: before, if
// that is to be done anew, or if a server refuses the earlier authorization.
func checkEmail(ctx context.Context, a *console.Console, h *home.Home, cfg *config.Email, anew bool) error {
	m := daemon.NewMailSettings(cfg, a.Env, h.Layout.Keys())
	if m.Tokens == nil || !anew {
		refused, err := logIn(ctx, a, m)
		if m.Tokens == nil || !refused {
			return err
		}
	}
	if err := authorize(ctx, a, m); err != nil {
		return console.Wrap(console.ExitError, err, hints.Of(err))
	}
	_, err := logIn(ctx, a, m)
	return err
}

// authorizeTimeout is how long a person may take.
const authorizeTimeout = 10 * time.Minute

// authorize lets a person authorize the daemon in a browser, and saves the token.
func authorize(ctx context.Context, a *console.Console, m daemon.MailSettings) error {
	ctx, cancel := context.WithTimeout(ctx, authorizeTimeout)
	defer cancel()
	keys, err := os.Stat(filepath.Dir(m.Tokens.File))
	if err != nil {
		return console.Fail(console.ExitError, "permesso init, then permesso email setup", "no home for the token: %v", err)
	}
	client, err := m.OAuthClient()
	if err != nil {
		return fmt.Errorf("read the secret of the OAuth client: %w", err)
	}
	var token *oauth.Token
	if client.DeviceURL != "" {
		token, err = client.AuthorizeDevice(ctx, func(address, code string) {
			fmt.Fprintf(a.Out, "Open %s in a browser, log in as %s, and type this code: %s\n", chat.Escape(address), client.Account, chat.Escape(code))
		})
	} else {
		token, err = client.AuthorizeCode(ctx, func(page string) {
			fmt.Fprintf(a.Out, "Open this page in a browser on this machine, and log in as %s:\n%s\n", client.Account, page)
		})
	}
	if err != nil {
		return err
	}
	if err := m.Tokens.Save(token); err != nil {
		return fmt.Errorf("save the token: %w", err)
	}
	if owner, ok := keys.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		err = os.Chown(m.Tokens.File, int(owner.Uid), int(owner.Gid)) // the daemon refreshes it
	}
	fmt.Fprintf(a.Out, "ok      authorized; the token is in %s\n", m.Tokens.File)
	return err
}

// logIn logs in to both servers. refused says that a retry would fail, too.
func logIn(ctx context.Context, a *console.Console, m daemon.MailSettings) (refused bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cfg, failed := m.Email, 0
	report := func(what string, err error) {
		if err == nil {
			fmt.Fprintf(a.Out, "ok      %s\n", what)
			return
		}
		failed++
		failure := (*mailbox.Error)(nil)
		refused = refused || errors.As(err, &failure) && !failure.Temporary
		fmt.Fprintf(a.Out, "failed  %s: %v\n", what, err)
		if hint := hints.Of(err); hint != "" {
			fmt.Fprintf(a.Out, "  hint: %s\n", hint)
		}
	}
	report("outgoing email at "+cfg.SMTP.Address, m.Sender().Check(ctx))
	switch {
	case cfg.IMAP.Address != "":
		report("incoming email at "+cfg.IMAP.Address, m.Mailbox(nil, nil).Check(ctx))
	case cfg.Maildir != "":
		report("incoming email in "+cfg.Maildir, (&mailbox.Maildir{Path: cfg.Maildir}).Check(ctx))
	default:
		fmt.Fprintln(a.Out, "        incoming email: permesso email deliver")
	}
	if failed > 0 {
		return refused, &console.Error{Code: console.ExitError, Err: errors.New("email channel check failed")}
	}
	return false, nil
}

// SendTestEmail sends a test email to an approver and reports what the reply proves.
func SendTestEmail(ctx context.Context, a *console.Console, pos []string, timeout time.Duration) (err error) {
	h, _, err := home.Open(a)
	if err != nil {
		return err
	}
	if h.Config.Email == nil {
		return console.Fail(console.ExitError, "permesso email setup", "[channels.email] is not configured")
	}
	who, err := mailApprover(h.Config, pos)
	if err != nil {
		return err
	}
	m := daemon.NewMailSettings(h.Config.Email, a.Env, h.Layout.Keys())
	tests, err := daemon.EmailSentStore(h).State(daemon.StoreTests)
	if err != nil {
		return err
	}
	box := m.Box(func(string) mailbox.State { return &memoryState{} }, func(string) func(error) { return nil }, nil)
	inbox, err := daemon.EmailSentStore(h).State(daemon.StoreInbox)
	if err != nil {
		return err
	}
	test := &email.TestMail{Inbox: inbox, Store: tests, Addressing: m.Addressing(), Sender: m.Sender(), To: who.IDs["email"]}
	defer func() { err = errors.Join(err, test.End()) }()
	if err := test.Send(ctx); err != nil {
		return console.Wrap(console.ExitError, fmt.Errorf("send test email: %w", err), hints.Of(err))
	}
	fmt.Fprintf(a.Out, "sent    a test email to %s; reply to it (timeout %s)\n", who.IDs["email"], timeout)
	raw, err := test.Await(ctx, box)
	if errors.Is(err, context.DeadlineExceeded) {
		return console.Fail(console.ExitTimeout, "check the spam folder; with sub_addressing = true your server must deliver name+anything@domain", "timeout: no reply within %s", timeout)
	}
	if err != nil {
		return console.Wrap(console.ExitError, err, hints.Of(err))
	}
	return reportTest(a, test.Examine(context.WithoutCancel(ctx), raw, m.Authenticator()), who)
}

// reportTest prints what a reply proves about its sender.
func reportTest(a *console.Console, f email.Findings, who approval.Approver) error {
	var b strings.Builder
	write := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	write("received a reply: %q", f.Answer)
	if f.Refused != "" {
		write("⚠       such a reply would not be taken: %s", f.Refused)
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
		write("The sender is not authenticated: no reply from %s will be accepted.", who.IDs["email"])
		return errors.Join(a.Print(f, strings.TrimRight(b.String(), "\n")), console.Wrap(console.ExitError, errors.New("the reply does not authenticate its sender"), "the approver's provider must sign its emails (DKIM) and publish DMARC"))
	}
	write("Add these lines to [channels.email]:")
	for _, l := range f.Lines() {
		write("  %s", l)
	}
	switch {
	case f.Unnamed:
		write("Set authserv_unnamed only if your server puts its own Authentication-Results above all others, into every email; dkim works without it.")
	case f.Stated == "":
		write("Set authserv_id only if your server removes incoming Authentication-Results with that name; dkim works without it.")
	}
	err := a.Print(f, strings.TrimRight(b.String(), "\n"))
	if f.Refused != "" {
		err = errors.Join(err, console.Fail(console.ExitError, "change what the line with ⚠ names, then repeat the test", "replies such as this one would not be taken"))
	}
	return err
}

// mailApprover returns the approver to test with.
func mailApprover(cfg *config.Config, pos []string) (approval.Approver, error) {
	var all []string
	for name, p := range cfg.Approvers {
		if p.IDs["email"] != "" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	switch {
	case len(pos) == 1 && slices.Contains(all, pos[0]):
		return cfg.Approvers[pos[0]], nil
	case len(pos) == 1:
		return approval.Approver{}, console.Fail(console.ExitError, "approvers with an email address: "+strings.Join(all, ", "), "%q is not an approver with an email address", pos[0])
	case len(all) != 1:
		return approval.Approver{}, console.Fail(console.ExitUsage, "permesso email test NAME, one of: "+strings.Join(all, ", "), "email test needs the name of an approver")
	}
	return cfg.Approvers[all[0]], nil
}

// memoryState is a mailbox state that is not saved.
type memoryState struct{ data []byte }

func (f *memoryState) Load() ([]byte, error) { return f.data, nil }

func (f *memoryState) Save(data []byte) error { f.data = data; return nil }
