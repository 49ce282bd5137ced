package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/receipt"
)

const (
	mostOpened  = 2000             // documents of one kind and workspace that are opened
	sample      = 100              // newest records of a workspace that are opened
	atHand      = 10 * time.Second // by then a running gate has taken up what lies there
	askedBy     = time.Minute      // by then a channel has sent its card
	keptFor     = 7 * 24 * time.Hour
	defaultStop = 30 * time.Second // of a handler without a timeout
)

// each opens the documents of one kind in every workspace that is looked at.
// What is gone by then was settled meanwhile.
func (d *doctor) each(ctx context.Context, doc approval.Doc, look func(approval.Key, []byte) *finding) (n int, list []finding) {
	for _, ws := range d.withFolders() {
		ids, _, err := d.store.List(doc, ws)
		if err != nil {
			list = append(list, found(serious, ws, err))
			continue
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		for _, id := range ids[:min(len(ids), mostOpened)] {
			if ctx.Err() != nil {
				return n, list
			}
			k := approval.Key{Workspace: ws, ID: id}
			b, err := d.store.Read(doc, k)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			n++
			var f *finding
			if err != nil {
				f = &finding{What: fmt.Sprintf("%s of %s cannot be read: %s", doc, id, oneLine(err.Error())), Cure: "look at dmesg and the file's permissions"}
			} else {
				f = look(k, b)
			}
			if f != nil {
				f.Workspace = ws
				list = append(list, *f)
			}
		}
	}
	return n, list
}

// checkSeals opens everything that is not yet settled.
func (d *doctor) checkSeals(ctx context.Context) []finding {
	if d.keys == nil {
		return nil // the check of the keys says why
	}
	p, list := d.each(ctx, approval.DocPending, d.sealedPending)
	q, more := d.each(ctx, approval.DocDecision, d.sealedDecision)
	list = append(list, more...)
	r, more := d.each(ctx, approval.DocClaim, d.sealedClaim)
	list = append(list, more...)
	return orWell(list, "%d pending, %d decided, %d running: every seal fits", p, q, r)
}

func (d *doctor) sealedPending(k approval.Key, b []byte) *finding {
	body, err := d.keys.seal.Open(approval.DocPending, k, b)
	if err == nil {
		_, err = approval.ParsePending(body, k)
	} else if _, host := approval.ParseHostRequest(b, k.ID); host == nil {
		return &finding{Severity: worthKnowing, What: "pending " + k.ID + " is a host program's request, not yet judged"}
	}
	if err == nil {
		return nil
	}
	return &finding{
		What: "pending " + k.ID + " is not as the gate wrote it: " + oneLine(err.Error()),
		Cure: "find out who wrote to " + d.layout.Pendings(k.Workspace) + "; the gate refuses it, and the agent must ask again",
	}
}

func (d *doctor) sealedDecision(k approval.Key, b []byte) *finding {
	body, err := d.keys.seal.Open(approval.DocDecision, k, b)
	if err == nil {
		var dec *approval.Decision
		if dec, err = approval.ParseDecision(body, k); err == nil {
			err = d.decides(dec, k)
		}
	}
	if err == nil {
		return nil
	}
	return &finding{
		What: "decision of " + k.ID + " is not valid: " + oneLine(err.Error()),
		Cure: "find out who wrote to " + d.layout.Decisions(k.Workspace) + "; the gate sets it aside. Programs decide by permesso decide --stdin",
	}
}

// decides says whether a decision is for what is pending, if that is still there.
func (d *doctor) decides(dec *approval.Decision, k approval.Key) error {
	p, err := d.store.Read(approval.DocPending, k)
	if err == nil && approval.Digest(p) != dec.PendingSHA256 {
		return errors.New("it is for something else than what is pending")
	}
	return nil
}

func (d *doctor) sealedClaim(k approval.Key, b []byte) *finding {
	body, err := d.keys.seal.Open(approval.DocClaim, k, b)
	if err == nil {
		_, err = approval.ParseClaim(body, k)
	}
	if err == nil {
		return nil
	}
	return &finding{
		What: "receipt of " + k.ID + " is not as the gate wrote it: nobody can say what was started (" + oneLine(err.Error()) + ")",
		Cure: "find out what ran; then move " + filepath.Join(d.layout.Receipts(k.Workspace), k.ID+".json") + " away: until then the gate leaves that request alone",
	}
}

// checkRecords opens the newest records of each workspace.
func (d *doctor) checkRecords(ctx context.Context) []finding {
	if d.keys == nil {
		return nil
	}
	v, err := receipt.LoadVerifier(d.fs, d.layout.Keys())
	if err != nil {
		return nil // the check of the keys says why
	}
	var list []finding
	n := 0
	for _, ws := range d.withFolders() {
		for _, id := range newest(d.layout.Records(ws), sample) {
			if ctx.Err() != nil {
				return list
			}
			n++
			if f := d.checkRecord(ctx, v, approval.Key{Workspace: ws, ID: id}); f != nil {
				f.Workspace = ws
				list = append(list, *f)
			}
		}
	}
	return orWell(list, "the newest %s: seals, receipts and responses fit", plural(n, "record"))
}

// newest are the ids of the documents in a folder that were written last.
func newest(dir string, n int) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // the check of the folders says why
	}
	type doc struct {
		id string
		at time.Time
	}
	var docs []doc
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if info, err := e.Info(); ok && approval.ValidID(id) && err == nil {
			docs = append(docs, doc{id, info.ModTime()})
		}
	}
	slices.SortFunc(docs, func(a, b doc) int { return b.at.Compare(a.at) })
	ids := make([]string, 0, n)
	for _, d := range docs[:min(n, len(docs))] {
		ids = append(ids, d.id)
	}
	return ids
}

