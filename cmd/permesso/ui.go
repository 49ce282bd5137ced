package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/wholefile"
)

func (a *app) uiCmd() *cobra.Command {
	var onlyPrint bool
	c := &cobra.Command{
		Use: "ui", Short: "Open the web UI in a browser", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ui(cmd.Context(), onlyPrint) },
	}
	c.Flags().BoolVar(&onlyPrint, "print", false, "print the link, do not open it")
	return c
}

// uiLink is what ui --json prints.
type uiLink struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
	Opened    bool      `json:"opened"`
}

func (a *app) ui(ctx context.Context, onlyPrint bool) error {
	var address string
	var life time.Duration
	err := a.ask(ctx, func(d *control.Client) (err error) {
		address, life, err = d.Link(ctx)
		return err
	})
	if errors.Is(err, home.ErrNoDaemon) {
		err = control.ErrNoUI(false)
	}
	if err != nil {
		return err
	}
	l := uiLink{URL: address, ExpiresAt: time.Now().Add(life).UTC().Truncate(time.Second)}
	if !onlyPrint && !a.JSON && a.desktop() {
		err = a.openPage(address)
		l.Opened = err == nil
	}
	text := address
	if l.Opened {
		text = "opened in your browser; if nothing happens, open this link once within " + life.String() + ":\n" + address
	}
	return a.Print(l, text)
}

// desktop reports whether a browser can be opened.
func (a *app) desktop() bool {
	if runtime.GOOS == "darwin" {
		return a.Env("SSH_CONNECTION") == ""
	}
	return a.Env("DISPLAY") != "" || a.Env("WAYLAND_DISPLAY") != ""
}

// openPage opens a link on the desktop. All users can read the arguments of a
// process, so the browser gets a redirecting file that only this user can read.
func (a *app) openPage(address string) error {
	name, err := a.writeRedirect(address)
	if err != nil {
		return err
	}
	opener := "xdg-open"
	if runtime.GOOS == "darwin" {
		opener = "open"
	}
	cmd := osexec.Command(opener, name)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // it may run as long as the browser
	return nil
}

// writeRedirect writes a page that redirects to address. It is not removed: the next
// one replaces it, and the link is valid for a minute.
func (a *app) writeRedirect(address string) (name string, err error) {
	dir := a.Env("XDG_RUNTIME_DIR")
	if info, err := os.Stat(dir); dir == "" || err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		if dir, err = os.MkdirTemp("", "permesso-ui-"); err != nil {
			return "", err
		}
	}
	at := html.EscapeString(address)
	page := fmt.Appendf(nil, `<!doctype html><meta charset="utf-8"><title>permesso</title><meta http-equiv="refresh" content="0;url=%s"><a href="%s">permesso</a>`+"\n", at, at)
	name = filepath.Join(dir, "permesso-ui.html")
	return name, wholefile.Put(name, page)
}
