package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
)

// meeting is one telegram setup, from its flags to its end.
type meeting struct {
	app       *app
	workspace string
	approver  string
	tokenFile string
	server    string
	patience  time.Duration
	yes       bool

	house *house
	token string
	file  string // that holds the token, or will; "": the environment holds it
	made  bool   // the file is still to be written
	setup *telegram.Setup
	bot   telegram.Bot
	seen  telegram.Started
	out   io.Writer // for people
	wait  *waiting
}

// met is what telegram setup --json tells.
type met struct {
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

func (m *meeting) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{m.prepare, m.readToken, m.meet, m.start, m.choose, m.tryOut, m.write} {
		if err := step(ctx); err != nil {
			return m.explained(ctx, err)
		}
	}
	return m.report()
}

// asks says whether there is somebody to be asked.
func (m *meeting) asks() bool { return !m.yes && terminal(m.app.In) }

// prepare refuses what cannot go well, before anybody picks a telephone up.
func (m *meeting) prepare(context.Context) error {
	var err error
	if m.house, err = m.app.editable(); err != nil {
		return err
	}
	m.out = m.app.Out
	if m.app.json {
		m.out = m.app.Err
	}
	m.wait = &waiting{out: m.out, live: terminal(m.out)}
	cfg := m.house.cfg
	if _, ok := cfg.Workspaces[m.workspace]; m.workspace != "" && !ok {
		return noWorkspace(cfg, m.workspace)
	}
	if m.workspace == "" && len(cfg.Workspaces) > 1 && !m.asks() {
		return fail(codeUsage, "name one of them: --workspace "+strings.Join(sortedNames(cfg), ", "), "which workspace?")
	}
	if m.approver != "" {
		if err := checkName(m.approver); err != nil {
			return err
		}
	}
	had := ""
	if cfg.Telegram != nil {
		had = cfg.Telegram.ServerURL
	}
	m.server = strings.TrimRight(cmp.Or(m.server, m.app.Env(telegramServer), had), "/")
	if err := config.CheckServerURL(m.server); err != nil {
		return fail(codeUsage, "", "%w", err)
	}
	if had != "" && had != m.server {
		return fail(codeError, "change it there, if that is what you want", "[channels.telegram] names another server_url")
	}
	return nil
}

