package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/tui"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/ipc"
)

// pageMessages are the sentences of the pages of the terminal UI. Comments about them are in messages/en.toml.
type pageMessages struct {
	Revoke, Revoked, NotRevoked string
	Clear, Cleared              string
	Pause, PauseAll, Paused     string
	Resume, ResumeAll, Resumed  string
	NotPaused, Everything, Runs string
}

// pages are the pages of the terminal UI.
func (g *tuiGate) pages() []tui.Page {
	return []tui.Page{
		{Key: "H", Name: "history", Load: g.historyItems},
		{Key: "g", Name: "grants", Load: g.grantItems, Act: g.revokeItem},
		{Key: "t", Name: "taints", Load: g.taintItems, Act: g.clearItem},
		{Key: "p", Name: "pauses", Load: g.pauseItems, Act: g.pauseItem},
	}
}

func (g *tuiGate) pageMessages() *pageMessages {
	return chat.Messages[pageMessages](g.Style().Language, "tui_pages")
}

// historyLength is how many requests the page of history has.
const historyLength = 200

func (g *tuiGate) historyItems(ctx context.Context) (items []tui.Item, err error) {
	err = g.do(ctx, func(c *control.Client) error {
		found, _, err := c.History(ctx, control.HistoryQuery{Limit: historyLength})
		for i, cells := range historyCells(found) {
			k := found[i].Key
			items = append(items, tui.Item{Text: strings.Join(cells, " · "), ID: k.String(), Open: k})
		}
		return err
	})
	return items, err
}

func (g *tuiGate) grantItems(ctx context.Context) (items []tui.Item, err error) {
	w, style, now := g.pageMessages(), g.Style(), time.Now()
	err = g.do(ctx, func(c *control.Client) error {
		list, err := c.Grants(ctx)
		for _, r := range list {
			l := lineOf(r, now)
			l.Says = style.Grant(&r.Grant)
			i := tui.Item{Text: grantText(l), ID: r.ID}
			if r.RevokedAt.IsZero() {
				i.Question = chat.Format(w.Revoke, "what", l.Says)
			}
			items = append(items, i)
		}
		return err
	})
	return items, err
}

func (g *tuiGate) revokeItem(ctx context.Context, i tui.Item) (text string, err error) {
	done, err := g.revoke(ctx, i.ID)
	if !done {
		return g.pageMessages().NotRevoked, err
	}
	return g.pageMessages().Revoked, err
}

func (g *tuiGate) revoke(ctx context.Context, id string) (done bool, err error) {
	err = g.do(ctx, func(c *control.Client) error {
		word, err := c.Revoke(ctx, id)
		done = word == "revoked"
		return err
	})
	return done, err
}

func (g *tuiGate) taintItems(ctx context.Context) (items []tui.Item, err error) {
	w := g.pageMessages()
	err = g.do(ctx, func(c *control.Client) error {
		lines, err := sessionLines(ctx, c)
		for _, l := range lines {
			name := strings.TrimSpace(l.Workspace + " " + l.SessionID)
			i := tui.Item{Text: sessionText(l), ID: name}
			if c.Operator && len(l.Taints) > 0 {
				i.Question = chat.Format(w.Clear, "what", chat.Escape(name))
			}
			items = append(items, i)
		}
		return err
	})
	return items, err
}

func (g *tuiGate) clearItem(ctx context.Context, i tui.Item) (text string, err error) {
	ws, session, _ := strings.Cut(i.ID, " ")
	err = g.do(ctx, func(c *control.Client) error {
		had, err := c.ClearTaints(ctx, control.ClearBody{Workspace: ws, SessionID: session})
		text = chat.Format(g.pageMessages().Cleared, "what", chat.Escape(i.ID), "taints", strings.Join(had, ", "))
		return err
	})
	return text, err
}

// pauseItems are everything and each workspace. A workspace may be paused by itself and with everything.
func (g *tuiGate) pauseItems(ctx context.Context) (items []tui.Item, err error) {
	w, style, now := g.pageMessages(), g.Style(), time.Now()
	return items, g.do(ctx, func(c *control.Client) error {
		byName := map[string]bool{}
		for _, p := range c.Paused {
			byName[p.Workspace] = true
		}
		for _, ws := range append([]string{ipc.AllWorkspaces}, c.Workspaces...) {
			name, question, all, do := chat.Escape(ws), w.Pause, w.PauseAll, "pause"
			if byName[ws] {
				question, all, do = w.Resume, w.ResumeAll, "resume"
			}
			if ws == ipc.AllWorkspaces {
				name, question = w.Everything, all
			}
			state := cmp.Or(style.PauseLine(ws, now), w.Runs)
			items = append(items, tui.Item{Text: name + ": " + state, ID: do + " " + ws, Question: chat.Format(question, "what", name)})
		}
		return nil
	})
}

// pauseItem does what the question of an item asks.
func (g *tuiGate) pauseItem(ctx context.Context, i tui.Item) (text string, err error) {
	w := g.pageMessages()
	do, ws, _ := strings.Cut(i.ID, " ")
	if ws == ipc.AllWorkspaces {
		ws = ""
	}
	err = g.do(ctx, func(c *control.Client) error {
		if do == "pause" {
			_, err := c.Pause(ctx, ws, "")
			text = w.Paused
			return err
		}
		r, err := c.Resume(ctx, ws)
		if text = w.Resumed; !r.Paused {
			text = w.NotPaused
		}
		return err
	})
	return text, err
}

// tuiRevoker revokes grants for the interceptor.
type tuiRevoker struct{ *tuiGate }

// Given implements the revoker of chat.Interceptor.
func (tuiRevoker) Given(p *approval.Pending, d *approval.Decision) *grant.Grant {
	return grant.From(p, d)
}

// Remembered implements the revoker of chat.Interceptor.
func (r tuiRevoker) Remembered(ctx context.Context, workspaces []string) (all []grant.Grant, err error) {
	err = r.do(ctx, func(c *control.Client) error {
		list, err := c.Grants(ctx)
		for _, u := range list {
			if slices.Contains(workspaces, u.Workspace) {
				all = append(all, u.Grant)
			}
		}
		return err
	})
	return all, err
}

// Revoke implements the revoker of chat.Interceptor.
func (r tuiRevoker) Revoke(ctx context.Context, g grant.Grant, _ approval.Person) (done bool, err error) {
	return r.revoke(ctx, g.ID)
}

// Reveal returns a request to show what its card masks.
func (g *tuiGate) Reveal(ctx context.Context, k approval.Key) (w *approval.StoredPending, err error) {
	err = g.do(ctx, func(c *control.Client) error {
		w, err = c.Reveal(ctx, k)
		return err
	})
	return w, err
}
