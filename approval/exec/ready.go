package exec

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/permesso-dev/permesso/approval"
)

// Ready returns what a handler lacks on this host at the moment: a program, a working
// folder, a secret or a certificate that is missing or not usable; nil if it can run. It
// starts and connects to nothing.
func Ready(h approval.Handler) error {
	switch h.Kind {
	case approval.HandlerCommand:
		return commandReady(h)
	case approval.HandlerHTTP:
		return httpReady(h.HTTP)
	case approval.HandlerMCP:
		if h.HTTP.URL != "" {
			return httpReady(h.HTTP)
		}
		return commandReady(h)
	}
	return nil
}

func commandReady(h approval.Handler) error {
	env, err := environment(approval.Job{Tool: approval.Tool{Handler: h}}, "")
	if err != nil {
		return err
	}
	if len(h.Argv) == 0 {
		return errors.New("argv is empty")
	}
	if _, err := lookPath(h.Argv[0], env); err != nil {
		return fmt.Errorf("program %w", err)
	}
	if h.Dir == "" {
		return nil
	}
	return checkFolder(h.Dir)
}

// checkFolder refuses a working folder that is none.
func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("working folder: %w", err)
	case !info.IsDir():
		return fmt.Errorf("working folder: %s: not a folder", dir)
	}
	return nil
}

func httpReady(h approval.HTTP) error {
	for _, name := range slices.Sorted(maps.Keys(h.SecretHeaders)) {
		if _, _, err := readSecret(h.SecretHeaders[name]); err != nil {
			return fmt.Errorf("secret of header %s: %w", name, err)
		}
	}
	_, err := rootsOf(h.CAFile)
	return err
}