// readToken finds the token. It is in no error and no line of ours.
func (m *meeting) readToken(ctx context.Context) (err error) {
	cfg := m.house.cfg.Telegram
	configured := ""
	if cfg != nil {
		configured = cfg.TokenFile
	}
	beside := filepath.Join(filepath.Dir(m.house.cfg.File), "telegram.token")
	if beside, err = filepath.Abs(beside); err != nil {
		return err
	}
	switch {
	case m.tokenFile != "":
		if m.file, err = filepath.Abs(m.tokenFile); err != nil {
			return err
		}
		if configured != "" && configured != m.file {
			return fail(codeError, "write the token into that file, or change the line there", "[channels.telegram] names another token_file")
		}
		return m.readTokenFile(m.file)
	case configured != "" && exists(configured):
		m.file = configured
		return m.readTokenFile(m.file)
	}
	m.file, m.made = cmp.Or(configured, beside), true
	if m.token = strings.TrimSpace(m.app.Env(telegramToken)); m.token != "" {
		if cfg != nil && configured == "" {
			m.file, m.made = "", false // so it was, and the gate has it from there
		}
		return m.valid(telegramToken)
	}
	return m.askToken(ctx)
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

// readTokenFile reads the token where it will be read by the gate.
func (m *meeting) readTokenFile(file string) (err error) {
	if m.token, err = secretLine(file); err != nil {
		return fail(codeError, "", "%w", err)
	}
	if err := m.valid(file); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != m.daemonUser().uid {
		return fail(codeError, fmt.Sprintf("chown %d %s", m.daemonUser().uid, shellWord(file)), "%s: the gate's user could not read it", file)
	}
	return nil
}

func (m *meeting) valid(from string) error {
	if telegram.ValidToken(m.token) {
		return nil
	}
	return fail(codeError, "one looks like 123456789:AA… and comes from @BotFather", "%s does not hold a token", from)
}

// account is who runs the gate.
type account struct{ uid, gid int }

// daemonUser is whoever owns the home; where there is none yet, the user that a
// package made, or else we.
func (m *meeting) daemonUser() account {
	if info, err := os.Stat(m.house.layout.Home); err == nil {
		if owner, ok := info.Sys().(*syscall.Stat_t); ok {
			return account{int(owner.Uid), int(owner.Gid)}
		}
	}
	if u, err := user.Lookup("permesso"); err == nil && m.house.cfg.File == systemConfig && os.Geteuid() == 0 {
		uid, bad := strconv.Atoi(u.Uid)
		gid, worse := strconv.Atoi(u.Gid)
		if bad == nil && worse == nil {
			return account{uid, gid}
		}
	}
	return account{os.Geteuid(), os.Getegid()}
}

// askToken reads the token from the keyboard, which does not show it.
func (m *meeting) askToken(ctx context.Context) error {
	in, ok := m.app.In.(*os.File)
	if !ok || !terminal(in) {
		return fail(codeUsage, "--token-file FILE, or "+telegramToken, "no token, and no terminal to ask for it")
	}
	fmt.Fprintln(m.out, "@BotFather in Telegram makes a bot for you: /newbot. It gives you a token.")
	// From here on nothing that is typed is shown, whatever ends the asking.
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	err = m.typeToken(ctx, in)
	return errors.Join(err, term.Restore(int(in.Fd()), state))
}

// typeToken asks a few times, on a terminal that needs to be told to begin a
// line at its left.
func (m *meeting) typeToken(ctx context.Context, in io.Reader) error {
	for range 3 {
		fmt.Fprint(m.out, "Token (it is not shown): ")
		line, err := hidden(ctx, in)
		fmt.Fprint(m.out, "\r\n")
		if err != nil {
			return err
		}
		if m.token = strings.TrimSpace(line); telegram.ValidToken(m.token) {
			return nil
		}
		fmt.Fprint(m.out, "   That is none: one looks like 123456789:AA…\r\n")
	}
	return m.valid("what was typed")
}

// hidden reads a line, or until ctx ends; then the reading ends with the program.
func hidden(ctx context.Context, in io.Reader) (string, error) {
	type read struct {
		line string
		err  error
	}
	done := make(chan read, 1)
	go func() {
		line, err := rawLine(in)
		done <- read{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-done:
		return r.line, r.err
	}
}

// rawLine reads a line from a terminal that passes every key on.
func rawLine(in io.Reader) (string, error) {
	const longest = 1000
	var line []byte
	b := make([]byte, 1)
	for {
		if n, err := in.Read(b); n == 0 {
			return "", errors.Join(err, fail(codeError, "", "the input has ended; nothing was written"))
		}
		switch c := b[0]; {
		case c == '\r' || c == '\n':
			return string(line), nil
		case c == 'C'&0x1f:
			return "", fail(codeError, "", "stopped; nothing was written")
		case c == 'D'&0x1f:
			return "", fail(codeError, "", "the input has ended; nothing was written")
		case c == 'U'&0x1f:
			line = nil
		case c == '\b' || c == 0x7f:
			line = line[:max(0, len(line)-1)]
		case len(line) < longest:
			line = append(line, c)
		}
	}
}

// meet asks Telegram who the bot is, unless our own gate talks with it.
func (m *meeting) meet(ctx context.Context) (err error) {
	if served, err := m.house.served(); err != nil || served && m.pollsWith(m.token) {
		if err != nil {
			return err
		}
		return fail(codeLocked, "stop it (systemctl --user stop permesso, or Ctrl-C where it runs), and start it again afterwards",
			"the gate of this home gets the messages of this bot, your /start too")
	}
	m.setup = &telegram.Setup{Token: m.token, ServerURL: m.server, Tell: m.wait.note}
	if m.bot, err = m.setup.Me(ctx); err != nil {
		if ctx.Err() != nil || errors.Is(err, telegram.ErrToken) {
			return err
		}
		return fail(codeError, "is this machine online, and server_url right?", "%w", err)
	}
	fmt.Fprintf(m.out, "bot     @%s\n", chat.Escape(m.bot.Username))
	if cfg := m.house.cfg.Telegram; cfg != nil && cfg.Webhook != nil {
		if err := m.setup.Unhook(ctx); err != nil {
			return err
		}
		fmt.Fprintln(m.out, "        its webhook is off; permesso serve sets it again")
	}
	return nil
}

// pollsWith says whether a gate of this home would use that token.
func (m *meeting) pollsWith(token string) bool {
	if m.house.cfg.Telegram == nil {
		return false
	}
	theirs, err := botToken(m.house.cfg.Telegram, m.app.Env)
	return err != nil || theirs == token
}

// start waits for /start.
func (m *meeting) start(ctx context.Context) (err error) {
	code := telegram.Code()
	name := m.bot.Username
	fmt.Fprintf(m.out, "\nSay that it is you, within %v:\n", m.patience)
	fmt.Fprintf(m.out, "  in private:  open https://t.me/%s?start=%s, or write to @%s:  /start %s\n", name, code, name, code)
	if m.bot.JoinsGroup {
		fmt.Fprintf(m.out, "  in a group:  add @%s, and write there, or in one of its topics:  /start@%s %s\n", name, name, code)
	}
	ctx, stop := context.WithTimeout(ctx, m.patience)
	defer stop()
	defer m.wait.begin(ctx, "waiting for /start")()
	if m.seen, err = m.setup.Start(ctx, code); err != nil {
		return err
	}
	m.wait.end()
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

// chat is where the workspace is to be asked; zero: in private, as long as the
// configuration says nothing else.
func (m *meeting) chat() config.TelegramChat {
	if m.seen.Chat == m.seen.Person {
		return config.TelegramChat{}
	}
	return config.TelegramChat{ChatID: m.seen.Chat, ThreadID: m.seen.Thread}
}

// choose finds out for which workspace this is, and who it is.
func (m *meeting) choose(ctx context.Context) error {
	cfg := m.house.cfg
	p := &prompter{in: m.app.In, out: m.out}
	fixed := m.workspace != ""
	if !fixed {
		m.workspace = firstWorkspace(cfg)
	}
	if !fixed && len(cfg.Workspaces) > 1 {
		err := p.question(ctx, "\nWhich workspace is asked about here? "+strings.Join(sortedNames(cfg), ", "), &m.workspace,
			func(s string) error { return oneOf(s, sortedNames(cfg)) })
		if err != nil {
			return err
		}
	}
	if m.approver == "" {
		m.approver = m.likely()
		if m.asks() {
			err := p.question(ctx, "\nWhich approver are you? A new name is added.", &m.approver, checkName)
			if err != nil {
				return err
			}
		}
	}
	if m.approver == "" {
		return fail(codeUsage, "--approver NAME", "which approver is %d?", m.seen.Person)
	}
	if err := m.moves(ctx, p); err != nil {
		return err
	}
	// Tried before anybody is shown a card.
	b, err := os.ReadFile(cfg.File)
	if err != nil {
		return err
	}
	_, err = m.edit(b)
	return asTyped(err)
}

// likely is who this may be: the approver with that id, or the only one of the
// workspace that has none.
func (m *meeting) likely() string {
	cfg, id := m.house.cfg, strconv.FormatInt(m.seen.Person, 10)
	var free []string
	for name, a := range cfg.Approvers {
		if a.Telegram == id {
			return name
		}
	}
	for _, name := range cfg.Workspaces[m.workspace].Approvers {
		if cfg.Approvers[name].Telegram == "" {
			free = append(free, name)
		}
	}
	if len(free) == 1 {
		return free[0]
	}
	return ""
}

// moves asks before a workspace is asked elsewhere than before.
func (m *meeting) moves(ctx context.Context, p *prompter) error {
	had, there := m.house.cfg.TelegramChats[m.workspace]
	switch {
	case !there || had == m.chat():
		return nil
	case m.chat() == config.TelegramChat{}:
		fmt.Fprintf(m.out, "        workspace %s is asked in %s, and stays so\n", m.workspace, chatName(had.ChatID, had.ThreadID))
		return nil
	case m.yes:
		return nil
	case !m.asks():
		return fail(codeUsage, "--yes moves it", "workspace '%s' is asked in %s", m.workspace, chatName(had.ChatID, had.ThreadID))
	}
	fmt.Fprintf(m.out, "\nWorkspace %s is asked in %s. Ask here instead? [y/N] ", m.workspace, chatName(had.ChatID, had.ThreadID))
	line, err := p.line(ctx)
	if err == nil && !strings.HasPrefix(strings.ToLower(line), "y") {
		err = fail(codeError, "", "nothing was changed")
	}
	return err
}

func (m *meeting) edit(data []byte) ([]byte, error) {
	n := config.NewTelegram{Workspace: m.workspace, Approver: m.approver, ID: m.seen.Person, Chat: m.chat(), ServerURL: m.server, TokenFile: m.file}
	return m.app.reader().AddTelegram(m.house.cfg.File, data, n)
}

// tryOut sends a card and waits for the tap.
func (m *meeting) tryOut(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, m.patience)
	defer stop()
	fmt.Fprintf(m.out, "\nA test card is on its way: tap on it, within %v.\n", m.patience)
	defer m.wait.begin(ctx, "waiting for the tap")()
	language := cmp.Or(m.house.cfg.Approvers[m.approver].Language, m.house.cfg.Workspaces[m.workspace].Language)
	if err := m.setup.Card(ctx, m.seen, m.workspace, language); err != nil {
		return err
	}
	m.wait.end()
	fmt.Fprintf(m.out, "tapped  by %d\n", m.seen.Person)
	if err := m.setup.Close(ctx); err != nil {
		m.wait.note("Telegram was not told that this is done: " + err.Error())
	}
	return nil
}

// write writes the token, and then the lines that name its file: a gate that
// runs takes them up at once.
func (m *meeting) write(context.Context) error {
	fresh := false
	if m.made {
		var err error
		if fresh, err = writeToken(m.file, m.token, m.daemonUser()); err != nil {
			return err
		}
	}
	if err := editFile(m.house.cfg.File, m.edit); err != nil {
		if fresh {
			err = errors.Join(err, os.Remove(m.file))
		}
		return asTyped(err)
	}
	return nil
}

// writeToken writes a file that only its owner can read. What another file of
// that name holds is not thrown away; fresh is false where it is the same.
func writeToken(file, token string, owner account) (fresh bool, err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if had, err := secretLine(file); err == nil && had == token {
			return false, nil
		}
		return false, fail(codeError, "look at it, and remove it; or --token-file FILE", "%s is there already, with something else in it", file)
	}
	if err != nil {
		return false, fmt.Errorf("write the token: %w", err)
	}
	if owner.uid != os.Geteuid() {
		err = f.Chown(owner.uid, owner.gid)
	}
	if err == nil {
		_, err = f.WriteString(token + "\n")
	}
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = ipc.OS().SyncDir(filepath.Dir(file))
	}
	if err != nil {
		return false, errors.Join(fmt.Errorf("write the token: %w", err), os.Remove(file))
	}
	return true, nil
}