func (d *doctor) checkRecord(ctx context.Context, v *receipt.Verifier, k approval.Key) *finding {
	rec, err := d.viewer(d.keys).Record(ctx, k)
	if err != nil {
		return &finding{
			What: "record of " + k.ID + " is not as the gate wrote it: " + oneLine(err.Error()),
			Cure: "restore it from a backup; permesso audit verify tells what the log knows of it",
		}
	}
	if rec == nil {
		return nil // pruned meanwhile
	}
	if rec.Receipt != "" {
		facts, err := v.Parse(rec.Receipt)
		if err == nil && (facts.Workspace != k.Workspace || facts.RequestID != k.ID) {
			err = receipt.ErrOther
		}
		if err != nil {
			return &finding{
				What: "the receipt in the record of " + k.ID + ": " + oneLine(err.Error()),
				Cure: "was the signing key replaced? put the old keys/signing.pub aside, not away: permesso receipt verify --key takes it",
			}
		}
	}
	return d.checkResponse(rec, k)
}

// checkResponse compares what the agent reads with what was written. A
// response follows its record a moment later.
func (d *doctor) checkResponse(rec *approval.Record, k approval.Key) *finding {
	age := d.now.Sub(rec.EndedAt)
	if age < atHand || age > keptFor-time.Hour {
		return nil
	}
	b, err := d.store.Read(approval.DocResponse, k)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &finding{Severity: warning, What: "the response to " + k.ID + " is gone", Cure: "the gate restores it within minutes, or when it starts"}
	case err != nil:
		return &finding{What: "the response to " + k.ID + " cannot be read: " + oneLine(err.Error()), Cure: "look at its permissions"}
	case string(b) != string(rec.Response):
		return &finding{
			What: "the response to " + k.ID + " is not what the gate wrote: the agent may have been told something else",
			Cure: "find out who may write to " + d.layout.Responses(k.Workspace) + "; the gate restores it within minutes, or when it starts",
		}
	}
	return nil
}

// checkAudit looks at the end of the log only.
func (d *doctor) checkAudit(context.Context) []finding {
	entries, err := audit.Last(d.fs, d.layout.Audit(), 100)
	switch {
	case err != nil:
		f := found(serious, "", err)
		f.Cure = "permesso audit verify says where; keep a copy of " + d.layout.Audit() + " before anything else"
		return []finding{f}
	case len(entries) == 0:
		return []finding{{Severity: worthKnowing, What: "the log is empty: this gate has not served yet"}}
	}
	last := entries[len(entries)-1]
	return []finding{well("the end of the log can be read, up to number %d; permesso audit verify checks all of it", last.Seq)}
}

// checkStuck looks for what a running gate should have taken up, and for what
// waits for one that is not running.
func (d *doctor) checkStuck(ctx context.Context) []finding {
	var list []finding
	for _, ws := range d.withFolders() {
		list = append(list, d.untouched(ws)...)
	}
	if d.keys == nil {
		return list // without keys nobody knows of the rest
	}
	_, more := d.each(ctx, approval.DocPending, d.stuckPending)
	list = append(list, more...)
	_, more = d.each(ctx, approval.DocClaim, d.stuckClaim)
	list = append(list, more...)
	return orWell(list, "nothing is stuck")
}

// untouched counts old requests by the time at which the system last saw them
// change: what an agent says of a file's time is its own affair.
func (d *doctor) untouched(ws string) []finding {
	ids, _, err := d.store.List(approval.DocRequest, ws)
	if err != nil {
		return foundAll(serious, ws, err)
	}
	old := 0
	for _, id := range ids {
		info, err := os.Lstat(filepath.Join(d.layout.Requests(ws), id+".json"))
		if err == nil && d.now.Sub(changedAt(info)) > atHand {
			old++
		}
	}
	switch {
	case old == 0:
		return nil
	case !d.running:
		return []finding{{Severity: worthKnowing, Workspace: ws, What: plural(old, "request") + " to be taken in", Cure: "permesso serve"}}
	}
	return []finding{{
		Severity: warning, Workspace: ws, What: plural(old, "request") + " untouched for more than " + atHand.String() + " while the gate runs",
		Cure: "look at its log: a limit that is used up ([workspaces." + ws + ".limits]), or an error",
	}}
}

