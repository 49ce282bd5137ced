package home

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/policy"
	"github.com/permesso-dev/permesso/security/secrets"
)

// Memory is the policy engine with its state: the folded audit log and the
// grants.
type Memory struct {
	*policy.Engine
	scanner *secrets.Scanner
	home    *Home
	Keys    *Keys
	log     zerolog.Logger

	// Audit makes an entry durable. It is nil in a command: the daemon audits its changes
	// at the next start.
	Audit func(event.Entry) error
	keys  Keyring

	applying sync.Mutex // serializes ApplyChanges
	auditing sync.Mutex // serializes auditGrant
	adding   sync.Mutex // serializes AddFromDecision
	first    []*grant.First
	mu       sync.Mutex
	audited  map[string]bool // audited facts: "granted ID", "revoked ID", "taints_cleared ID", "key_created ID", "paused pause ID" …
}

// bareMemory returns a memory without an engine.
func (h *Home) bareMemory(log zerolog.Logger) (*Memory, error) {
	scanner, err := secrets.New()
	if err != nil {
		return nil, err
	}
	return &Memory{scanner: scanner, home: h, log: log}, nil
}

// NewMemory reads the last snapshot, the log after it, and the grants. Without keys there
// are none.
func (h *Home) NewMemory(k *Keys, log zerolog.Logger) (*Memory, error) {
	m, err := h.bareMemory(log)
	if err != nil {
		return nil, err
	}
	if k == nil {
		m.reset()
		return m, m.Load(h.Config.PolicyConfig())
	}
	m.Keys, m.keys = k, h.Keyring(k)
	seq := m.restore()
	last, err := m.readLog(seq)
	if err == nil && last < seq {
		// A power cut removed entries that the snapshot includes.
		m.log.Info().Msg("policy snapshot is newer than the log, reading the whole log")
		m.reset()
		_, err = m.readLog(0)
	}
	if err != nil {
		return nil, err
	}
	return m, m.readGrants()
}

// reset resets the engine.
func (m *Memory) reset() {
	m.Engine = &policy.Engine{Scan: m.scanner.Scan, Resolve: Resolve, Own: m.home.ownPlaces()}
	m.audited = map[string]bool{}
}

// ownPlaces are the state and the configuration, also as their links lead to them.
func (h *Home) ownPlaces() (all []string) {
	for _, place := range []string{h.Layout.Home, h.Config.File} {
		if !filepath.IsAbs(place) {
			continue
		}
		all = append(all, filepath.Clean(place))
		if to, err := Resolve(place); err == nil && to != filepath.Clean(place) {
			all = append(all, to)
		}
	}
	return all
}

func (m *Memory) readLog(after int64) (last int64, err error) {
	if err := m.Load(m.home.Config.PolicyConfig()); err != nil {
		return 0, err
	}
	// The snapshot's last entry is read as well: it must exist.
	err = audit.EntriesAfter(m.home.FS, m.home.Layout.Audit(), after-1, func(x event.Entry) error {
		last = x.Seq
		m.Observe(x)
		return nil
	})
	return last, err
}

// Observe adds an audit entry, in the log's order.
func (m *Memory) Observe(x event.Entry) {
	m.Learn(x)
	switch x.Event {
	case event.Granted, event.Revoked, event.TaintsCleared, event.KeyCreated, event.KeyRevoked, event.Paused, event.Resumed:
		m.mu.Lock()
		m.audited[factName(x)] = true
		m.mu.Unlock()
	}
}

// factName names a fact that is audited once: about a grant, a clearing or a key by its id,
// about a pause by the entry's detail.
func factName(e event.Entry) string { return string(e.Event) + " " + cmp.Or(e.Grant, e.Detail) }

// AuditOnce adds an entry to the log, unless the log has one about the same.
func (m *Memory) AuditOnce(e event.Entry) error {
	m.mu.Lock()
	known := m.audited[factName(e)]
	m.mu.Unlock()
	if known {
		return nil
	}
	return m.Audit(e)
}

// Grant reads one grant from its file.
func (m *Memory) Grant(id string) (*grant.Grant, error) {
	body, err := m.openGrant(id)
	if err != nil {
		return nil, err
	}
	return grant.Parse(body, id)
}

func (m *Memory) openGrant(id string) (body []byte, err error) {
	k := grant.Key(id)
	b, err := m.home.Store.Read(context.Background(), approval.DocGrant, k)
	if err != nil {
		return nil, err
	}
	return m.Keys.Seal.Open(approval.DocGrant, k, b)
}