func (m *meeting) report() error {
	cfg := m.house.cfg
	if m.made {
		fmt.Fprintln(m.out, "wrote   "+m.file)
	}
	fmt.Fprintln(m.out, "wrote   "+cfg.File)
	hints := m.hints()
	for _, h := range hints {
		fmt.Fprintln(m.out, "hint: "+h)
	}
	if !m.app.json {
		return nil
	}
	return m.app.print(met{
		Bot: m.bot.Username, Workspace: m.workspace, Approver: m.approver, Telegram: m.seen.Person, Chat: m.seen.Chat, Thread: m.seen.Thread,
		Tapped: true, Config: cfg.File, TokenFile: m.file, Hints: hints,
	}, "")
}

func (m *meeting) hints() []string {
	hints := []string{}
	served, err := m.house.served()
	switch {
	case err == nil && served:
		hints = append(hints, "the gate that runs takes this up by itself")
	default:
		hints = append(hints, "permesso serve, or permesso service install, asks there from now on")
	}
	if m.file == "" {
		hints = append(hints, telegramToken+" must be in the gate's environment, too")
	}
	if m.seen.Chat != m.seen.Person && !m.bot.HearsAll {
		hints = append(hints, privacyHint(m.bot.Username))
	}
	return hints
}

// privacyHint says what a bot in Telegram's privacy mode does not hear.
func privacyHint(name string) string {
	return fmt.Sprintf("in groups @%s hears only commands, such as /pending, and replies to its cards; for bare words such as approve a7f3b2c1 "+
		"let @BotFather turn /setprivacy off, and add the bot to the group anew", chat.Escape(name))
}

