package setup

import (
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
	var written []byte
	var says func(sha string) string
	err = editFile(h.Config.File, func(data []byte) (_ []byte, err error) {
		written, err = edit(data)
		says = watchDaemon(h)
		return written, err
	})
	if err != nil {
		return "", withoutPosition(err)
	}
	if after, err := home.Reader(a).Parse(h.Config.File, written); err == nil {
		printNew(a, h.Config.Warnings, after)
	}
	return says(approval.Digest(written)), nil
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

// watchDaemon is called right before the configuration is replaced. What it returns waits until
// a running daemon has loaded the one with this digest, or has refused it.
func watchDaemon(h *home.Home) (says func(sha string) string) {
	begin := time.Now()
	before, _ := refusal(h, begin)
	return func(sha string) string {
		served, err := h.Served()
		switch {
		case err != nil:
			return "permesso status says whether the daemon has loaded it"
		case !served:
			return "no daemon runs in " + h.Layout.Home + ": permesso serve"
		}
		for ; time.Since(begin) < daemonWait; time.Sleep(20 * time.Millisecond) {
			now, since := refusal(h, time.Now())
			if now == "" && h.HealthAt(time.Now()).ConfigSHA256 == sha {
				return "the running daemon has loaded it"
			}
			if now != "" && now != before && (before != "" || since.After(begin)) {
				return "the running daemon: " + now
			}
		}
		return "the running daemon has not loaded it yet: permesso status"
	}
}

// refusal is what a running daemon says of a configuration that it refused, "" if it refused
// none, and since when it refuses one.
func refusal(h *home.Home, now time.Time) (what string, since time.Time) {
	for _, issue := range h.HealthAt(now).Issues {
		if strings.HasPrefix(issue.What, "configuration change refused") {
			return issue.What, issue.Since
		}
	}
	return "", time.Time{}
}
