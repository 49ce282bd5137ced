package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/receipt"
)

// apiListener is the HTTP API with its listeners.
type apiListener struct {
	server    *httpapi.Server
	listeners []net.Listener
	locks     []io.Closer
}

// openAPI listens on the configured addresses.
func (s *server) openAPI() (d *apiListener, err error) {
	d = &apiListener{server: s.api}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	for _, at := range s.Config.Listen {
		l, err := d.listen(s.FS, at)
		if errors.Is(err, syscall.EADDRINUSE) && !s.Config.ListenSet {
			s.log.Warn().Msg("HTTP API disabled: address already in use: " + at.Address + "; set listen to another address, or to \"\" to turn it off")
			continue
		}
		if err != nil {
			return d, err
		}
		d.listeners = append(d.listeners, l)
		s.api.Hosts = append(s.api.Hosts, names(l.Addr(), s.Config.ListenHosts)...)
		s.log.Info().Str("path", l.Addr().String()).Msg("HTTP API listening")
	}
	return d, nil
}

func (d *apiListener) listen(fsys ipc.FS, at config.Listen) (net.Listener, error) {
	if at.Network != "unix" {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), at.Network, at.Address)
		if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("listen on %s: %w", at.Address, err)
		}
		if err != nil {
			return nil, console.Wrap(console.ExitError, fmt.Errorf("listen on %s: %w", at.Address, err), "set listen to another address, or to \"\" to turn it off")
		}
		return l, nil
	}
	lock, err := fsys.TryLock(at.Address + ".lock")
	if errors.Is(err, ipc.ErrLocked) {
		return nil, console.Fail(console.ExitLocked, "configure another socket for one of them", "another daemon listens on %s", at.Address)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", at.Address, err)
	}
	d.locks = append(d.locks, lock)
	return httpapi.ListenUnix(at.Address)
}

// names are the host names by which a request may address a listener.
func names(at net.Addr, more []string) (list []string) {
	addr, ok := at.(*net.TCPAddr)
	if !ok {
		return nil
	}
	port := fmt.Sprint(addr.Port)
	if ip := addr.IP; ip.IsLoopback() || ip.IsUnspecified() {
		list = append(list, net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("localhost", port), net.JoinHostPort("::1", port))
	}
	if !addr.IP.IsUnspecified() {
		list = append(list, net.JoinHostPort(addr.IP.String(), port))
	}
	for _, name := range more {
		list = append(list, name)
		if !strings.Contains(name, ":") {
			list = append(list, net.JoinHostPort(name, port))
		}
	}
	return list
}

// run serves until ctx ends.
func (d *apiListener) run(ctx context.Context) error { return d.server.Run(ctx, d.listeners...) }

func (d *apiListener) close() {
	for _, l := range d.listeners {
		_ = l.Close() // already closed if Run has run
	}
	for _, l := range d.locks {
		_ = l.Close()
	}
}

// newAPI wires the HTTP API.
func (s *server) newAPI() (*httpapi.Server, error) {
	verifier, err := receipt.LoadVerifier(s.FS, s.Layout.Keys())
	if err != nil {
		return nil, err
	}
	return &httpapi.Server{
		Gate: s.gate, Decider: home.FreshDecider(s.keyDecider), Viewer: s.Viewer(s.keys), Keys: s.CachedKeyring(s.keys),
		History: apiHistory{s}, Feed: s.feed, Grants: apiGrants{s.memory}, Receipts: apiReceipts{s, verifier},
		Inbox: mailIntake{s}, Settings: apiWorkspaces{s}, Ready: s.ready, Metrics: s.metrics.metrics, Local: s.controlService().Operations(), Version: s.app.Version, Log: s.log,
	}, nil
}

// ready returns an error while no new requests are accepted.
func (s *server) ready(ctx context.Context) error {
	if p, degraded := s.gate.Degraded(); degraded {
		return errors.New(p.Reason)
	}
	return s.gate.Alive(ctx)
}

// keyDecider is a decider for API keys of approvers. It accepts only them.
func (s *server) keyDecider() *gate.Decider {
	d := s.gateDecider()
	d.May = func(ws string, p *approval.Pending, by approval.Person) (string, bool) {
		cfg := s.Current()
		w := cfg.Workspaces[ws]
		_, known := cfg.Approvers[by.Name]
		switch {
		case by.Channel != "key" || !known || !slices.Contains(w.Approvers, by.Name):
			return "", false
		case w.Principal != "" && w.Principal != by.Name:
			return "", false
		case p != nil && p.Principal != "" && p.Principal != by.Name:
			return "", false
		}
		return by.Name, true
	}
	return d
}