// explained adds what to do.
func (m *meeting) explained(ctx context.Context, err error) error {
	if m.wait != nil {
		m.wait.end()
	}
	var known *exit
	switch {
	case errors.As(err, &known):
		return err
	case ctx.Err() != nil:
		return fail(codeError, "", "stopped; nothing was written")
	case errors.Is(err, context.DeadlineExceeded) && m.seen.Person == 0:
		return fail(codeError, "open the link, or write the line to the bot; --timeout 30m waits longer", "nobody wrote /start with the number; nothing was written")
	case errors.Is(err, context.DeadlineExceeded):
		return fail(codeError, "is that your account? --timeout 30m waits longer", "nobody tapped on the test card; nothing was written")
	case errors.Is(err, telegram.ErrToken):
		return tokenRefused(err)
	case errors.Is(err, telegram.ErrGuessed):
		return fail(codeError, "try again: the number is another one then", "%w; nothing was written", err)
	case errors.Is(err, telegram.ErrTaken):
		return fail(codeLocked, "a gate of another home, perhaps: stop it first, or let @BotFather make one more bot: /newbot", "%w; nothing was written", err)
	}
	return err
}

// waiting shows how long there is still to wait.
type waiting struct {
	out  io.Writer
	live bool // a line that is drawn again and again makes sense

	stop func()
	done chan struct{}
	text chan string
}

// begin shows the line until end.
func (w *waiting) begin(ctx context.Context, text string) (end func()) {
	if !w.live {
		fmt.Fprintln(w.out, text+" …")
		return func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	w.stop, w.done, w.text = stop, make(chan struct{}), make(chan string)
	deadline, _ := ctx.Deadline()
	go func() {
		defer close(w.done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			fmt.Fprintf(w.out, "\r\x1b[K%s … %v left", text, time.Until(deadline).Round(time.Second))
			select {
			case <-ctx.Done():
				fmt.Fprint(w.out, "\r\x1b[K")
				return
			case said := <-w.text:
				fmt.Fprintf(w.out, "\r\x1b[K        %s\n", said)
			case <-tick.C:
			}
		}
	}()
	return w.end
}

// end takes the line away; once more is no harm.
func (w *waiting) end() {
	if w.stop != nil {
		w.stop()
		<-w.done
		w.stop = nil
	}
}

// note says something above the line.
func (w *waiting) note(text string) {
	text = oneLine(text)
	if w.stop == nil {
		fmt.Fprintln(w.out, "        "+text)
		return
	}
	select {
	case w.text <- text:
	case <-w.done:
	}
}
