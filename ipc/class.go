package ipc

import (
	"errors"
	"io/fs"

	"github.com/permesso-dev/permesso/approval"
)

// classified is an error of the file system with the class that callers test.
type classified struct{ class, err error }

func (e *classified) Error() string   { return e.err.Error() }
func (e *classified) Unwrap() []error { return []error{e.class, e.err} }

// classify adds the class of a file system's error. It keeps the error and its text.
func classify(err error) error {
	class := classOf(err)
	if class == nil || errors.Is(err, class) {
		return err
	}
	return &classified{class, err}
}

func classOf(err error) error {
	var path *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return approval.ErrMissing
	case errors.Is(err, fs.ErrExist):
		return approval.ErrExists
	case errors.Is(err, ErrLocked), errors.As(err, &path):
		return approval.ErrUnavailable
	}
	return nil
}
