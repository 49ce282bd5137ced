package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Locate returns the path of the file to Load: the flag, PERMESSO_CONFIG, or
// $XDG_CONFIG_HOME/permesso/permesso.toml. Only the last may be missing; then the
// path is "". A file that exists but cannot be read is an error: its rules must
// not be ignored silently. The error is an *Error.
func Locate(flag string, env func(string) string) (string, error) {
	for _, named := range []struct{ path, hint string }{
		{flag, "check --config, or leave it out"},
		{env("PERMESSO_CONFIG"), "check PERMESSO_CONFIG, or unset it"},
	} {
		if named.path == "" {
			continue
		}
		// Stat, not Lstat: the target of a link must exist.
		if _, err := os.Stat(named.path); err != nil {
			return "", missing(named.path, named.hint, err)
		}
		return named.path, nil
	}
	path := UserFile(env)
	if path == "" {
		return "", nil
	}
	// Lstat: a dangling link is an error, not a missing file.
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", missing(path, "", err)
	}
	return path, nil
}

// UserFile is the path of a user's own file, "" without a home.
func UserFile(env func(string) string) string {
	if dir := xdg("XDG_CONFIG_HOME", ".config", env); dir != "" {
		return filepath.Join(dir, "permesso", "permesso.toml")
	}
	return ""
}

// LocateHome returns the absolute path of the state folder: the flag,
// PERMESSO_HOME, or $XDG_STATE_HOME/permesso. It need not exist.
func LocateHome(flag string, env func(string) string) (string, error) {
	for _, named := range []string{flag, env("PERMESSO_HOME")} {
		if named != "" {
			return filepath.Abs(named)
		}
	}
	dir := xdg("XDG_STATE_HOME", filepath.Join(".local", "state"), env)
	if dir == "" {
		return "", &Error{File: "permesso", Errors: []Issue{{
			Message: "no state folder: HOME is not set",
			Hint:    "use --home DIR, or set PERMESSO_HOME",
		}}}
	}
	return filepath.Join(dir, "permesso"), nil
}

// xdg returns a base folder of the XDG Base Directory Specification, which ignores
// relative paths; "" without a home.
func xdg(name, fallback string, env func(string) string) string {
	if dir := env(name); filepath.IsAbs(dir) {
		return dir
	}
	if home := env("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, fallback)
	}
	return ""
}

func missing(path, hint string, err error) *Error {
	e := unreadable(path, err)
	if hint != "" && errors.Is(err, fs.ErrNotExist) {
		e.Errors[0].Hint = hint
	}
	return e
}

func unreadable(path string, err error) *Error {
	p := Issue{Message: err.Error()}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		p.Message = pe.Err.Error() // Error.Error adds the path
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.Hint = "permesso init creates one"
	case errors.Is(err, fs.ErrPermission):
		p.Hint = "the daemon's user must be able to read it"
	}
	return &Error{File: path, Errors: []Issue{p}, cause: err}
}
