package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/chat/email"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc/httpapi"
	"github.com/permesso-dev/permesso/ipc/service"
	"github.com/permesso-dev/permesso/security/receipt"
)

// openAPI listens on the configured addresses.
func (s *server) openAPI() ([]part, error) {
	var api part
	var listeners []net.Listener
	given, err := inheritedSockets()
	if err != nil {
		return nil, err
	}
	for _, at := range s.Config.Listen {
		l, err := s.listenAPI(&api, at, given.take(at))
		if errors.Is(err, syscall.EADDRINUSE) && !s.Config.ListenSet {
			s.log.Warn().Msg("HTTP API disabled: address already in use: " + at.Address + "; set listen to another address, or to \"\" to turn it off")
			continue
		}
		if err != nil {
			return []part{api}, err
		}
		listeners, api.held = append(listeners, l), append(api.held, l)
		s.api.Hosts = append(s.api.Hosts, names(l.Addr(), s.Config.ListenHosts)...)
		s.log.Info().Str("path", l.Addr().String()).Msg("HTTP API listening")
	}
	if err := given.unused(); err != nil {
		return []part{api}, err
	}
	if len(listeners) == 0 {
		return nil, nil
	}
	api.run = func(ctx context.Context) error { return s.api.Run(ctx, listeners...) }
	return []part{api}, nil
}

// listenAPI opens the socket of an address; given is the one that systemd has opened there, or nil.
func (s *server) listenAPI(api *part, at config.Listen, given net.Listener) (net.Listener, error) {
	if at.Network == "unix" {
		if err := s.lockSocket(api, at.Address); err != nil {
			return nil, err
		}
	}
	if given != nil {
		return given, nil
	}
	if at.Network == "unix" {
		return httpapi.ListenUnix(at.Address)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), at.Network, at.Address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, console.Wrap(console.ExitError, fmt.Errorf("listen on %s: %w", at.Address, err),
			"set listen to another address, or to \"\" to turn it off")
	case err != nil:
		return nil, fmt.Errorf("listen on %s: %w", at.Address, err)
	}
	return l, nil
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

// newAPI wires the HTTP API.
func (s *server) newAPI() (*httpapi.Server, error) {
	verifier, err := receipt.LoadVerifier(s.FS, s.Layout.Keys())
	if err != nil {
		return nil, err
	}
	v := s.Viewer(s.keys)
	s.control = s.controlService()
	requests := &service.Service{Gate: s.gate, Viewer: v, History: v, Settings: apiWorkspaces{s}}
	return &httpapi.Server{
		Service: requests, MCP: s.newMCP(requests),
		Local:   s.control.Operations(),
		Decider: s.gateDecider(), Keys: s.Keyring(s.keys), Feed: s.feed, Grants: s.memory, Receipts: apiReceipts{s, verifier},
		Inbox: mailIntake{s}, Ready: s.ready, Metrics: s.metrics.metrics, Version: s.app.Version, Log: s.log,
	}, nil
}

// ready returns an error while no new requests are accepted.
func (s *server) ready(ctx context.Context) error {
	if p, degraded := s.gate.Degraded(); degraded {
		return errors.New(p.Reason)
	}
	return s.gate.Alive(ctx)
}

// apiWorkspaces implements service.settings.
type apiWorkspaces struct{ *server }

// WorkspaceInfo implements service.settings.
func (p apiWorkspaces) WorkspaceInfo(name string) (service.WorkspaceInfo, bool) {
	cfg := p.Current()
	ws, ok := cfg.Workspaces[name]
	if !ok {
		return service.WorkspaceInfo{}, false
	}
	at := service.WorkspaceInfo{Channels: ws.Channels, MaxSize: ws.Limits.WithDefaults().RequestSize, Targets: map[string][]string{}}
	add := func(channel, target string) {
		if target != "" {
			at.Targets[channel] = append(at.Targets[channel], target)
		}
	}
	if channel, chat, ok := strings.Cut(ws.ChatJID, ":"); ok {
		add(channel, chat)
	}
	for _, who := range peopleOf(cfg, name) {
		at.Approvers = append(at.Approvers, who.Name)
		for channel, id := range who.IDs {
			if channel != approval.EntranceLocal {
				add(channel, id)
			}
		}
	}
	return at, true
}