// apiWorkspaces implements httpapi.Settings.
type apiWorkspaces struct{ *server }

// WorkspaceInfo implements httpapi.Settings.
func (p apiWorkspaces) WorkspaceInfo(name string) (httpapi.WorkspaceInfo, bool) {
	cfg := p.Current()
	ws, ok := cfg.Workspaces[name]
	if !ok {
		return httpapi.WorkspaceInfo{}, false
	}
	at := httpapi.WorkspaceInfo{Channels: ws.Channels, MaxSize: ws.Limits.WithDefaults().RequestSize}
	if chat, ok := strings.CutPrefix(ws.ChatJID, "telegram:"); ok {
		at.Chats = append(at.Chats, chat)
	}
	for _, name := range ws.Approvers {
		who := cfg.Approvers[name]
		if ws.Principal != "" && name != ws.Principal {
			continue
		}
		if who.Telegram != "" {
			at.Chats = append(at.Chats, who.Telegram)
		}
		if who.Email != "" {
			at.Addresses = append(at.Addresses, who.Email)
		}
	}
	return at, true
}

// apiHistory implements httpapi.History by the audit log.
type apiHistory struct{ *server }

// Ended implements httpapi.History.
func (p apiHistory) Ended(_ context.Context, ws string, before time.Time, limit int, match func(string, approval.Status) bool) (list []httpapi.HistoryItem, more bool, err error) {
	v := p.Viewer(p.keys)
	found, more, err := audit.Requests(p.FS, p.Layout.Audit(), audit.Wanted{
		Until: before, Limit: limit,
		Match: func(r *audit.Request) bool {
			if r.Key.Workspace != ws {
				return false
			}
			home.AddOutcome(v, r)
			return r.Status != audit.StatusPending && r.Status != audit.StatusRunning && match(r.ClientID, r.Status)
		},
	})
	for _, r := range found {
		list = append(list, httpapi.HistoryItem{Key: r.Key, AskedAt: r.Asked(), Status: r.Status})
	}
	return list, more, err
}

// apiGrants implements the API's view of the grants.
type apiGrants struct{ *home.Memory }

// List implements httpapi.Grants.
func (c apiGrants) List(ws string) (list []httpapi.GrantUse) {
	for _, r := range c.Grants() {
		if r.Workspace == ws {
			list = append(list, httpapi.GrantUse{Grant: r.Grant, Uses: r.Uses, LastUsed: r.LastUsed})
		}
	}
	return list
}

// Revoke implements httpapi.Grants.
func (c apiGrants) Revoke(_ context.Context, id, by string) (done bool, err error) {
	g, err := c.Grant(id)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !g.RevokedAt.IsZero() {
		return false, err
	}
	g.RevokedAt, g.RevokedBy = time.Now().UTC(), by
	return true, c.SaveGrant(g, approval.Replace)
}

// apiReceipts implements httpapi.Receipts.
type apiReceipts struct {
	*server
	verifier *receipt.Verifier
}

// Facts implements httpapi.Receipts.
func (p apiReceipts) Facts(text string) (httpapi.ReceiptFacts, error) {
	f, err := p.verifier.Parse(text)
	if err != nil {
		return httpapi.ReceiptFacts{}, err
	}
	return httpapi.ReceiptFacts{
		Workspace: f.Workspace, RequestID: f.RequestID, Tool: f.Tool, ActionType: f.ActionType, ArgsSHA256: f.ArgsSHA256,
		DecisionType: f.DecisionType, By: f.By, Via: f.Via, Rule: f.Rule, Issued: f.Issued, Expires: f.Expires,
	}, nil
}

// Verify implements httpapi.Receipts.
func (p apiReceipts) Verify(w httpapi.ReceiptQuery) error {
	return home.CheckReceipt(p.verifier, w.Receipt, w.Tool, w.ArgsSHA256, w.AllowExpired)
}

// Redeem implements httpapi.Receipts.
func (p apiReceipts) Redeem(ctx context.Context, f httpapi.ReceiptFacts, by string) error {
	k := approval.Key{Workspace: f.Workspace, ID: f.RequestID}
	err := p.MarkRedeemed(ctx, p.keys, k, by)
	if err == nil {
		p.audit.Note(approval.Entry{Event: approval.EventRedeemed, Workspace: k.Workspace, RequestID: k.ID, Tool: f.Tool, By: by, Via: "rest"})
	}
	return err
}
