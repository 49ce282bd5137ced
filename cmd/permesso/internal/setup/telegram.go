package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// DefaultWait is how long telegram setup waits for /start, and for the tap.
const DefaultWait = 5 * time.Minute

// Telegram is one run of telegram setup.
type Telegram struct {
	Console   *console.Console
	Workspace string
	Approver  string
	TokenFile string
	Server    string
	Timeout   time.Duration
	Yes       bool

	home  *home.Home
	token string
	file  string // token file; "": the token is in the environment
	made  bool   // setup must write the file
	setup *telegram.Setup
	bot   telegram.Bot
	seen  telegram.Started
	out   io.Writer // for messages to the user
	wait  *progressLine
}

// TelegramResult is what telegram setup --json prints.
type TelegramResult struct {
	Bot       string   `json:"bot"`
	Workspace string   `json:"workspace"`
	Approver  string   `json:"approver"`
	Telegram  int64    `json:"telegram"`
	Chat      int64    `json:"chat_id"`
	Thread    int      `json:"thread_id"`
	Tapped    bool     `json:"tapped"`
	Config    string   `json:"config"`
	TokenFile string   `json:"token_file"` // "": the environment
	Hints     []string `json:"hints"`
}

// Run runs all steps of the setup.
func (m *Telegram) Run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{m.prepare, m.readToken, m.identifyBot, m.start, m.choose, m.sendTestCard, m.write} {
		if err := step(ctx); err != nil {
			return m.withHint(ctx, err)
		}
	}
	return m.report()
}

// interactive reports whether questions can be asked.
func (m *Telegram) interactive() bool { return !m.Yes && console.IsTerminal(m.Console.In) }

// prepare checks everything that does not need Telegram.
func (m *Telegram) prepare(context.Context) error {
	var err error
	if m.home, err = editable(m.Console); err != nil {
		return err
	}
	m.out = m.Console.Out
	if m.Console.JSON {
		m.out = m.Console.Err
	}
	m.wait = &progressLine{out: m.out, live: console.IsTerminal(m.out) && !m.Console.Dumb()}
	cfg := m.home.Config
	if _, ok := cfg.Workspaces[m.Workspace]; m.Workspace != "" && !ok {
		return noWorkspace(m.Workspace)
	}
	if m.Workspace == "" && len(cfg.Workspaces) > 1 && !m.interactive() {
		return console.Fail(console.ExitUsage, "set --workspace to one of: "+strings.Join(home.WorkspaceNames(cfg), ", "), "--workspace is required: there is more than one")
	}
	if m.Approver != "" {
		if err := checkName(m.Approver); err != nil {
			return err
		}
	}
	had := ""
	if cfg.Telegram != nil {
		had = cfg.Telegram.ServerURL
	}
	m.Server = strings.TrimRight(cmp.Or(m.Server, m.Console.Env(TelegramServer), had), "/")
	if err := config.CheckServerURL(m.Server); err != nil {
		return console.Fail(console.ExitUsage, "", "%w", err)
	}
	if had != "" && had != m.Server {
		return console.Fail(console.ExitError, "change server_url in the configuration first", "[channels.telegram] has another server_url: %s", had)
	}
	return nil
}

// identifyBot identifies the bot, and refuses one that this home's running daemon polls.
func (m *Telegram) identifyBot(ctx context.Context) (err error) {
	if served, err := m.home.Served(); err != nil || served && m.daemonUses(m.token) {
		if err != nil {
			return err
		}
		return console.Fail(console.ExitLocked, "stop the daemon (systemctl --user stop permesso, or Ctrl-C), and start it again afterwards",
			"the running daemon receives this bot's messages, including your /start")
	}
	m.setup = &telegram.Setup{Token: m.token, ServerURL: m.Server, Progress: m.wait.note}
	if m.bot, err = m.setup.Me(ctx); err != nil {
		if ctx.Err() != nil || errors.Is(err, telegram.ErrToken) {
			return err
		}
		return console.Fail(console.ExitError, "check the network and server_url", "%w", err)
	}
	fmt.Fprintf(m.out, "bot     @%s\n", chat.Escape(m.bot.Username))
	if cfg := m.home.Config.Telegram; cfg != nil && cfg.Webhook != nil {
		if err := m.setup.DeleteWebhook(ctx); err != nil {
			return err
		}
		fmt.Fprintln(m.out, "        webhook removed; permesso serve sets it again")
	}
	return nil
}

// daemonUses reports whether a daemon of this home would use the token.
func (m *Telegram) daemonUses(token string) bool {
	if m.home.Config.Telegram == nil {
		return false
	}
	theirs, err := home.BotToken(m.home.Config.Telegram, m.Console.Env)
	return err != nil || theirs == token
}

