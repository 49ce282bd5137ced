package exec

import (
	"errors"
	"fmt"
	"path"
	"strings"

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
	case h.Kind == approval.HandlerMCP:
		return checkMCP(h)
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
	if err := checkEnv(h.Env); err != nil {
		return err
	}
	return facts.CheckArgv(h.Argv)
}

func checkEnv(names []string) error {
	for _, name := range names {
		if err := checkEnvName(name); err != nil {
			return err
		}
	}
	return nil
}

// checkMCP refuses a server that is neither a command nor a URL, or both.
func checkMCP(h approval.Handler) error {
	switch isCommand, isHTTP := len(h.Argv) > 0, h.HTTP.URL != ""; {
	case isCommand == isHTTP:
		return errors.New("an MCP server has argv or url, and not both")
	case isHTTP && (len(h.Env) > 0 || h.Dir != "" || h.MaxMemory > 0 || h.MaxProcesses > 0):
		return errors.New("dir, env, max_memory and max_processes belong to a server with argv")
	case isHTTP:
		return checkMCPServer(h.HTTP)
	case !path.IsAbs(h.Argv[0]):
		return fmt.Errorf("program %q is not an absolute path", h.Argv[0])
	case h.Dir != "" && !path.IsAbs(h.Dir):
		return fmt.Errorf("dir %q is not an absolute path", h.Dir)
	case strings.ContainsRune(strings.Join(h.Argv, ""), 0):
		return errors.New("argv must not contain NUL")
	}
	return checkEnv(h.Env)
}

func checkNoHTTP(h approval.Handler) error {
	if h.HTTP.URL != "" || h.HTTP.Method != "" {
		return errors.New(`method and url without kind = "http"`)
	}
	return nil
}
