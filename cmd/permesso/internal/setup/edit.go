package setup

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// EditConfig replaces the configuration by an edited version, which must be valid. It prints
// the warnings that are new, and returns what a running daemon has made of it.
func EditConfig(a *console.Console, h *home.Home, edit func(data []byte) ([]byte, error)) (daemon string, err error) {
	before, written := h.HealthAt(time.Now()), []byte(nil)
	err = editFile(h.Config.File, func(data []byte) (_ []byte, err error) {
		written, err = edit(data)
		return written, err
	})
	if err != nil {
		return "", withoutPosition(err)
	}
	if after, err := home.Reader(a).Parse(h.Config.File, written); err == nil {
		printNew(a, h.Config.Warnings, after)
	}
	return daemonSays(h, before, approval.Digest(written)), nil
}

// printNew prints the warnings about a configuration that were not there before.
func printNew(a *console.Console, before []config.Issue, after *config.Config) {
	for _, w := range after.Warnings {
		if !slices.ContainsFunc(before, func(old config.Issue) bool { return old.Message == w.Message }) {
			a.PrintIssue("warning: ", w.Format(after.File))
		}
	}
}

// daemonWait is how long a running daemon has to load a change.
const daemonWait = 10 * time.Second

// daemonSays waits until a running daemon has loaded the configuration with this digest, or
// has refused it.
func daemonSays(h *home.Home, before home.HealthReport, sha string) string {
	served, err := h.Served()
	switch {
	case err != nil:
		return "permesso status says whether the daemon has loaded it"
	case !served:
		return "no daemon runs in " + h.Layout.Home + ": permesso serve"
	}
	refusals := func(r home.HealthReport) (all []string) {
		for _, issue := range r.Issues {
			if strings.HasPrefix(issue.What, "configuration change refused") {
				all = append(all, issue.What)
			}
		}
		return all
	}
	for end := time.Now().Add(daemonWait); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		now := h.HealthAt(time.Now())
		switch says := refusals(now); {
		case now.ConfigSHA256 == sha && len(says) == 0:
			return "the running daemon has loaded it"
		case len(says) > 0 && !slices.Equal(says, refusals(before)):
			return "the running daemon: " + says[0]
		}
	}
	return "the running daemon has not loaded it yet: permesso status"
}

// editsConfig is a home whose configuration is a file, with its content.
func editsConfig(a *console.Console) (*home.Home, []byte, error) {
	h, err := editable(a)
	if err != nil {
		return nil, nil, err
	}
	data, err := os.ReadFile(h.Config.File)
	return h, data, err
}