func (d *doctor) stuckPending(k approval.Key, b []byte) *finding {
	body, err := d.keys.seal.Open(approval.DocPending, k, b)
	if err != nil {
		return nil //nolint:nilerr // the check of the seals says so
	}
	p, err := approval.ParsePending(body, k)
	if err != nil {
		return nil //nolint:nilerr // likewise
	}
	late := d.now.Sub(p.ExpiresAt)
	switch dec := d.decision(k); {
	case dec != nil && dec.Approved && !d.running:
		return &finding{
			Severity: warning, What: k.ID + " is approved and has not run: the gate is down",
			Cure: "permesso serve, before " + dec.RunBefore.Local().Format(time.DateTime) + ", or it expires",
		}
	case late > atHand && d.running:
		return &finding{Severity: warning, What: k.ID + " expired " + late.Round(time.Second).String() + " ago and is not settled while the gate runs", Cure: "look at the gate's log"}
	case late > 0 && !d.running:
		return &finding{Severity: worthKnowing, What: k.ID + " has expired and is not settled: the gate is down", Cure: "permesso serve, or permesso sweep"}
	}
	return nil
}

func (d *doctor) decision(k approval.Key) *approval.Decision {
	b, err := d.store.Read(approval.DocDecision, k)
	if err != nil {
		return nil
	}
	return d.viewer(d.keys).Decision(k, b)
}

func (d *doctor) stuckClaim(k approval.Key, b []byte) *finding {
	body, err := d.keys.seal.Open(approval.DocClaim, k, b)
	if err != nil {
		return nil //nolint:nilerr // the check of the seals says so
	}
	c, err := approval.ParseClaim(body, k)
	if err != nil {
		return nil //nolint:nilerr // likewise
	}
	if _, err := d.store.Read(approval.DocRecord, k); err == nil {
		return nil // ended, and not yet tidied away
	}
	tool := d.cfg.Tools[c.ToolName]
	limit := tool.Handler.Timeout
	if limit == 0 {
		limit = defaultStop
	}
	over := d.now.Sub(c.ClaimedAt) - limit
	switch {
	case !d.running:
		return &finding{
			Severity: warning, What: k.ID + " was started and interrupted: the gate went down",
			Cure: "look whether its effect happened; permesso serve, or permesso sweep, tells the agent",
		}
	case over > time.Minute:
		return &finding{
			Severity: warning, What: k.ID + " runs " + over.Round(time.Second).String() + " longer than its tool may",
			Cure: "look at the gate's log, and for its process; a restart ends it",
		}
	}
	return nil
}

// checkChannels looks for cards that were not sent: each channel notes what it
// sent in sent/CHANNEL/WORKSPACE/ID.json.
func (d *doctor) checkChannels(ctx context.Context) []finding {
	if d.keys == nil {
		return nil
	}
	var list []finding
	channels := 0
	for _, ws := range d.withFolders() {
		channels += len(d.cfg.Workspaces[ws].Channels)
		if len(d.cfg.Workspaces[ws].Channels) == 0 {
			continue
		}
		waiting, err := d.viewer(d.keys).Waiting(ctx, []string{ws})
		if err != nil {
			list = append(list, found(serious, ws, err))
			continue
		}
		for _, channel := range d.cfg.Workspaces[ws].Channels {
			list = append(list, d.unsent(channel, ws, waiting)...)
		}
	}
	if channels == 0 {
		return append(orWell(list, "none configured: people answer at the terminal, or by permesso approve"), d.pages()...)
	}
	return append(orWell(list, "every card was sent"), d.pages()...)
}

// pages says where people decide in a browser.
func (d *doctor) pages() []finding {
	h := d.healthOf(d.now)
	switch {
	case !d.running || h.UI == "" && d.cfg.UI == "":
		return nil
	case h.UI == "":
		return []finding{{Severity: worthKnowing, What: "no pages are served for people in a browser", Cure: "the gate's log says why, or ui in the configuration is newer than the gate"}}
	}
	return []finding{well("people decide in a browser at %s: permesso ui", oneLine(h.UI))}
}

// noted says whether a page of a notebook tells of a card that was sent. One
// whose state is "sending" tells of one that is not.
func noted(page string) bool {
	b, err := os.ReadFile(page)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	var p struct {
		State string `json:"state"`
	}
	return err != nil || json.Unmarshal(b, &p) != nil || p.State != "sending"
}

func (d *doctor) unsent(channel, ws string, waiting []approval.Waiting) []finding {
	n := 0
	for _, w := range waiting {
		p := w.Pending
		if d.now.Sub(p.Timestamp) < askedBy || !d.now.Before(p.ExpiresAt) || p.AskOn != "" && p.AskOn != channel {
			continue
		}
		if !noted(filepath.Join(d.layout.Sent(channel, ws), p.RequestID+".json")) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	f := finding{
		Severity: warning, Workspace: ws, What: fmt.Sprintf("%s waiting for more than %s, and %s has not sent a card", plural(n, "request"), askedBy, channel),
		Cure: "look at the gate's log for " + channel + "; permesso pending lists them, permesso approve and deny decide",
	}
	if !d.running {
		f.Cure = "permesso serve"
	}
	return []finding{f}
}
