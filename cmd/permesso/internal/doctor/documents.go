package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/hints"
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
func (d *Doctor) eachDocument(ctx context.Context, doc approval.Doc, check func(approval.Key, []byte) []Finding) (n int, list []Finding) {
	for _, ws := range d.withFolders {
		ids, _, err := d.Store.List(ctx, doc, ws)
		if err != nil {
			list = append(list, findingOf(SeverityError, ws, err))
			continue
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		if !d.all {
			ids = ids[:min(len(ids), maxOpened)]
		}
		for _, id := range ids {
			if ctx.Err() != nil {
				return n, list
			}
			k := approval.Key{Workspace: ws, ID: id}
			b, err := d.Store.Read(ctx, doc, k)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			n++
			if err != nil {
				err = fmt.Errorf("%s of %s cannot be read: %w", doc, id, err)
				list = append(list, in(ws, failure(console.OneLine(err.Error()), "check dmesg and the file's permissions"))...)
				continue
			}
			list = append(list, in(ws, check(k, b))...)
		}
	}
	return n, list
}

// checkSeals opens every document that is not settled.
func (d *Doctor) checkSeals(ctx context.Context) []Finding {
	if d.keys == nil {
		return nil // checkKeys reports it
	}
	p, pending := d.eachDocument(ctx, approval.DocPending, d.sealedPending)
	q, decided := d.eachDocument(ctx, approval.DocDecision, d.sealedDecision)
	r, running := d.eachDocument(ctx, approval.DocClaim, d.sealedClaim)
	return orOK(slices.Concat(pending, decided, running), "%d pending, %d decided, %d running: every seal is valid", p, q, r)
}

func (d *Doctor) sealedPending(k approval.Key, b []byte) []Finding {
	_, err := approval.OpenPending(d.keys.Seal, k, b)
	if err == nil {
		return nil
	}
	if _, host := approval.ParseHostRequest(b, k.ID); host == nil {
		return notice("pending "+k.ID+" is a host program's request without a ruling yet", "")
	}
	return failure("pending "+k.ID+" was not written by the daemon: "+console.OneLine(err.Error()),
		"find what wrote to "+d.Layout.Pendings(k.Workspace)+"; the daemon refuses it, and the agent must submit it again")
}

func (d *Doctor) sealedDecision(k approval.Key, b []byte) []Finding {
	dec, err := approval.OpenDecision(d.keys.Seal, k, b)
	if err == nil {
		err = d.checkDigest(dec, k)
	}
	if err == nil {
		return nil
	}
	return failure("decision of "+k.ID+" is invalid: "+console.OneLine(err.Error()),
		"find what wrote to "+d.Layout.Decisions(k.Workspace)+"; the daemon ignores it. Programs must use permesso decide --stdin")
}

// checkDigest compares a decision's digest with the pending request, if that exists.
func (d *Doctor) checkDigest(dec *approval.Decision, k approval.Key) error {
	p, err := d.Store.Read(context.Background(), approval.DocPending, k)
	if err == nil && approval.Digest(p) != dec.PendingSHA256 {
		return errors.New("its digest is not that of the pending request")
	}
	return nil
}

func (d *Doctor) sealedClaim(k approval.Key, b []byte) []Finding {
	_, err := approval.OpenClaim(d.keys.Seal, k, b)
	if err == nil {
		return nil
	}
	return failure("claim of "+k.ID+" was not written by the daemon: what it started is unknown ("+console.OneLine(err.Error())+")",
		"find out what ran, then move "+filepath.Join(d.Layout.Receipts(k.Workspace), k.ID+".json")+" away: until then the daemon does not settle that request")
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
	limit := sample
	if d.all {
		limit = math.MaxInt
	}
	for _, ws := range d.withFolders {
		keys, err := d.NewestRecords(ctx, limit, ws)
		if err != nil {
			list = append(list, findingOf(SeverityError, ws, err))
		}
		for _, k := range keys {
			if ctx.Err() != nil {
				return list
			}
			n++
			list = append(list, in(ws, d.checkRecord(ctx, v, k))...)
		}
	}
	return orOK(list, "newest %s: seals, receipts and responses are valid", hints.Plural(n, "record"))
}

func (d *Doctor) checkRecord(ctx context.Context, v *receipt.Verifier, k approval.Key) []Finding {
	rec, err := d.Viewer(d.keys).Record(ctx, k)
	if err != nil {
		return failure("record of "+k.ID+" was not written by the daemon: "+console.OneLine(err.Error()),
			"restore it from a backup; permesso audit prove "+k.ID+" shows the log's entry")
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
			return failure("receipt in the record of "+k.ID+": "+console.OneLine(err.Error()),
				"if the signing key was replaced: keep the old keys/signing.pub for permesso receipt verify --key")
		}
	}
	return d.checkResponse(rec, k)
}

