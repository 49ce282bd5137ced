package doctor

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
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/receipt"
)

const (
	maxOpened         = 2000             // documents to open of one kind and workspace
	sample            = 100              // newest records to open of a workspace
	pickupDelay       = 10 * time.Second // a running daemon picks up a file within this time
	sendDelay         = time.Minute      // a channel sends a message within this time
	responseRetention = 7 * 24 * time.Hour
	defaultStop       = 30 * time.Second // timeout of a handler that sets none
)

// eachDocument reads the documents of one kind in every checked workspace. A document
// that is gone was settled meanwhile.
func (d *Doctor) eachDocument(ctx context.Context, doc approval.Doc, check func(approval.Key, []byte) *Finding) (n int, list []Finding) {
	for _, ws := range d.withFolders() {
		ids, _, err := d.Store.List(ctx, doc, ws)
		if err != nil {
			list = append(list, findingOf(SeverityError, ws, err))
			continue
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		for _, id := range ids[:min(len(ids), maxOpened)] {
			if ctx.Err() != nil {
				return n, list
			}
			k := approval.Key{Workspace: ws, ID: id}
			b, err := d.Store.Read(ctx, doc, k)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			n++
			var f *Finding
			if err != nil {
				f = &Finding{What: fmt.Sprintf("%s of %s cannot be read: %s", doc, id, console.OneLine(err.Error())), Cure: "check dmesg and the file's permissions"}
			} else {
				f = check(k, b)
			}
			if f != nil {
				f.Workspace = ws
				list = append(list, *f)
			}
		}
	}
	return n, list
}

// checkSeals opens every document that is not settled.
func (d *Doctor) checkSeals(ctx context.Context) []Finding {
	if d.keys == nil {
		return nil // checkKeys reports it
	}
	p, list := d.eachDocument(ctx, approval.DocPending, d.sealedPending)
	q, more := d.eachDocument(ctx, approval.DocDecision, d.sealedDecision)
	list = append(list, more...)
	r, more := d.eachDocument(ctx, approval.DocClaim, d.sealedClaim)
	list = append(list, more...)
	return orOK(list, "%d pending, %d decided, %d running: every seal is valid", p, q, r)
}

func (d *Doctor) sealedPending(k approval.Key, b []byte) *Finding {
	body, err := d.keys.Seal.Open(approval.DocPending, k, b)
	if err == nil {
		_, err = approval.ParsePending(body, k)
	} else if _, host := approval.ParseHostRequest(b, k.ID); host == nil {
		return &Finding{Severity: SeverityInfo, What: "pending " + k.ID + " is a host program's request without a ruling yet"}
	}
	if err == nil {
		return nil
	}
	return &Finding{
		What: "pending " + k.ID + " was not written by the daemon: " + console.OneLine(err.Error()),
		Cure: "find what wrote to " + d.Layout.Pendings(k.Workspace) + "; the daemon refuses it, and the agent must submit it again",
	}
}

func (d *Doctor) sealedDecision(k approval.Key, b []byte) *Finding {
	body, err := d.keys.Seal.Open(approval.DocDecision, k, b)
	if err == nil {
		var dec *approval.Decision
		if dec, err = approval.ParseDecision(body, k); err == nil {
			err = d.checkDigest(dec, k)
		}
	}
	if err == nil {
		return nil
	}
	return &Finding{
		What: "decision of " + k.ID + " is invalid: " + console.OneLine(err.Error()),
		Cure: "find what wrote to " + d.Layout.Decisions(k.Workspace) + "; the daemon ignores it. Programs must use permesso decide --stdin",
	}
}

// checkDigest compares a decision's digest with the pending request, if that exists.
func (d *Doctor) checkDigest(dec *approval.Decision, k approval.Key) error {
	p, err := d.Store.Read(context.Background(), approval.DocPending, k)
	if err == nil && approval.Digest(p) != dec.PendingSHA256 {
		return errors.New("its digest is not that of the pending request")
	}
	return nil
}

func (d *Doctor) sealedClaim(k approval.Key, b []byte) *Finding {
	body, err := d.keys.Seal.Open(approval.DocClaim, k, b)
	if err == nil {
		_, err = approval.ParseClaim(body, k)
	}
	if err == nil {
		return nil
	}
	return &Finding{
		What: "claim of " + k.ID + " was not written by the daemon: what it started is unknown (" + console.OneLine(err.Error()) + ")",
		Cure: "find out what ran, then move " + filepath.Join(d.Layout.Receipts(k.Workspace), k.ID+".json") + " away: until then the daemon does not settle that request",
	}
}

// checkRecords checks the newest records of each workspace.
func (d *Doctor) checkRecords(ctx context.Context) []Finding {
	if d.keys == nil {
		return nil
	}
	v, err := receipt.LoadVerifier(d.FS, d.Layout.Keys())
	if err != nil {
		return nil // checkKeys reports it
	}
	var list []Finding
	n := 0
	for _, ws := range d.withFolders() {
		for _, id := range newest(d.Layout.Records(ws), sample) {
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
	return orOK(list, "newest %s: seals, receipts and responses are valid", console.Plural(n, "record"))
}

// newest returns the ids of the n newest documents in a folder.
func newest(dir string, n int) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // checkFolders reports it
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

func (d *Doctor) checkRecord(ctx context.Context, v *receipt.Verifier, k approval.Key) *Finding {
	rec, err := d.Viewer(d.keys).Record(ctx, k)
	if err != nil {
		return &Finding{
			What: "record of " + k.ID + " was not written by the daemon: " + console.OneLine(err.Error()),
			Cure: "restore it from a backup; permesso audit prove " + k.ID + " shows the log's entry",
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
			return &Finding{
				What: "receipt in the record of " + k.ID + ": " + console.OneLine(err.Error()),
				Cure: "if the signing key was replaced: keep the old keys/signing.pub for permesso receipt verify --key",
			}
		}
	}
	return d.checkResponse(rec, k)
}

// checkResponse compares the agent's response with the record. A response is
// written shortly after its record.
func (d *Doctor) checkResponse(rec *approval.Record, k approval.Key) *Finding {
	age := d.Now.Sub(rec.EndedAt)
	if age < pickupDelay || age > responseRetention-time.Hour {
		return nil
	}
	b, err := d.Store.Read(context.Background(), approval.DocResponse, k)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Finding{Severity: SeverityWarning, What: "the response to " + k.ID + " is missing", Cure: "the daemon restores it within minutes, or when it starts"}
	case err != nil:
		return &Finding{What: "the response to " + k.ID + " cannot be read: " + console.OneLine(err.Error()), Cure: "check its permissions"}
	case string(b) != string(rec.Response):
		return &Finding{
			What: "the response to " + k.ID + " differs from the record: the agent may have read another outcome",
			Cure: "find what can write to " + d.Layout.Responses(k.Workspace) + "; the daemon restores it within minutes, or when it starts",
		}
	}
	return nil
}

// checkAudit checks only the end of the log.
func (d *Doctor) checkAudit(context.Context) []Finding {
	entries, err := audit.Last(d.FS, d.Layout.Audit(), 100)
	switch {
	case err != nil:
		f := findingOf(SeverityError, "", err)
		f.Cure = "first copy " + d.Layout.Audit() + "; then permesso audit verify shows where"
		return []Finding{f}
	case len(entries) == 0:
		return []Finding{{Severity: SeverityInfo, What: "the log is empty: no daemon has run yet"}}
	}
	last := entries[len(entries)-1]
	return []Finding{okFinding("the end of the log is readable, up to entry %d; permesso audit verify checks all of it", last.Seq)}
}

// checkStuck looks for documents that a running daemon should have settled,
// and for those that wait for a daemon.
func (d *Doctor) checkStuck(ctx context.Context) []Finding {
	var list []Finding
	for _, ws := range d.withFolders() {
		list = append(list, d.unreadRequests(ws)...)
	}
	if d.keys == nil {
		return list // the other documents need the keys
	}
	_, more := d.eachDocument(ctx, approval.DocPending, d.stuckPending)
	list = append(list, more...)
	_, more = d.eachDocument(ctx, approval.DocClaim, d.stuckClaim)
	list = append(list, more...)
	return orOK(list, "nothing is stuck")
}

// unreadRequests counts old requests. It uses the inode's change time, because an
// agent can set the modification time.
func (d *Doctor) unreadRequests(ws string) []Finding {
	ids, _, err := d.Store.List(context.Background(), approval.DocRequest, ws)
	if err != nil {
		return findingsOf(SeverityError, ws, err)
	}
	old := 0
	for _, id := range ids {
		info, err := os.Lstat(filepath.Join(d.Layout.Requests(ws), id+".json"))
		if err == nil && d.Now.Sub(changedAt(info)) > pickupDelay {
			old++
		}
	}
	switch {
	case old == 0:
		return nil
	case !d.running:
		return []Finding{{Severity: SeverityInfo, Workspace: ws, What: console.Plural(old, "request") + " not yet read: the daemon is not running", Cure: "permesso serve"}}
	}
	return []Finding{{
		Severity: SeverityWarning, Workspace: ws, What: console.Plural(old, "request") + " not read for more than " + pickupDelay.String() + " while the daemon runs",
		Cure: "check its log for an exhausted limit ([workspaces." + ws + ".limits]) or an error",
	}}
}

func (d *Doctor) stuckPending(k approval.Key, b []byte) *Finding {
	body, err := d.keys.Seal.Open(approval.DocPending, k, b)
	if err != nil {
		return nil //nolint:nilerr // checkSeals reports it
	}
	p, err := approval.ParsePending(body, k)
	if err != nil {
		return nil //nolint:nilerr // likewise
	}
	late := d.Now.Sub(p.ExpiresAt)
	switch dec := d.decision(k); {
	case dec != nil && dec.Approved && !d.running:
		return &Finding{
			Severity: SeverityWarning, What: k.ID + " is approved and has not run: the daemon is down",
			Cure: "permesso serve, before " + dec.RunBefore.Local().Format(time.DateTime) + ", or it expires",
		}
	case late > pickupDelay && d.running:
		return &Finding{Severity: SeverityWarning, What: k.ID + " expired " + late.Round(time.Second).String() + " ago and is not settled while the daemon runs", Cure: "check the daemon's log"}
	case late > 0 && !d.running:
		return &Finding{Severity: SeverityInfo, What: k.ID + " has expired and is not settled: the daemon is down", Cure: "permesso serve, or permesso sweep"}
	}
	return nil
}

func (d *Doctor) decision(k approval.Key) *approval.Decision {
	b, err := d.Store.Read(context.Background(), approval.DocDecision, k)
	if err != nil {
		return nil
	}
	return d.Viewer(d.keys).OpenDecision(k, b)
}

func (d *Doctor) stuckClaim(k approval.Key, b []byte) *Finding {
	body, err := d.keys.Seal.Open(approval.DocClaim, k, b)
	if err != nil {
		return nil //nolint:nilerr // checkSeals reports it
	}
	c, err := approval.ParseClaim(body, k)
	if err != nil {
		return nil //nolint:nilerr // likewise
	}
	if _, err := d.Store.Read(context.Background(), approval.DocRecord, k); err == nil {
		return nil // ended, cleanup pending
	}
	tool := d.Config.Tools[c.ToolName]
	limit := tool.Handler.Timeout
	if limit == 0 {
		limit = defaultStop
	}
	over := d.Now.Sub(c.ClaimedAt) - limit
	switch {
	case !d.running:
		return &Finding{
			Severity: SeverityWarning, What: k.ID + " was interrupted while running: the daemon went down",
			Cure: "check whether its effect happened; permesso serve or permesso sweep writes the response",
		}
	case over > time.Minute:
		return &Finding{
			Severity: SeverityWarning, What: k.ID + " runs " + over.Round(time.Second).String() + " longer than its tool's timeout",
			Cure: "check the daemon's log and the tool's process; a restart ends it",
		}
	}
	return nil
}

// checkChannels looks for messages that were not sent, by the channels' sent
// store.
func (d *Doctor) checkChannels(ctx context.Context) []Finding {
	if d.keys == nil {
		return nil
	}
	var list []Finding
	channels := 0
	for _, ws := range d.withFolders() {
		channels += len(d.Config.Workspaces[ws].Channels)
		if len(d.Config.Workspaces[ws].Channels) == 0 {
			continue
		}
		waiting, err := d.Viewer(d.keys).Waiting(ctx, []string{ws})
		if err != nil {
			list = append(list, findingOf(SeverityError, ws, err))
			continue
		}
		for _, channel := range d.Config.Workspaces[ws].Channels {
			list = append(list, d.unsentMessages(channel, ws, waiting)...)
		}
	}
	if channels == 0 {
		return append(orOK(list, "no channels configured: approvers use the terminal or permesso approve"), d.checkUI()...)
	}
	return append(orOK(list, "every message was sent"), d.checkUI()...)
}

// checkUI reports where the web UI listens.
func (d *Doctor) checkUI() []Finding {
	h := d.HealthAt(d.Now)
	switch {
	case !d.running || h.UI == "" && d.Config.UI == "":
		return nil
	case h.UI == "":
		return []Finding{{Severity: SeverityInfo, What: "the web UI is not running", Cure: "check the daemon's log, or restart it if ui was configured after its start"}}
	}
	return []Finding{okFinding("web UI at %s: permesso ui", console.OneLine(h.UI))}
}

// wasSent reports whether a sent record exists and is not in the state "sending".
func wasSent(page string) bool {
	b, err := os.ReadFile(page)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	var p struct {
		State string `json:"state"`
	}
	return err != nil || json.Unmarshal(b, &p) != nil || p.State != "sending"
}

func (d *Doctor) unsentMessages(channel, ws string, waiting []approval.StoredPending) []Finding {
	n := 0
	for _, w := range waiting {
		p := w.Pending
		if d.Now.Sub(p.Timestamp) < sendDelay || !d.Now.Before(p.ExpiresAt) || p.AskOn != "" && p.AskOn != channel {
			continue
		}
		if !wasSent(filepath.Join(d.Layout.Sent(channel, ws), p.RequestID+".json")) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	f := Finding{
		Severity: SeverityWarning, Workspace: ws, What: fmt.Sprintf("%s pending for more than %s, and %s has sent no message", console.Plural(n, "request"), sendDelay, channel),
		Cure: "check the daemon's log for " + channel + "; permesso pending lists them, permesso approve and deny decide",
	}
	if !d.running {
		f.Cure = "permesso serve"
	}
	return []Finding{f}
}
