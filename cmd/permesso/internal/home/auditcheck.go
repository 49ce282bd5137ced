package home

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
)

// maxChecked is how many of the newest records a start compares with the log.
const maxChecked = 200

// CheckLog raises an alarm if the log lacks the entry of a claim, or of one of the newest
// records: they are committed together with their entries. The caller holds the lock and has
// opened the log.
func (h *Home) CheckLog(ctx context.Context, k *Keys, log *audit.Log) error {
	v, f := h.Viewer(k), newLogFacts()
	names, err := h.Store.Workspaces(ctx)
	if err != nil {
		return err
	}
	keys, err := h.NewestRecords(ctx, maxChecked, names...)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if rec, err := v.Record(ctx, key); err == nil && rec != nil { // audit verify and the gate report altered ones
			f.addRecord(rec)
		}
	}
	err = h.each(ctx, approval.DocClaim, names, func(key approval.Key) {
		b, err := h.Store.Read(ctx, approval.DocClaim, key)
		if err != nil {
			return // the gate reports it
		}
		if c, err := approval.OpenClaim(k.Seal, key, b); err == nil {
			f.addClaim(c)
		}
	})
	if err != nil {
		return err
	}
	return audit.RaiseIfMissing(h.FS, h.Layout.Audit(), log.Appended(), audit.Facts(f))
}

// logFacts are what the log must have.
type logFacts audit.Facts

func newLogFacts() logFacts {
	return logFacts{Receipts: map[string]string{}, Outcomes: map[string][]event.Kind{}, At: map[string]time.Time{}}
}

func (f logFacts) addRecord(rec *approval.Record) {
	name := rec.Workspace + "/" + rec.RequestID
	f.Outcomes[name], f.At[name] = gate.EventsOf(rec.Status), rec.EndedAt
	if rec.Receipt != "" {
		f.Receipts[receipt.Hash(rec.Receipt)] = name
	}
}

func (f logFacts) addClaim(c *approval.Claim) {
	name := c.Workspace + "/" + c.RequestID
	f.Receipts[receipt.Hash(c.Receipt)], f.At[name] = name, c.ClaimedAt
}

// NewestRecords returns the keys of the n records of these workspaces that were written last.
func (h *Home) NewestRecords(ctx context.Context, n int, workspaces ...string) ([]approval.Key, error) {
	type dated struct {
		approval.Key
		at time.Time
	}
	var all []dated
	err := h.each(ctx, approval.DocRecord, workspaces, func(k approval.Key) {
		if info, err := h.Store.Stat(approval.DocRecord, k); err == nil {
			all = append(all, dated{k, info.ModTime()})
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b dated) int { return b.at.Compare(a.at) })
	var keys []approval.Key
	for _, d := range all[:min(len(all), n)] {
		keys = append(keys, d.Key)
	}
	return keys, nil
}

// each visits the keys of these workspaces that have a document of kind d.
func (h *Home) each(ctx context.Context, d approval.Doc, workspaces []string, visit func(approval.Key)) error {
	for _, ws := range workspaces {
		ids, _, err := h.Store.List(ctx, d, ws)
		if err != nil {
			return fmt.Errorf("list %s documents of %s: %w", d, ws, err)
		}
		for _, id := range ids {
			visit(approval.Key{Workspace: ws, ID: id})
		}
	}
	return nil
}

// settleTime is how much later than a record its entry may be in the log's file.
const settleTime = time.Minute

// AddRecords adds to a check what the records say. The note tells which ones it could not
// read; err wraps audit.ErrTampered if one was altered.
func (h *Home) AddRecords(c *audit.Check) (note string, err error) {
	k, err := h.LoadKeys()
	if err != nil {
		return "records not compared: " + firstLine(err), nil
	}
	before := time.Now().Add(time.Hour)
	if served, err := h.Served(); err != nil || served {
		before = h.lastEntry().Add(-settleTime)
	}
	v, f, unreadable := h.Viewer(k), newLogFacts(), 0
	names, listed := h.Store.Workspaces(context.Background())
	listed = errors.Join(listed, h.each(context.Background(), approval.DocRecord, names, func(key approval.Key) {
		rec, bad := v.Record(context.Background(), key)
		if bad != nil {
			unreadable++
		}
		switch {
		case errors.Is(bad, seal.ErrSeal):
			err = fmt.Errorf("%w: the record of %s was altered: %w", audit.ErrTampered, key, bad)
		case rec != nil && rec.EndedAt.Before(before):
			f.addRecord(rec)
		}
	}))
	if listed != nil {
		return "records not compared: " + firstLine(listed), nil
	}
	for digest, name := range c.Facts.Receipts {
		f.Receipts[digest] = name
	}
	c.Facts = audit.Facts(f)
	if unreadable > 0 {
		note = fmt.Sprintf("%d unreadable records were not compared", unreadable)
	}
	return note, err
}

// lastEntry is the time of the newest entry in the log's file.
func (h *Home) lastEntry() time.Time {
	last, err := audit.Last(h.FS, h.Layout.Audit(), 1)
	if err != nil || len(last) == 0 {
		return time.Time{}
	}
	return last[0].Time
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// Recover brings the files to the state of the journal, as a start of the daemon does, for
// commands that only read them. It does nothing while a daemon runs, or if the home belongs
// to another user.
func (h *Home) Recover(ctx context.Context) error {
	info, err := os.Stat(h.Layout.Lock())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() {
		return nil
	}
	err = h.WaitForLock(ctx, func() error {
		if h.Store.Ready() {
			return nil
		}
		release, err := h.Store.Lease(ctx)
		if err != nil {
			return err
		}
		return release()
	})
	if errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) || errors.Is(err, store.ErrLocked) {
		return nil
	}
	return err
}
