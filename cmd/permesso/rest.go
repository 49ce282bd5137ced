package main

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
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/receipt"
)

// door is the HTTP door, open.
type door struct {
	server    *httpapi.Server
	listeners []net.Listener
	locks     []io.Closer
}

// openDoor listens where the configuration says; nil where it says nowhere.
func (s *server) openDoor() (d *door, err error) {
	d = &door{server: s.rest}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	for _, at := range s.cfg.Listen {
		l, err := d.listen(s.fs, at)
		if errors.Is(err, syscall.EADDRINUSE) && !s.cfg.ListenStated {
			s.log.Warn().Msg("the HTTP door stays shut: " + at.Address + " is somebody else's; name another with listen, or turn it off")
			continue
		}
		if err != nil {
			return d, err
		}
		d.listeners = append(d.listeners, l)
		s.rest.Hosts = append(s.rest.Hosts, names(l.Addr(), s.cfg.ListenHosts)...)
		s.log.Info().Str("path", l.Addr().String()).Msg("agents with a key ask here")
	}
	return d, nil
}

func (d *door) listen(fsys ipc.FS, at config.Listen) (net.Listener, error) {
	if at.Network != "unix" {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), at.Network, at.Address)
		if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("listen on %s: %w", at.Address, err)
		}
		if err != nil {
			return nil, &exit{codeError, fmt.Errorf("listen on %s: %w", at.Address, err), "name another address with listen, or turn it off: listen = \"\""}
		}
		return l, nil
	}
	lock, err := fsys.TryLock(at.Address + ".lock")
	if errors.Is(err, ipc.ErrLocked) {
		return nil, fail(codeLocked, "give one of them another socket in its configuration", "another permesso listens on %s", at.Address)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", at.Address, err)
	}
	d.locks = append(d.locks, lock)
	return httpapi.ListenUnix(at.Address)
}

// names are what a request for a listener may call it by.
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

// run answers until ctx ends.
func (d *door) run(ctx context.Context) error { return d.server.Run(ctx, d.listeners...) }

func (d *door) close() {
	for _, l := range d.listeners {
		_ = l.Close() // Run has done it, unless it never ran
	}
	for _, l := range d.locks {
		_ = l.Close()
	}
}

// newRest is what stands behind the HTTP door.
func (s *server) newRest() (*httpapi.Server, error) {
	verifier, err := receipt.LoadVerifier(s.fs, s.layout.Keys())
	if err != nil {
		return nil, err
	}
	return &httpapi.Server{
		Gate: s.gate, Decider: afresh(s.keyDecider), Viewer: s.viewer(s.keys), Keys: keyring{s.store, s.keys.seal, &knownKeys{}},
		History: past{s}, Feed: s.feed, Grants: consents{s.memory}, Receipts: papers{s, verifier},
		Inbox: mailIntake{s}, Settings: places{s}, Ready: s.ready, Metrics: s.census.metrics, Version: version, Log: s.log,
	}, nil
}

// ready says whether requests are taken.
func (s *server) ready(ctx context.Context) error {
	if p, weak := s.gate.Degraded(); weak {
		return errors.New(p.What)
	}
	return s.gate.Alive(ctx)
}

// keyDecider is Decide for those who have an approver's key: the same, but that it
// knows nobody else.
func (s *server) keyDecider() *gate.Decider {
	d := s.decider(s.keys, s)
	d.May = func(ws string, p *approval.Pending, by approval.Person) (string, bool) {
		cfg := s.conf()
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

// places says where people are asked.
type places struct{ *server }

// Place implements httpapi.Settings.
func (p places) WorkspaceInfo(name string) (httpapi.WorkspaceInfo, bool) {
	cfg := p.conf()
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

// past finds what has ended in the audit log.
type past struct{ *server }

// Ended implements httpapi.History.
func (p past) Ended(_ context.Context, ws string, before time.Time, limit int, match func(string, approval.Status) bool) (list []httpapi.HistoryItem, more bool, err error) {
	v := p.viewer(p.keys)
	found, more, err := audit.Requests(p.fs, p.layout.Audit(), audit.Wanted{
		Until: before, Limit: limit,
		Match: func(r *audit.Request) bool {
			if r.Key.Workspace != ws {
				return false
			}
			catchUp(v, r)
			return r.Status != audit.StatusPending && r.Status != audit.StatusRunning && match(r.ClientID, r.Status)
		},
	})
	for _, r := range found {
		list = append(list, httpapi.HistoryItem{Key: r.Key, AskedAt: r.Asked(), Status: r.Status})
	}
	return list, more, err
}

// consents is what is remembered, for those who look through the door.
type consents struct{ *memory }

// List implements httpapi.Consents.
func (c consents) List(ws string) (list []httpapi.GrantUse) {
	for _, r := range c.Grants() {
		if r.Workspace == ws {
			list = append(list, httpapi.GrantUse{Grant: r.Grant, Uses: r.Uses, LastUsed: r.LastUsed})
		}
	}
	return list
}

// Revoke implements httpapi.Consents.
func (c consents) Revoke(_ context.Context, id, by string) (done bool, err error) {
	g, err := c.grant(id)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !g.RevokedAt.IsZero() {
		return false, err
	}
	g.RevokedAt, g.RevokedBy = time.Now().UTC(), by
	return true, c.saveGrant(g, approval.Replace)
}

// papers checks receipts.
type papers struct {
	*server
	verifier *receipt.Verifier
}

// Facts implements httpapi.Receipts.
func (p papers) Facts(text string) (httpapi.ReceiptFacts, error) {
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
func (p papers) Verify(w httpapi.ReceiptQuery) error {
	return checkReceipt(p.verifier, w.Receipt, w.Tool, w.ArgsSHA256, w.AllowExpired)
}

// Redeem implements httpapi.Receipts.
func (p papers) Redeem(ctx context.Context, f httpapi.ReceiptFacts, by string) error {
	k := approval.Key{Workspace: f.Workspace, ID: f.RequestID}
	err := p.useUp(ctx, p.keys, k, by)
	if err == nil {
		p.audit.Note(approval.Entry{Event: approval.EventRedeemed, Workspace: k.Workspace, RequestID: k.ID, Tool: f.Tool, By: by, Via: "rest"})
	}
	return err
}