// start waits for /start with the code.
func (m *Telegram) start(ctx context.Context) (err error) {
	code := telegram.Code()
	name := m.bot.Username
	fmt.Fprintf(m.out, "\nWrite /start to the bot within %v:\n", m.Timeout)
	fmt.Fprintf(m.out, "  in private:  open https://t.me/%s?start=%s, or write to @%s:  /start %s\n", name, code, name, code)
	if m.bot.CanJoinGroups {
		fmt.Fprintf(m.out, "  in a group:  add @%s, and write there, or in one of its topics:  /start@%s %s\n", name, name, code)
	}
	ctx, stop := context.WithTimeout(ctx, m.Timeout)
	defer stop()
	end := m.wait.begin(ctx, "waiting for /start")
	defer end()
	if m.seen, err = m.setup.Start(ctx, code); err != nil {
		return err
	}
	end()
	who := chat.Escape(m.seen.Name)
	if m.seen.Username != "" {
		who += " (@" + chat.Escape(m.seen.Username) + ")"
	}
	where := "in private"
	if m.seen.Chat != m.seen.Person {
		where = fmt.Sprintf(`in "%s", %s`, chat.Escape(m.seen.Title), chatName(m.seen.Chat, m.seen.Thread))
	}
	fmt.Fprintf(m.out, "saw     %s, id %d, %s\n", who, m.seen.Person, where)
	return nil
}

// chat is the group to ask in; zero: private chats, unless configured otherwise.
func (m *Telegram) chat() config.TelegramChat {
	if m.seen.Chat == m.seen.Person {
		return config.TelegramChat{}
	}
	return config.TelegramChat{ChatID: m.seen.Chat, ThreadID: m.seen.Thread}
}

// choose determines workspace and approver.
func (m *Telegram) choose(ctx context.Context) error {
	cfg := m.home.Config
	p := &prompter{in: m.Console.In, out: m.out}
	fixed := m.Workspace != ""
	if !fixed {
		m.Workspace = home.WorkspaceNames(cfg)[0]
	}
	if !fixed && len(cfg.Workspaces) > 1 {
		err := p.question(ctx, "\nFor which workspace? "+strings.Join(home.WorkspaceNames(cfg), ", "), &m.Workspace,
			func(s string) error { return oneOf(s, home.WorkspaceNames(cfg)) })
		if err != nil {
			return err
		}
	}
	if m.Approver == "" {
		m.Approver = m.guessApprover()
		if m.interactive() {
			err := p.question(ctx, "\nWhich approver are you? A new name is added to [approvers].", &m.Approver, checkName)
			if err != nil {
				return err
			}
		}
	}
	if m.Approver == "" {
		return console.Fail(console.ExitUsage, "set --approver NAME", "--approver is required: no approver has Telegram id %d", m.seen.Person)
	}
	if err := m.confirmMove(ctx, p); err != nil {
		return err
	}
	// Check the edit before the test card is sent.
	b, err := os.ReadFile(cfg.File)
	if err != nil {
		return err
	}
	_, err = m.edit(b)
	return withoutPosition(err)
}

// guessApprover returns the approver with this Telegram id, or the workspace's only
// approver without one.
func (m *Telegram) guessApprover() string {
	cfg, id := m.home.Config, strconv.FormatInt(m.seen.Person, 10)
	var free []string
	for name, a := range cfg.Approvers {
		if a.IDs[telegram.Via] == id {
			return name
		}
	}
	for _, name := range cfg.Workspaces[m.Workspace].Approvers {
		if cfg.Approvers[name].IDs[telegram.Via] == "" {
			free = append(free, name)
		}
	}
	if len(free) == 1 {
		return free[0]
	}
	return ""
}

// confirmMove confirms that a workspace gets another chat.
func (m *Telegram) confirmMove(ctx context.Context, p *prompter) error {
	had, there := m.home.Config.TelegramChats[m.Workspace]
	switch {
	case !there || had == m.chat():
		return nil
	case m.chat() == config.TelegramChat{}:
		fmt.Fprintf(m.out, "        workspace %s keeps %s\n", m.Workspace, chatName(had.ChatID, had.ThreadID))
		return nil
	case m.Yes:
		return nil
	case !m.interactive():
		return console.Fail(console.ExitUsage, "--yes replaces it", "workspace '%s' already uses %s", m.Workspace, chatName(had.ChatID, had.ThreadID))
	}
	fmt.Fprintf(m.out, "\nWorkspace %s uses %s. Use this chat instead? [y/N] ", m.Workspace, chatName(had.ChatID, had.ThreadID))
	line, err := p.line(ctx)
	if err == nil && !strings.HasPrefix(strings.ToLower(line), "y") {
		err = console.Fail(console.ExitError, "", "cancelled; nothing was changed")
	}
	return err
}

func (m *Telegram) edit(data []byte) ([]byte, error) {
	n := config.NewTelegram{Workspace: m.Workspace, Approver: m.Approver, ID: m.seen.Person, Chat: m.chat(), ServerURL: m.Server, TokenFile: m.file}
	return home.Reader(m.Console).AddTelegram(m.home.Config.File, data, n)
}

