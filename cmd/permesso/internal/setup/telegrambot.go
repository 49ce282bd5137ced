package setup

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
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/daemon"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
)

// readToken finds the token. Errors and output never contain it.
func (m *Telegram) readToken(ctx context.Context) (err error) {
	cfg := m.home.Config.Telegram
	configured := ""
	if cfg != nil {
		configured = cfg.TokenFile
	}
	beside := filepath.Join(filepath.Dir(m.home.Config.File), "telegram.token")
	if beside, err = filepath.Abs(beside); err != nil {
		return err
	}
	switch {
	case m.TokenFile != "":
		if m.file, err = filepath.Abs(m.TokenFile); err != nil {
			return err
		}
		if configured != "" && configured != m.file {
			return console.Fail(console.ExitError, "write the token into that file, or change token_file first", "[channels.telegram] has another token_file: %s", configured)
		}
		return m.readTokenFile(m.file)
	case configured != "" && exists(configured):
		m.file = configured
		return m.readTokenFile(m.file)
	}
	m.file, m.made = cmp.Or(configured, beside), true
	if m.token = strings.TrimSpace(m.Console.Env(home.TelegramToken)); m.token != "" {
		if cfg != nil && configured == "" {
			m.file, m.made = "", false // the daemon reads it from there too
		}
		return m.checkToken(home.TelegramToken)
	}
	return m.askToken(ctx)
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

// readTokenFile reads the token from the file that the daemon will read.
func (m *Telegram) readTokenFile(file string) (err error) {
	if m.token, err = home.SecretWord(file); err != nil {
		return console.Fail(console.ExitError, "", "%w", err)
	}
	if err := m.checkToken(file); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if owner, ok := ownerOf(info); ok && owner.uid != m.daemonUser().uid {
		return console.Fail(console.ExitError, fmt.Sprintf("chown %d %s", m.daemonUser().uid, sandbox.ShellWord(file)), "%s: not readable by the daemon's user", file)
	}
	return nil
}

func (m *Telegram) checkToken(from string) error {
	if telegram.ValidToken(m.token) {
		return nil
	}
	return console.Fail(console.ExitError, "@BotFather issues the token, it looks like 123456789:AA…", "%s: not a valid bot token", from)
}

// account is a user with its group.
type account struct{ uid, gid int }

func ourselves() account { return account{os.Geteuid(), os.Getegid()} }

func ownerOf(info fs.FileInfo) (account, bool) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return account{int(st.Uid), int(st.Gid)}, true
	}
	return account{}, false
}

// daemonUser is the owner of the home; without a home the user permesso of a
// package, or else the current user.
func (m *Telegram) daemonUser() account {
	if info, err := os.Stat(m.home.Layout.Home); err == nil {
		if owner, ok := ownerOf(info); ok {
			return owner
		}
	}
	if u, err := user.Lookup("permesso"); err == nil && m.home.Config.File == config.SystemFile && os.Geteuid() == 0 {
		uid, bad := strconv.Atoi(u.Uid)
		gid, worse := strconv.Atoi(u.Gid)
		if bad == nil && worse == nil {
			return account{uid, gid}
		}
	}
	return ourselves()
}

// askToken reads the token from the keyboard without echo.
func (m *Telegram) askToken(ctx context.Context) error {
	in, ok := m.Console.In.(*os.File)
	if !ok || !console.IsTerminal(in) {
		return console.Fail(console.ExitUsage, "set --token-file FILE or "+home.TelegramToken, "no bot token and no terminal to ask for it")
	}
	fmt.Fprintln(m.out, "Create a bot with @BotFather in Telegram: /newbot. It gives you a token.")
	// From here on the terminal does not echo, whatever ends the input.
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	err = m.typeToken(ctx, in)
	return errors.Join(err, term.Restore(int(in.Fd()), state))
}

// typeToken asks up to three times. The raw terminal needs \r at a line's end.
func (m *Telegram) typeToken(ctx context.Context, in io.Reader) error {
	for range 3 {
		fmt.Fprint(m.out, "Token (not shown): ")
		line, err := readLine(ctx, in, rawLine)
		fmt.Fprint(m.out, "\r\n")
		if err != nil {
			return err
		}
		if m.token = strings.TrimSpace(line); telegram.ValidToken(m.token) {
			return nil
		}
		fmt.Fprint(m.out, "   Not a valid token. A token looks like 123456789:AA…\r\n")
	}
	return m.checkToken("typed text")
}

