package home

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
)

// claimTimeout is how long pause waits for claims in progress.
const claimTimeout = 10 * time.Second

// AwaitClaims waits until every claim that did not see the pause is written.
func (h *Home) AwaitClaims(name string) error {
	deadline := time.Now().Add(claimTimeout)
	return h.Store.AwaitClaims(name, func() error {
		if time.Now().After(deadline) {
			return console.Fail(console.ExitError, "nothing new is started; see permesso status",
				"paused, but a request from before the pause is still being started")
		}
		time.Sleep(time.Millisecond)
		return nil
	})
}

// Pause pauses a workspace, and waits until no request from before is being started.
// changed is false if it was paused already.
func (h *Home) Pause(p ipc.Pause) (changed bool, err error) {
	err = h.Store.Pause(p)
	if changed = err == nil; !changed && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	return changed, h.AwaitClaims(p.Workspace)
}

// PauseLine describes a pause in one line.
func PauseLine(p ipc.Pause) string {
	what := p.Workspace
	if what == ipc.AllWorkspaces {
		what = "everything"
	}
	text := fmt.Sprintf("paused: %s, since %s by %s", what, p.At.Local().Format(time.DateTime), chat.Escape(p.By))
	if p.Reason != "" {
		text += ": " + chat.Escape(p.Reason)
	}
	return text
}

// PausedIn returns the pause of a workspace for its cards, nil if it is not paused.
func (h *Home) PausedIn(ws string) *chat.Pause {
	p, ok := h.Store.Paused(ws)
	if !ok {
		return nil
	}
	return CardPause(p)
}

// CardPause is a pause as cards show it.
func CardPause(p ipc.Pause) *chat.Pause {
	return &chat.Pause{By: strings.TrimPrefix(p.By, "operator:"), Since: p.At, Reason: p.Reason}
}