// sendTestCard sends a test card and waits for the tap.
func (m *Telegram) sendTestCard(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, m.Timeout)
	defer stop()
	fmt.Fprintf(m.out, "\nA test card was sent. Tap its button within %v.\n", m.Timeout)
	end := m.wait.begin(ctx, "waiting for the tap")
	defer end()
	language := cmp.Or(m.home.Config.Approvers[m.Approver].Language, m.home.Config.Workspaces[m.Workspace].Language)
	if err := m.setup.Card(ctx, m.seen, m.Workspace, language); err != nil {
		return err
	}
	end()
	fmt.Fprintf(m.out, "tapped  by %d\n", m.seen.Person)
	if err := m.setup.Close(ctx); err != nil {
		m.wait.note("confirm updates to Telegram failed: " + err.Error())
	}
	return nil
}

// write writes the token before the configuration that names its file, because a
// running daemon loads the configuration at once.
func (m *Telegram) write(context.Context) error {
	fresh := false
	if m.made {
		var err error
		if fresh, err = writeToken(m.file, m.token, m.daemonUser()); err != nil {
			return err
		}
	}
	if err := editFile(m.home.Config.File, m.edit); err != nil {
		if fresh {
			err = errors.Join(err, os.Remove(m.file))
		}
		return withoutPosition(err)
	}
	return nil
}

func (m *Telegram) report() error {
	cfg := m.home.Config
	if m.made {
		fmt.Fprintln(m.out, "wrote   "+m.file)
	}
	fmt.Fprintln(m.out, "wrote   "+cfg.File)
	hints := m.hints()
	for _, h := range hints {
		fmt.Fprintln(m.out, "hint: "+h)
	}
	if !m.Console.JSON {
		return nil
	}
	return m.Console.Print(TelegramResult{
		Bot: m.bot.Username, Workspace: m.Workspace, Approver: m.Approver, Telegram: m.seen.Person, Chat: m.seen.Chat, Thread: m.seen.Thread,
		Tapped: true, Config: cfg.File, TokenFile: m.file, Hints: hints,
	}, "")
}

func (m *Telegram) hints() []string {
	hints := []string{}
	served, err := m.home.Served()
	switch {
	case err == nil && served:
		hints = append(hints, "the running daemon loads the change by itself")
	default:
		hints = append(hints, "start the daemon: permesso serve, or permesso service install")
	}
	if m.file == "" {
		hints = append(hints, home.TelegramToken+" must also be set in the daemon's environment")
	}
	if m.seen.Chat != m.seen.Person && !m.bot.ReadsAllMessages {
		hints = append(hints, home.PrivacyHint(m.bot.Username))
	}
	return hints
}

// withHint adds a hint to an error.
func (m *Telegram) withHint(ctx context.Context, err error) error {
	var known *console.Error
	switch {
	case errors.As(err, &known):
		return err
	case ctx.Err() != nil:
		return console.Fail(console.ExitError, "", "interrupted; nothing was written")
	case errors.Is(err, context.DeadlineExceeded) && m.seen.Person == 0:
		return console.Fail(console.ExitError, "open the link, or write the line to the bot; use --timeout 30m to wait longer", "timeout waiting for /start with the number; nothing was written")
	case errors.Is(err, context.DeadlineExceeded):
		return console.Fail(console.ExitError, "check that the card went to your account; use --timeout 30m to wait longer", "timeout waiting for the tap on the test card; nothing was written")
	case errors.Is(err, telegram.ErrToken):
		return tokenRefused(err)
	case errors.Is(err, telegram.ErrTooManyGuesses):
		return console.Fail(console.ExitError, "try again with the new number", "%w; nothing was written", err)
	case errors.Is(err, telegram.ErrBotInUse):
		return console.Fail(console.ExitLocked, "stop the other daemon that uses the bot, or create another bot with @BotFather: /newbot", "%w; nothing was written", err)
	}
	return err
}

// progressLine shows the remaining time.
type progressLine struct {
	out  io.Writer
	live bool // out is a terminal, the line can be redrawn
}

// begin shows the line until end is called, which may be called twice.
func (w *progressLine) begin(ctx context.Context, text string) (end func()) {
	if !w.live {
		fmt.Fprintln(w.out, text+" …")
		return func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	deadline, _ := ctx.Deadline()
	var drawing sync.WaitGroup
	drawing.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		defer fmt.Fprint(w.out, eraseLine)
		for ctx.Err() == nil {
			fmt.Fprintf(w.out, "%s%s … %v left", eraseLine, text, time.Until(deadline).Round(time.Second))
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	return func() {
		stop()
		drawing.Wait()
	}
}

const eraseLine = "\r\x1b[K"

// note prints text in place of the line, which is drawn again below it.
func (w *progressLine) note(text string) {
	if w.live {
		fmt.Fprint(w.out, eraseLine)
	}
	fmt.Fprintln(w.out, "        "+console.OneLine(text))
}