// rawLine reads a line from a terminal in raw mode.
func rawLine(in io.Reader) (string, error) {
	const longest = 1000
	var line []byte
	b := make([]byte, 1)
	for {
		if n, err := in.Read(b); n == 0 {
			return "", errors.Join(err, console.Fail(console.ExitError, "", "end of input; nothing was written"))
		}
		switch c := b[0]; {
		case c == '\r' || c == '\n':
			return string(line), nil
		case c == 'C'&0x1f:
			return "", console.Fail(console.ExitError, "", "interrupted; nothing was written")
		case c == 'D'&0x1f:
			return "", console.Fail(console.ExitError, "", "end of input; nothing was written")
		case c == 'U'&0x1f:
			line = nil
		case c == '\b' || c == 0x7f:
			line = line[:max(0, len(line)-1)]
		case len(line) < longest:
			line = append(line, c)
		}
	}
}

// writeToken writes a file that only its owner can read. It never overwrites a
// file with other content; fresh is false if the content is the same.
func writeToken(file, token string, owner account) (fresh bool, err error) {
	err = createFile(file, token+"\n", owner)
	switch {
	case errors.Is(err, fs.ErrExist):
		if had, err := home.SecretWord(file); err == nil && had == token {
			return false, nil
		}
		return false, console.Fail(console.ExitError, "remove the file, or use --token-file FILE", "%s exists with other content", file)
	case err != nil:
		return false, fmt.Errorf("write token: %w", err)
	}
	return true, nil
}

// TelegramServer is the environment variable of the Bot API server's address for
// setup.
const TelegramServer = "PERMESSO_TELEGRAM_SERVER_URL"

// sentTest is the result for one chat of telegram test.
type sentTest struct {
	Workspace string `json:"workspace"`
	Chat      int64  `json:"chat_id"`
	Thread    int    `json:"thread_id"`
	Error     string `json:"error"`
}

// SendTestMessages sends a test message to every configured chat.
func SendTestMessages(ctx context.Context, a *console.Console, only string) error {
	h, err := home.Load(a)
	if err != nil {
		return err
	}
	if only != "" {
		if err := console.CheckWorkspace(only, home.WorkspaceNames(h.Config)); err != nil {
			return err
		}
	}
	if h.Config.Telegram == nil {
		return console.Fail(console.ExitError, "permesso telegram setup", "[channels.telegram] is not configured")
	}
	token, err := home.BotToken(h.Config.Telegram, a.Env)
	if err != nil {
		return err
	}
	s := &telegram.Setup{Token: token, ServerURL: h.Config.Telegram.ServerURL}
	all, failed := make([]sentTest, 0), 0
	for _, ws := range home.WorkspaceNames(h.Config) {
		if only != "" && ws != only || !slices.Contains(h.Config.Workspaces[ws].Channels, telegram.Via) {
			continue
		}
		for _, to := range daemon.TelegramPlaces(h.Config, ws) {
			t := sentTest{Workspace: ws, Chat: to.Chat.Number(), Thread: int(to.Thread.Number())}
			to.Language = cmp.Or(to.Language, h.Config.Workspaces[ws].Language)
			if err := s.SendTestMessage(ctx, to, ws); errors.Is(err, telegram.ErrToken) {
				return tokenRefused(err)
			} else if err != nil {
				t.Error = err.Error()
				failed++
			}
			all = append(all, t)
			printTest(a, t)
		}
	}
	return endTest(a, all, failed)
}

func printTest(a *console.Console, t sentTest) {
	switch {
	case a.JSON:
	case t.Error != "":
		fmt.Fprintf(a.Err, "permesso: %s: %s: %s\n", t.Workspace, chatName(t.Chat, t.Thread), console.OneLine(t.Error))
	default:
		fmt.Fprintf(a.Out, "sent    %s: %s\n", t.Workspace, chatName(t.Chat, t.Thread))
	}
}

func endTest(a *console.Console, all []sentTest, failed int) error {
	if a.JSON {
		if err := a.Print(all, ""); err != nil {
			return err
		}
	}
	switch {
	case len(all) == 0:
		return console.Fail(console.ExitError, "permesso telegram setup", "no workspace uses Telegram")
	case failed > 0:
		return console.Fail(console.ExitError, "write /start to the bot in that chat and do not block it; the chat_id of a group changes when it becomes a supergroup",
			"%d of %d chats did not get the message", failed, len(all))
	}
	return nil
}

func tokenRefused(err error) error {
	return console.Fail(console.ExitError, "get the token from @BotFather with /token", "%w", err)
}

func noWorkspace(name string) error {
	return console.Fail(console.ExitUsage, "permesso workspace list shows the workspaces; permesso workspace add "+sandbox.ShellWord(name)+" creates it", "no workspace %.80q", name)
}

func chatName(chat int64, thread int) string {
	switch {
	case chat > 0:
		return fmt.Sprintf("private chat %d", chat)
	case thread != 0:
		return fmt.Sprintf("group %d, topic %d", chat, thread)
	}
	return fmt.Sprintf("group %d", chat)
}
