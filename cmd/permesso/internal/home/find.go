package home

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
)

// Named reports whether the user named a HOME.
func Named(a *console.Console) bool { return a.HomeFlag != "" || a.Env("PERMESSO_HOME") != "" }

// Find returns the folder of the HOME that a command means: the named one, else the user's own.
// If the user has none, it is that of this machine's daemon, if the user may read it.
func Find(a *console.Console) (string, error) {
	own, err := config.LocateHome(a.HomeFlag, a.Env)
	if a.Serving || Named(a) || a.Env("PERMESSO_SOCKET") != "" || err == nil && !isAbsent(own) {
		return own, err
	}
	if _, openErr := os.ReadDir(ipc.Layout{Home: config.SystemHome}.Keys()); openErr != nil {
		return own, err
	}
	a.Tell("", "this machine's daemon is meant: its HOME is %s", config.SystemHome)
	return config.SystemHome, nil
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
	served := ""
	var r HealthReport
	if b, err := os.ReadFile(ipc.Layout{Home: dir}.Health()); err == nil && json.Unmarshal(b, &r) == nil {
		served = r.Config
	}
	if served == "" && dir == config.SystemHome {
		served = config.SystemFile
	}
	if _, err := os.Stat(served); served != "" && (err == nil || r.PID != 0 && !errors.Is(syscall.Kill(r.PID, 0), syscall.ESRCH)) {
		return config.Locate(served, a.Env)
	}
	return config.Locate("", a.Env)
}
