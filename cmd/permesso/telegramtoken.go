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

	"golang.org/x/term"

	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/ipc"
)

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
	if m.token, err = secretWord(file); err != nil {
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

// writeToken writes a file that only its owner can read. What another file of
// that name holds is not thrown away; fresh is false where it is the same.
func writeToken(file, token string, owner account) (fresh bool, err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if had, err := secretWord(file); err == nil && had == token {
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