// apiReceipts implements httpapi.Receipts.
type apiReceipts struct {
	*server
	verifier *receipt.Verifier
}

// Check implements httpapi.Receipts.
func (p apiReceipts) Check(text, tool, argsSHA256 string, allowExpired bool) error {
	return console.CheckReceipt(p.verifier, text, tool, argsSHA256, allowExpired)
}

// CheckSubset implements httpapi.Receipts.
func (p apiReceipts) CheckSubset(text string, approved, used []byte) error {
	f, err := p.verifier.Parse(text)
	if err != nil {
		return err
	}
	return receipt.CheckSubset(f, approved, used)
}

// Parse implements httpapi.Receipts.
func (p apiReceipts) Parse(text string) (approval.ReceiptFacts, error) { return p.verifier.Parse(text) }

// Redeem implements httpapi.Receipts.
func (p apiReceipts) Redeem(ctx context.Context, f approval.ReceiptFacts, by string) error {
	k := approval.Key{Workspace: f.Workspace, ID: f.RequestID}
	err := p.MarkRedeemed(ctx, p.keys, k, by)
	if err == nil {
		p.audit.Note(event.Entry{Event: event.Redeemed, Workspace: k.Workspace, RequestID: k.ID, Tool: f.Tool, By: by, Via: "rest"})
	}
	return err
}

// mailIntake passes emails from the HTTP API to the email channel, if it runs.
type mailIntake struct{ *server }

// Take implements httpapi.Inbox.
func (m mailIntake) Take(ctx context.Context, mail httpapi.InboxMail) (httpapi.InboxResult, error) {
	cfg := m.Current()
	if cfg.Email == nil {
		return httpapi.InboxResult{}, httpapi.ErrNoInbox
	}
	ch := m.channels.current(emailChannel).mails
	if ch == nil {
		return httpapi.InboxResult{}, httpapi.ErrInboxStarting
	}
	who := approval.Person{Channel: emailChannel, ID: cfg.Approvers[mail.Approver].IDs[emailChannel], Name: mail.Approver}
	var t email.Taken
	var err error
	if mail.Raw != nil {
		// The name identifies an email that is submitted twice.
		t, err = ch.TakeRaw(ctx, mailbox.Incoming{Name: "rest " + approval.Digest(mail.Raw), Raw: mail.Raw}, who)
	} else {
		t, err = ch.TakeForwarded(ctx, email.Forwarded{Subject: mail.Subject, Body: mail.Body, From: mail.From, Authenticated: mail.Authenticated}, who)
	}
	if err != nil {
		return httpapi.InboxResult{}, fmt.Errorf("process email: %w", err)
	}
	return m.result(t)
}

// result maps the outcome of an email to the API's result.
func (m mailIntake) result(t email.Taken) (httpapi.InboxResult, error) {
	r := httpapi.InboxResult{Key: t.Key, Status: "pending"}
	found := t.Key != approval.Key{}
	switch t.Status {
	case email.Answered:
		return r, nil
	case email.Decided, email.Duplicate:
		if found {
			r.Status = m.decisionStatus(t.Key)
			return r, nil
		}
	case email.Unclear:
		return r, fmt.Errorf("%w: invalid code", httpapi.ErrInbox)
	case email.Late:
		return r, &decide.Refusal{Reason: decide.ErrDecided}
	case email.Refused:
		if found {
			return r, &decide.Refusal{Reason: decide.ErrNotAuthorized}
		}
	case email.Ignored:
	}
	return r, fmt.Errorf("%w: %s", httpapi.ErrInbox, cmp.Or(t.Why, "approval_id not found"))
}

// decisionStatus is the decision on a request in the API's field status.
func (m mailIntake) decisionStatus(k approval.Key) string {
	st, err := m.Viewer(m.keys).Story(context.Background(), k)
	switch d := st.Decision; {
	case err != nil || d == nil:
		return "pending"
	case d.Verdict == approval.Approved, d.Verdict == approval.Overridden, d.Verdict == approval.Answered:
		return "approved"
	}
	return "denied"
}