// SaveGrant writes a grant, and audits it; how permits replacing an older state.
func (m *Memory) SaveGrant(g *grant.Grant, how store.Mode) error {
	if err := m.home.writeGrant(m.Keys, g, how); err != nil {
		return err
	}
	if err := m.AddGrant(*g); err != nil {
		return err
	}
	if err := m.auditGrant(g); err != nil { // ApplyChanges tries again
		m.log.Error().Str("grant", g.ID).Err(err).Msg("audit grant failed")
	}
	return nil
}

// writeGrant makes a grant durable; how permits replacing an older state.
func (h *Home) writeGrant(k *Keys, g *grant.Grant, how store.Mode) error {
	if err := g.Check(); err != nil {
		return err
	}
	body, err := g.Encode()
	if err != nil {
		return err
	}
	return h.sealGrant(k, g.ID, body, how)
}

// AddFromDecision implements gate.Grants. An existing grant stays: it may have been revoked
// since.
func (m *Memory) AddFromDecision(p *approval.Pending, d *approval.Decision) error {
	g := grant.From(p, d)
	if g == nil {
		return nil
	}
	m.adding.Lock() // the second caller returns when the grant holds
	defer m.adding.Unlock()
	if m.HasGrant(g.ID) {
		return nil
	}
	err := m.SaveGrant(g, store.Durable)
	if errors.Is(err, fs.ErrExist) { // another process wrote it, and may have failed to sync it
		err = m.home.Store.Checkpoint(context.Background())
		m.reloadGrant(g.ID)
	}
	return err
}

// grantFiles keeps the grants of decisions in a process without a policy engine. The daemon
// reads and audits them.
type grantFiles struct {
	home *Home
	keys *Keys
}

