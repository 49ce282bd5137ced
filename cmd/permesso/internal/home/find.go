package home

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
)

// Named reports whether the user named a HOME.
func Named(a *console.Console) bool { return a.HomeFlag != "" || a.Env("PERMESSO_HOME") != "" }

// Find returns the folder of the HOME that a command means: the named one, else the user's own.
// If the user has none, it is that of this machine's daemon, if the user may read it.
func Find(a *console.Console) (string, error) {
	dir, machine, err := find(a)
	if machine {
		a.Tell("", "this machine's daemon is meant: its HOME is %s", dir)
	}
	return dir, err
}

// CheckNew refuses another HOME beside that of this machine's daemon, unless it is named.
func CheckNew(a *console.Console) error {
	if dir, machine, _ := find(a); machine {
		return console.Fail(console.ExitRefused, "edit "+config.SystemFile+", then systemctl start permesso; for another daemon name its HOME: --home DIR",
			"this machine has a daemon already, in %s", dir)
	}
	return nil
}

func find(a *console.Console) (dir string, machine bool, err error) {
	own, err := config.LocateHome(a.HomeFlag, a.Env)
	if a.Serving || Named(a) || a.Env("PERMESSO_SOCKET") != "" || err == nil && !isAbsent(own) {
		return own, false, err
	}
	if _, openErr := os.ReadDir(ipc.Layout{Home: config.SystemHome}.Keys()); openErr != nil {
		return own, false, err
	}
	return config.SystemHome, true, nil
}

// isAbsent reports whether a folder holds no HOME.
func isAbsent(dir string) bool {
	_, err := os.Stat(ipc.Layout{Home: dir}.Keys())
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// FileOf returns the configuration of the HOME in a folder: the named file, else that which its
// daemon serves or has served last, else the usual one; "" if there is none.
func FileOf(a *console.Console, dir string) (string, error) {
	if a.Serving || a.ConfigFlag != "" || a.Env("PERMESSO_CONFIG") != "" {
		return config.Locate(a.ConfigFlag, a.Env)
	}
	if err := Check(a, dir); errors.Is(err, fs.ErrPermission) {
		return "", err
	}
	b, _ := os.ReadFile(ipc.Layout{Home: dir}.Served()) // there may be none
	served := string(b)
	if served == "" && dir == config.SystemHome {
		served = config.SystemFile
	}
	if _, err := os.Stat(served); served != "" && (err == nil || running(dir) != nil) {
		return config.Locate(served, a.Env)
	}
	file, err := config.Locate("", a.Env)
	if file == "" && err == nil && isAbsent(dir) && Socket(a) != "" {
		return "", Check(a, dir) // the defaults are not what that daemon serves
	}
	return file, err
}

// Socket returns the approver socket that the user named, or that of this machine; "" if there is none.
func Socket(a *console.Console) string {
	path := cmp.Or(a.Env("PERMESSO_SOCKET"), config.DefaultSocket)
	if info, err := os.Stat(path); err != nil || info.Mode()&fs.ModeSocket == 0 {
		return ""
	}
	return path
}

// Existing is Locate for a command that reads the HOME itself.
func Existing(a *console.Console) (*Home, error) {
	h, err := Locate(a)
	if err == nil {
		err = Check(a, h.Layout.Home)
	}
	return h, err
}

// Check says why the user has no HOME in a folder.
func Check(a *console.Console, dir string) error {
	switch err := CheckReadable(dir); {
	case errors.Is(err, fs.ErrPermission):
		return err
	case !isAbsent(dir):
		return nil
	case Socket(a) != "":
		return console.Fail(console.ExitError, "this command reads the HOME of that daemon: its operator runs it, or root, with --home DIR",
			"%w in %s; the daemon at %s is another user's", ErrNoDaemon, dir, Socket(a))
	}
	return NoDaemon(dir)
}

// Outdated reports whether a running daemon of a HOME serves something else than is in its
// configuration now.
func Outdated(dir, file string) bool {
	r := running(dir)
	if r == nil || r.Config != file {
		return false
	}
	b, err := os.ReadFile(file)
	return err != nil || approval.Digest(b) != r.ConfigSHA256
}

// running is the report of the daemon that runs in a HOME, nil if none does.
func running(dir string) *HealthReport {
	if r := New(nil, dir).HealthAt(time.Now()); r.PID != 0 {
		return &r
	}
	return nil
}
