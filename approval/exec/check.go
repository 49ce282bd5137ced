package exec

import (
	"errors"
	"fmt"
	"path"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// Check refuses a handler that could not run, or not safely, so that the
// configuration is refused before an approver is asked.
//
// For the templates of a command line see facts.CheckArgv. For HTTP requests see the
// package comment. An error about one of their settings is a *keyError.
func Check(h approval.Handler) error {
	switch {
	case h.Timeout < 0 || h.MaxOutput < 0 || h.MaxMemory < 0 || h.MaxProcesses < 0:
		return errors.New("timeout and limits must not be negative")
	case h.Kind != approval.HandlerCommand && (h.MaxMemory > 0 || h.MaxProcesses > 0):
		return errors.New(`max_memory and max_processes belong to kind = "command"`)
	case h.Kind == "" || h.Kind == approval.HandlerNone || h.Kind == approval.HandlerAgent:
		if len(h.Argv) > 0 {
			return errors.New(`argv without kind = "command"`)
		}
		return checkNoHTTP(h)
	case h.Kind == approval.HandlerHTTP:
		if len(h.Argv) > 0 || len(h.Env) > 0 || h.Dir != "" {
			return errors.New(`argv, dir and env belong to kind = "command"`)
		}
		return checkHTTP(h.HTTP)
	case h.Kind != approval.HandlerCommand:
		return fmt.Errorf("unknown handler kind %q", h.Kind)
	case len(h.Argv) == 0:
		return errors.New("argv is empty")
	case h.Dir != "" && !path.IsAbs(h.Dir):
		return fmt.Errorf("dir %q is not an absolute path", h.Dir)
	}
	if err := checkNoHTTP(h); err != nil {
		return err
	}
	for _, name := range h.Env {
		if err := checkEnvName(name); err != nil {
			return err
		}
	}
	return facts.CheckArgv(h.Argv)
}

func checkNoHTTP(h approval.Handler) error {
	if h.HTTP.URL != "" || h.HTTP.Method != "" {
		return errors.New(`method and url without kind = "http"`)
	}
	return nil
}
