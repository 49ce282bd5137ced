package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Locate says which file to Load: the flag, PERMESSO_CONFIG, or
// $XDG_CONFIG_HOME/permesso/permesso.toml. Only the last may be missing; then
// the path is "". A file that is there and cannot be looked at is an error:
// its rules must not be left out in silence. The error is an *Error.
func Locate(flag string, env func(string) string) (string, error) {
	for _, named := range []struct{ path, hint string }{
		{flag, "check --config, or leave it out"},
		{env("PERMESSO_CONFIG"), "check PERMESSO_CONFIG, or unset it"},
	} {
		if named.path == "" {
			continue
		}
		// The link itself will not do here: what was named must be there.
		if _, err := os.Stat(named.path); err != nil {
			return "", missing(named.path, named.hint, err)
		}
		return named.path, nil
	}
	dir := xdg("XDG_CONFIG_HOME", ".config", env)
	if dir == "" {
		return "", nil
	}
	path := filepath.Join(dir, "permesso", "permesso.toml")
	// A dangling link is a file that somebody meant to be there.
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", missing(path, "", err)
	}
	return path, nil
}

// LocateHome says where the state lies: the flag, PERMESSO_HOME, or
// $XDG_STATE_HOME/permesso, as an absolute path. It need not exist.
func LocateHome(flag string, env func(string) string) (string, error) {
	for _, named := range []string{flag, env("PERMESSO_HOME")} {
		if named != "" {
			return filepath.Abs(named)
		}
	}
	dir := xdg("XDG_STATE_HOME", filepath.Join(".local", "state"), env)
	if dir == "" {
		return "", &Error{File: "permesso", Errors: []Issue{{
			Message: "no place for the state folder: HOME is not set",
			Hint:    "give --home DIR, or set PERMESSO_HOME",
		}}}
	}
	return filepath.Join(dir, "permesso"), nil
}

// xdg is a base folder as in the XDG Base Directory Specification, which has
// relative paths ignored; "" where there is no home at all.
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
		p.Message = pe.Err.Error() // the path stands before it already
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.Hint = "permesso init writes one"
	case errors.Is(err, fs.ErrPermission):
		p.Hint = "the gate's own user must be able to read it"
	}
	return &Error{File: path, Errors: []Issue{p}, cause: err}
}
