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
		Use: "email", Short: "Set up asking by e-mail, test it, hand in answers", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return fail(codeUsage, "permesso email setup, test or deliver", "email: say what to do")
		},
	}
	c.AddCommand(a.emailSetupCmd(), a.emailTestCmd(), a.emailDeliverCmd())
	return c
}

// The exit codes of sysexits.h, which mail servers understand.
const (
	exDataErr  = 65
	exTempFail = 75
)

func (a *app) emailDeliverCmd() *cobra.Command {
	return &cobra.Command{
		Use: "deliver", Short: "Hand a mail in from standard input, for a mail server's pipe", Args: cobra.ArbitraryArgs,
		Long: "Hand a mail in from standard input, as a mail server does that delivers to a program. The gate need not run:\n" +
			"it takes the mail when it does. Arguments are ignored; the user must be the one that the gate runs as.\n\n" +
			"Exit codes are those of sysexits.h: 0 it is kept safely; 65 there is no mail; 75 try again later.",
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

// deliver does not read the configuration: a mistake there must not turn mails
// away.
func (a *app) deliver() error {
	home, err := config.LocateHome(a.homeFlag, a.Env)
	if err != nil {
		return err
	}
	h := &house{layout: ipc.Layout{Home: home}, fs: ipc.OS()}
	h.store = &ipc.Store{FS: h.fs, Layout: h.layout}
	if _, err := os.Stat(h.layout.Keys()); err != nil {
		return fmt.Errorf("no gate lives in %s", home)
	}
	if err := h.actAsOwner(); err != nil {
		return err
	}
	inbox, err := emailNotebook(h).State(drawerInbox)
	if err != nil {
		return err
	}
	name := strconv.FormatInt(time.Now().UnixNano(), 10) + "." + email.NewToken()
	return (&email.InboxQueue{Drawer: inbox}).Put(name, a.In)
}

// emailSetup is what the command line says of [channels.email].
type emailSetup struct {
	config.NewEmail
	username, passwordFile, caFile string
	write                          bool
}

func (a *app) emailSetupCmd() *cobra.Command {
	var s emailSetup
	c := &cobra.Command{
		Use: "setup", Short: "Check the login at the mail servers, and write the configuration", Args: cobra.NoArgs,
		Long: "Log in where mails are handed in and where answers are fetched, and say what is wrong. Without flags the\n" +
			"configuration's [channels.email] is checked; with them, what they say, and the lines for the configuration are\n" +
			"printed, or written with --write. The password lies in a file, or in " + emailPassword + ".",
		Example: "  permesso email setup --from permesso@example.org --smtp mail.example.org:587 --imap mail.example.org:993 \\\n" +
			"    --username permesso --password-file /etc/permesso/mail.password --write",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.setUpEmail(cmd, &s) },
	}
	f := c.Flags()
	f.StringVar(&s.From, "from", "", "the gate's own `address`")
	f.StringVar(&s.SMTP.Address, "smtp", "", "`host:port` where mails are handed in")
	f.StringVar(&s.SMTP.Security, "smtp-security", "", "`how` it is secured: starttls, tls or none (default: by the port)")
	f.StringVar(&s.IMAP.Address, "imap", "", "`host:port` where answers are fetched")
	f.StringVar(&s.IMAP.Security, "imap-security", "", "`how` it is secured: starttls, tls or none (default: by the port)")
	f.StringVar(&s.IMAP.Mailbox, "mailbox", "", "the `mailbox` there (default INBOX)")
	f.StringVar(&s.Maildir, "maildir", "", "`folder` that a mail server of this machine delivers into, instead of --imap")
	f.StringVar(&s.username, "username", "", "login `name`, for both")
	f.StringVar(&s.passwordFile, "password-file", "", "`file` with the password, for both")
	f.StringVar(&s.caFile, "ca-file", "", "`file` with the authority that signed the servers' certificates (PEM)")
	f.StringVar(&s.AuthservID, "authserv-id", "", "`name` under which your server writes Authentication-Results; see permesso email test")
	f.BoolVar(&s.SubAddressing, "sub-addressing", false, "the server delivers name+anything@domain, too")
	f.StringVar(&s.DNS, "dns", "", "`host:port` of the resolver for signatures (default: the system's)")
	f.BoolVar(&s.write, "write", false, "write the lines into the configuration")
	return c
}

func (a *app) setUpEmail(cmd *cobra.Command, s *emailSetup) error {
	h, err := a.house()
	if err != nil {
		return err
	}
	said := false
	for _, name := range []string{"from", "smtp", "imap", "maildir"} {
		said = said || cmd.Flags().Changed(name)
	}
	if !said {
		if h.cfg.Email == nil {
			return fail(codeUsage, "permesso email setup --help", "[channels.email] is not there: say with flags what belongs in it")
		}
		return a.checkEmail(cmd.Context(), h.cfg.Email)
	}
	for _, m := range []*config.MailServer{&s.SMTP, &s.IMAP} {
		m.Username, m.PasswordFile, m.CAFile = s.username, s.passwordFile, s.caFile
	}
	section, err := config.Parse("", []byte(s.Section()))
	if err != nil {
		return asTyped(err)
	}
	if h.cfg.Email != nil && s.write {
		return fail(codeError, "edit "+h.cfg.File, "%s has a section [channels.email] already", h.cfg.File)
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
		return asTyped(err)
	}
	fmt.Fprintf(a.Out, "added   [channels.email] to %s\nNow: approvers need email = \"…\", and workspaces channels = [\"email\"]; then permesso email test\n", h.cfg.File)
	return nil
}

// checkEmail logs in both ways.
func (a *app) checkEmail(ctx context.Context, cfg *config.Email) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	m, failed := mailSettings{cfg, a.Env}, 0
	tell := func(what string, err error) {
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
	tell("handing mails in at "+cfg.SMTP.Address, m.smtp().Check(ctx))
	switch {
	case cfg.IMAP.Address != "":
		tell("fetching answers at "+cfg.IMAP.Address, m.imap(nil, nil).Check(ctx))
	case cfg.Maildir != "":
		tell("reading answers in "+cfg.Maildir, (&email.Maildir{Path: cfg.Maildir}).Check(ctx))
	default:
		fmt.Fprintln(a.Out, "        answers come in by: permesso email deliver")
	}
	if failed > 0 {
		return &exit{code: codeError, err: errors.New("e-mail does not work yet")}
	}
	return nil
}

func (a *app) emailTestCmd() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use: "test [APPROVER]", Short: "Send a test card, await the answer, say what it proves", Args: cobra.MaximumNArgs(1),
		Long: "Send a test card to an approver and wait for the answer. Nothing is decided by it. It shows whether answers\n" +
			"come in, how your mail server says who wrote them, and which lines of [channels.email] follow from that.",
		ValidArgsFunction: a.completeApprovers,
		RunE: func(cmd *cobra.Command, pos []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return a.testEmail(ctx, pos, timeout)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long to wait for the answer")
	return c
}

func (a *app) testEmail(ctx context.Context, pos []string, timeout time.Duration) (err error) {
	h, _, err := a.existing()
	if err != nil {
		return err
	}
	if h.cfg.Email == nil {
		return fail(codeError, "permesso email setup", "[channels.email] is not there")
	}
	who, err := mailApprover(h.cfg, pos)
	if err != nil {
		return err
	}
	m := mailSettings{h.cfg.Email, a.Env}
	tests, err := emailNotebook(h).State(drawerTests)
	if err != nil {
		return err
	}
	box := m.box(nil, func(string) func(error) { return func(error) {} })
	switch b := box.(type) {
	case *email.IMAP:
		b.State = &forgetful{}
	case *email.Maildir:
		b.State = &forgetful{}
	}
	inbox, err := emailNotebook(h).State(drawerInbox)
	if err != nil {
		return err
	}
	test := &email.TestMail{Inbox: inbox, Drawer: tests, Addressing: m.addressing(), Sender: m.smtp(), To: who.Email}
	defer func() { err = errors.Join(err, test.End()) }()
	if err := test.Send(ctx); err != nil {
		return fmt.Errorf("send the test card: %w", err)
	}
	fmt.Fprintf(a.Out, "sent    a test card to %s; reply to it (waiting %s)\n", who.Email, timeout)
	raw, err := test.Await(ctx, box)
	if errors.Is(err, context.DeadlineExceeded) {
		return fail(codeWaiting, "look for the card in the spam folder; with sub_addressing = true, does your server deliver name+anything@domain?", "no answer came within %s", timeout)
	}
	if err != nil {
		return err
	}
	return a.reportTest(email.Examine(context.WithoutCancel(ctx), raw, m.lookup()), who)
}

// reportTest says what an answer proves.
func (a *app) reportTest(f email.Findings, who approval.Approver) error {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("came    an answer: %q", f.Answer)
	if f.Automatic != "" {
		say("⚠       it would be ignored: %s", f.Automatic)
	}
	if !f.Clear {
		say("⚠       it would be answered with the menu: it does not begin with a code")
	}
	if f.Field == "" {
		say("        your mail server writes no Authentication-Results")
	} else {
		say("        Authentication-Results: %s", f.Field)
	}
	yes := func(why string) string {
		if why == "" {
			return "proves the sender"
		}
		return why
	}
	say("DMARC by the server: %s", yes(f.Stated))
	say("DKIM, verified here: %s", yes(f.Signed))
	say("")
	if f.Sender == "" {
		say("Nothing proves who wrote it: as things are, no answer from %s will count.", who.Email)
		return errors.Join(a.print(f, strings.TrimRight(b.String(), "\n")), &exit{codeError, errors.New("the answer proves nothing"), "does the approver's provider sign its mails (DKIM), and publish DMARC?"})
	}
	say("These lines belong into [channels.email]:")
	for _, l := range f.Lines() {
		say("  %s", l)
	}
	if f.Stated == "" {
		say("authserv_id needs a server that removes such fields of that name from what comes in; with dkim alone it is not needed.")
	}
	return a.print(f, strings.TrimRight(b.String(), "\n"))
}

// mailApprover is the one to be tested with.
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
		return approval.Approver{}, fail(codeError, "those are: "+strings.Join(all, ", "), "%q is no approver with an e-mail address", pos[0])
	case len(all) != 1:
		return approval.Approver{}, fail(codeUsage, "permesso email test NAME; there are: "+strings.Join(all, ", "), "say whom to test with")
	}
	return cfg.Approvers[all[0]], nil
}

// forgetful is the State of a box that is read once.
type forgetful struct{ data []byte }

func (f *forgetful) Load() ([]byte, error)  { return f.data, nil }
func (f *forgetful) Save(data []byte) error { f.data = data; return nil }
