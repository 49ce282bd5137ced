package home

import (
	"sync/atomic"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/security/policy"
)

// Settings is one immutable configuration with its policy.
type Settings struct {
	cfg    *config.Config
	policy gate.Policy // nil: for lookups only
}

// SettingsOf returns settings without a policy.
func SettingsOf(cfg *config.Config) *Settings { return &Settings{cfg: cfg} }

// Settings returns settings with the policy of the same configuration.
func (m *Memory) Settings(cfg *config.Config) (*Settings, error) {
	view, err := m.View(cfg.PolicyConfig())
	if err != nil {
		return nil, err
	}
	return &Settings{cfg, &configuredPolicy{m, view}}, nil
}

// configuredPolicy is the policy of one configuration.
type configuredPolicy struct {
	*Memory
	view *policy.View
}

// Judge implements gate.Policy.
func (j *configuredPolicy) Judge(f approval.Facts) approval.Ruling { return j.view.Judge(f) }

// Reserve reads the ruling's grant again, so that a revocation takes effect at
// once.
func (j *configuredPolicy) Reserve(f approval.Facts, r approval.Ruling, human bool) (undo func(), refused *approval.Ruling) {
	if r.Grant != "" && !human {
		j.reloadGrant(r.Grant)
	}
	return j.view.Reserve(f, r, human)
}

// Workspace implements gate.Settings.
func (s *Settings) Workspace(name string) (approval.Workspace, bool) {
	ws, ok := s.cfg.Workspaces[name]
	return ws, ok
}

// Tool implements gate.Settings.
func (s *Settings) Tool(name string) (approval.Tool, bool) {
	t, ok := s.cfg.Tools[name]
	return t, ok
}

// Approver implements gate.People.
func (s *Settings) Approver(by approval.Person) string { return s.cfg.Approver(by) }

// IsAgent implements gate.People.
func (s *Settings) IsAgent(uid string) bool { return s.cfg.IsAgent(uid) }

// Provers implements gate.Settings.
func (s *Settings) Provers() facts.Provers { return s.cfg.Provers }

// Live is the current settings: the one pointer that a reload swaps.
type Live struct{ now atomic.Pointer[Settings] }

// Set replaces the current settings.
func (l *Live) Set(s *Settings) { l.now.Store(s) }

// Workspace implements gate.Settings.
func (l *Live) Workspace(name string) (approval.Workspace, bool) { return l.now.Load().Workspace(name) }

// Tool implements gate.Settings.
func (l *Live) Tool(name string) (approval.Tool, bool) { return l.now.Load().Tool(name) }

// Provers implements gate.Settings.
func (l *Live) Provers() facts.Provers { return l.now.Load().Provers() }

// Judge implements gate.Policy with the current settings, as Reserve and Recurrence do.
func (l *Live) Judge(f approval.Facts) approval.Ruling { return l.now.Load().policy.Judge(f) }

// Reserve implements gate.Policy.
func (l *Live) Reserve(f approval.Facts, r approval.Ruling, human bool) (undo func(), refused *approval.Ruling) {
	return l.now.Load().policy.Reserve(f, r, human)
}

// Recurrence implements gate.Policy.
func (l *Live) Recurrence(ws, capability, tool, target string) int {
	return l.now.Load().policy.Recurrence(ws, capability, tool, target)
}

// Snapshot returns settings and policy of the same configuration.
func (l *Live) Snapshot() (gate.Settings, gate.Policy) {
	now := l.now.Load()
	return now, now.policy
}

// Current is the current configuration: after reloads in a daemon, as read
// otherwise.
func (h *Home) Current() *config.Config {
	if now := h.Live.now.Load(); now != nil {
		return now.cfg
	}
	return h.Config
}