// checkResponse compares the agent's response with the record. A response is
// written shortly after its record.
func (d *Doctor) checkResponse(rec *approval.Record, k approval.Key) []Finding {
	age := d.Now.Sub(rec.EndedAt)
	if age < pickupDelay || age > responseRetention-time.Hour {
		return nil
	}
	b, err := d.Store.Read(context.Background(), approval.DocResponse, k)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warning("the response to "+k.ID+" is missing",
			"the daemon restores it within minutes, or when it starts")
	case err != nil:
		return failure("the response to "+k.ID+" cannot be read: "+console.OneLine(err.Error()),
			"check its permissions")
	case string(b) != string(rec.Response):
		return failure("the response to "+k.ID+" differs from the record: the agent may have read another outcome",
			"find what can write to "+d.Layout.Responses(k.Workspace)+"; the daemon restores it within minutes, or when it starts")
	}
	return nil
}

// checkAudit checks only the end of the log.
func (d *Doctor) checkAudit(context.Context) []Finding {
	entries, err := audit.Last(d.FS, d.Layout.Audit(), 100)
	alarm, alarmErr := audit.ReadAlarm(d.FS, d.Layout.Audit())
	switch {
	case alarm != nil:
		return failure("alarm since "+alarm.Since.Local().Format(time.DateTime)+": "+console.OneLine(alarm.Reason), console.AlarmHint)
	case alarmErr != nil:
		return failure(console.OneLine(alarmErr.Error()), "check the permissions of "+d.Layout.Audit())
	case err != nil:
		return failure(console.OneLine(err.Error()), "first copy "+d.Layout.Audit()+"; then permesso audit verify shows where")
	case len(entries) == 0:
		return notice("the log is empty: no daemon has run yet", "")
	}
	last := entries[len(entries)-1]
	return []Finding{okFinding("the end of the log is readable, up to entry %d; permesso audit verify checks all of it", last.Seq)}
}

// checkStuck looks for documents that a running daemon should have settled,
// and for those that wait for a daemon.
func (d *Doctor) checkStuck(ctx context.Context) []Finding {
	var list []Finding
	for _, ws := range d.withFolders {
		list = append(list, d.unreadRequests(ws)...)
	}
	if d.keys == nil {
		return list // the other documents need the keys
	}
	_, pending := d.eachDocument(ctx, approval.DocPending, d.stuckPending)
	_, running := d.eachDocument(ctx, approval.DocClaim, d.stuckClaim)
	return orOK(slices.Concat(list, pending, running), "nothing is stuck")
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
		return in(ws, notice(hints.Plural(old, "request")+" not yet read: the daemon is not running",
			"permesso serve"))
	}
	return in(ws, warning(hints.Plural(old, "request")+" not read for more than "+pickupDelay.String()+" while the daemon runs",
		"check its log for an exhausted limit ([workspaces."+ws+".limits]) or an error"))
}

func (d *Doctor) stuckPending(k approval.Key, b []byte) []Finding {
	p, err := approval.OpenPending(d.keys.Seal, k, b)
	if err != nil {
		return nil //nolint:nilerr // checkSeals reports it
	}
	late := d.Now.Sub(p.ExpiresAt)
	switch dec := d.decision(k); {
	case dec != nil && dec.Approved && !d.running:
		return warning(k.ID+" is approved and has not run: the daemon is down",
			"permesso serve, before "+dec.RunBefore.Local().Format(time.DateTime)+", or it expires")
	case late > pickupDelay && d.running:
		return warning(k.ID+" expired "+late.Round(time.Second).String()+" ago and is not settled while the daemon runs",
			"check the daemon's log")
	case late > 0 && !d.running:
		return notice(k.ID+" has expired and is not settled: the daemon is down",
			"permesso serve, or permesso sweep")
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

func (d *Doctor) stuckClaim(k approval.Key, b []byte) []Finding {
	c, err := approval.OpenClaim(d.keys.Seal, k, b)
	if err != nil {
		return nil //nolint:nilerr // checkSeals reports it
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
		return warning(k.ID+" was interrupted while running: the daemon went down",
			"check whether its effect happened; permesso serve or permesso sweep writes the response")
	case over > time.Minute:
		return warning(k.ID+" runs "+over.Round(time.Second).String()+" longer than its tool's timeout",
			"check the daemon's log and the tool's process; a restart ends it")
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
	for _, ws := range d.withFolders {
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
		if d.Config.Telegram != nil || d.Config.Email != nil || d.Config.Ntfy != nil {
			return append(list, append(notice("a channel is configured, but no workspace uses it", "permesso config check says which"), d.checkUI()...)...)
		}
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
		return notice("the web UI is not running",
			"check the daemon's log, or restart it if ui was configured after its start")
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
	cure := "permesso serve"
	if d.running {
		cure = "check the daemon's log for " + channel + "; permesso pending lists them, permesso approve and deny decide"
	}
	return in(ws, warning(fmt.Sprintf("%s pending for more than %s, and %s has sent no message",
		hints.Plural(n, "request"), sendDelay, channel), cure))
}