// AddFromDecision implements gate.Grants.
func (f grantFiles) AddFromDecision(p *approval.Pending, d *approval.Decision) error {
	g := grant.From(p, d)
	if g == nil {
		return nil
	}
	err := f.home.writeGrant(f.keys, g, store.Durable)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// ApplyChanges applies what commands left in the home while no daemon ran, and what
// could not be audited before: it audits new and revoked grants and keys, revokes unused
// grants and clears taints. Without Audit it does nothing.
func (m *Memory) ApplyChanges(now time.Time) error {
	if m.Audit == nil {
		return nil
	}
	m.applying.Lock()
	defer m.applying.Unlock()
	errs := []error{m.revokeFirst(now)}
	for _, r := range m.Grants() {
		errs = append(errs, m.auditGrant(&r.Grant))
		if r.RevokedAt.IsZero() && r.Stale(now) {
			_, err := m.revoke(&r.Grant, "stale: unused for 90 days", now)
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, m.clearTaints(), m.auditKeyChanges())...)
}

// readGrants reads every grant. An unreadable one allows nothing.
func (m *Memory) readGrants() error {
	ids, _, err := m.home.Store.List(context.Background(), approval.DocGrant, grant.Key("").Workspace)
	if err != nil {
		return fmt.Errorf("list grants: %w", err)
	}
	for _, id := range ids {
		if err := m.readGrant(id); err != nil {
			m.log.Warn().Str("grant", id).Err(err).Msg("invalid grant ignored")
		}
	}
	return nil
}

func (m *Memory) readGrant(id string) error {
	body, err := m.openGrant(id)
	if err != nil {
		return err
	}
	if first, err := grant.ParseFirst(body, id); err == nil {
		m.first = append(m.first, first)
		return nil
	}
	g, err := grant.Parse(body, id)
	if err != nil {
		return err
	}
	return m.AddGrant(*g)
}

// auditGrant audits a grant and its revocation, each once.
func (m *Memory) auditGrant(g *grant.Grant) error {
	if m.Audit == nil {
		return nil
	}
	m.auditing.Lock()
	defer m.auditing.Unlock()
	e := event.Entry{
		Event: event.Granted, Workspace: g.Workspace, Grant: g.ID, By: g.By, Via: g.Via, Reason: g.Reason,
		Tool: g.Tool, Target: g.Target, ActionType: g.ActionType, ClientID: g.ClientID, SessionID: g.SessionID,
		Detail: g.Form,
	}
	if err := m.AuditOnce(e); err != nil || g.RevokedAt.IsZero() {
		return err
	}
	e.Event, e.By, e.Via = event.Revoked, g.RevokedBy, ""
	return m.AuditOnce(e)
}

// clearTaints applies the requests of session clear.
func (m *Memory) clearTaints() error {
	ids, _, err := m.home.Store.List(context.Background(), approval.DocClear, grant.Key("").Workspace)
	if err != nil {
		return fmt.Errorf("list taint clearings: %w", err)
	}
	for _, id := range ids {
		if err := m.clear(id); err != nil {
			return err
		}
	}
	return nil
}

func (m *Memory) clear(id string) error {
	k := grant.Key(id)
	b, err := m.home.Store.Read(context.Background(), approval.DocClear, k)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	var c *grant.Clearing
	body, err := m.Keys.Seal.Open(approval.DocClear, k, b)
	if err == nil {
		c, err = grant.ParseClearing(body, id)
	}
	if err != nil {
		m.log.Warn().Str("clearing", id).Err(err).Msg("invalid taint clearing ignored")
	} else {
		if err := m.AuditOnce(event.Entry{
			Event: event.TaintsCleared, Workspace: c.Workspace, SessionID: c.SessionID, Grant: id,
			By: c.By, ByID: c.ByID, Via: c.Via, Reason: c.Reason,
		}); err != nil {
			return err
		}
		m.log.Info().Str("ws", c.Workspace).Str("by", c.By).Msg("taints cleared")
	}
	return m.home.Store.Remove(context.Background(), approval.DocClear, k)
}

// reloadGrant reads a grant again right before its use, so that a revocation takes
// effect at once.
func (m *Memory) reloadGrant(id string) {
	g, err := m.Grant(id)
	if err != nil || m.AddGrant(*g) != nil {
		m.RemoveGrant(id)
	}
}

// snapshotFile spares a start the reading of the whole log. Its seal shows
// whether it is torn or of another home.
func (m *Memory) snapshotFile() string { return filepath.Join(m.home.Layout.Home, "policy.state") }

var snapshotKey = approval.Key{Workspace: "policy", ID: "0000000000000000"}

// docState is not the kind of earlier snapshots: those do not know which pauses were audited.
const docState approval.Doc = "policy_state_2"

// policySnapshot is the content of the snapshot file.
type policySnapshot struct {
	Audited []string        `json:"said"`
	Policy  json.RawMessage `json:"policy"`
}

// restore loads the snapshot, or starts empty without a valid one. seq is the
// sequence number of its last entry.
func (m *Memory) restore() (seq int64) {
	m.reset()
	b, err := os.ReadFile(m.snapshotFile())
	if err != nil {
		return 0
	}
	var r policySnapshot
	body, err := m.Keys.Seal.Open(docState, snapshotKey, b)
	if err == nil {
		err = json.Unmarshal(body, &r)
	}
	if err == nil {
		seq, err = m.Restore(r.Policy)
	}
	if err != nil {
		m.log.Info().Err(err).Msg("policy snapshot is unusable, reading the whole log")
		m.reset()
		return 0
	}
	for _, s := range r.Audited {
		m.audited[s] = true
	}
	return seq
}

// SaveSnapshot writes what was learned from the log, for the next start.
func (m *Memory) SaveSnapshot() error {
	b, err := m.Snapshot()
	if err != nil {
		return err
	}
	m.mu.Lock()
	audited := slices.Sorted(maps.Keys(m.audited))
	m.mu.Unlock()
	body, err := json.Marshal(policySnapshot{audited, b})
	if err != nil {
		return err
	}
	temp := m.snapshotFile() + ".new"
	if err := os.WriteFile(temp, m.Keys.Seal.Seal(docState, snapshotKey, body), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, m.snapshotFile())
}

// ReadMemory returns the current policy for commands that only read. Without keys
// it has no grants.
func ReadMemory(a *console.Console) (*Home, *Memory, error) {
	h, err := Load(a)
	if err != nil {
		return nil, nil, err
	}
	k, err := h.LoadKeys()
	if err != nil {
		if _, statErr := os.Stat(h.Layout.Keys()); !errors.Is(statErr, os.ErrNotExist) {
			return nil, nil, err
		}
	}
	m, err := h.NewMemory(k, zerolog.Nop())
	return h, m, err
}

// Find returns the one grant whose id begins with typed, of the workspaces that sees
// accepts, nil if none.
func (m *Memory) Find(typed string, sees func(workspace string) bool) (*grant.Grant, error) {
	if len(typed) < 4 {
		return nil, console.Fail(console.ExitUsage, "permesso grants lists the ids", "ID %q is too short: give at least 4 digits", typed)
	}
	fit := slices.DeleteFunc(m.Grants(), func(g grant.Use) bool { return !approval.BeginsID(g.ID, typed) || !sees(g.Workspace) })
	switch len(fit) {
	case 0:
		return nil, nil
	case 1:
		return m.Grant(fit[0].ID)
	}
	return nil, console.Fail(console.ExitRefused, "give more digits", "%q matches %d grants", typed, len(fit))
}
