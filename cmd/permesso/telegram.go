package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
)

// telegramToken is where the token may stand that no file holds.
const telegramToken = "PERMESSO_TELEGRAM_TOKEN" //nolint:gosec // the name of a variable

func telegramKind() kind {
	return kind{telegram.Via, func(cfg *config.Config) any {
		if cfg.Telegram == nil {
			return nil
		}
		return *cfg.Telegram
	}, openTelegram}
}

// openTelegram furnishes the channel. The token is read each time: whoever put
// a right one in the place of a wrong one need not restart the gate.
func openTelegram(s *server, changes <-chan approval.Key) (channel, error) {
	cfg := s.conf().Telegram
	if cfg == nil {
		return nil, errors.New("[channels.telegram] is gone")
	}
	token, err := botToken(cfg, s.app.Env)
	if err != nil {
		return nil, err
	}
	r := s.room(telegram.Via)
	updates, err := r.notebook.State("updates")
	if err != nil {
		return nil, err
	}
	notes, err := r.notebook.State("notes")
	if err != nil {
		return nil, err
	}
	d := telegramDesk{r}
	c := &telegram.Channel{
		Token: token, ServerURL: cfg.ServerURL, Updates: updates, Notes: notes, Notebook: r.notebook,
		Viewer: d, Interceptor: r.interceptor(), Guard: d, Pauser: d, History: d,
		Workspaces: d.asked, Feed: func() bool { return cfg.Feed }, Style: r.style, Foot: r.foot, Changes: changes, Problem: r.problem,
		Log: func(err error) {
			s.log.Error().Str("via", telegram.Via).Err(err).EmbedObject(advice{err}).Msg("telegram")
		},
	}
	if w := cfg.Webhook; w != nil {
		secret, err := secretWord(w.SecretFile)
		if err != nil {
			return nil, err
		}
		c.Webhook = &telegram.Webhook{Listen: w.Listen, URL: w.URL, Secret: secret}
	}
	return c, nil
}

// botToken is the token, from its file or from the environment. No error of it
// shows what stands there.
func botToken(cfg *config.Telegram, env func(string) string) (string, error) {
	token, from := env(telegramToken), telegramToken
	if cfg.TokenFile != "" {
		var err error
		if token, err = secretWord(cfg.TokenFile); err != nil {
			return "", err
		}
		from = cfg.TokenFile
	}
	switch {
	case token == "":
		return "", fmt.Errorf("no token: permesso telegram setup asks for one; it belongs into a token_file, or into %s", telegramToken)
	case !telegram.ValidToken(token):
		return "", fmt.Errorf("%s does not hold a token: one looks like 123456789:AA… and comes from @BotFather", from)
	}
	return token, nil
}

// telegramDesk is the room as the channel needs it.
type telegramDesk struct{ *room }

// asked are the workspaces whose people are asked there, and where.
func (d telegramDesk) asked() []telegram.Workspace {
	cfg := d.s.conf()
	var all []telegram.Workspace
	for _, name := range d.workspaces() {
		w := cfg.Workspaces[name]
		all = append(all, telegram.Workspace{Name: name, Language: w.Language, Quiet: w.QuietHours, Places: telegramPlaces(cfg, name)})
	}
	return all
}

// telegramPlaces is where a workspace is asked: in its chat, or else in the private chats of its people.
func telegramPlaces(cfg *config.Config, ws string) []telegram.Place {
	people := peopleOf(cfg, ws)
	if at, ok := cfg.TelegramChats[ws]; ok {
		place := telegram.Place{Chat: at.ChatID, Thread: at.ThreadID}
		for _, p := range people {
			if p.Telegram == strconv.FormatInt(at.ChatID, 10) {
				place.Language, place.Person = p.Language, p.Name
			}
		}
		return []telegram.Place{place}
	}
	var places []telegram.Place
	for _, p := range people {
		if id, err := strconv.ParseInt(p.Telegram, 10, 64); err == nil {
			places = append(places, telegram.Place{Chat: id, Language: p.Language, Person: p.Name})
		}
	}
	return places
}

// Story implements telegram.Viewer. The record is looked for last: it is there
// before the others go.
func (d telegramDesk) Story(ctx context.Context, k approval.Key) (st telegram.Story, err error) {
	w, err := d.viewer.Pending(k)
	if err != nil {
		return st, err
	}
	if w != nil && !d.asks(w.Pending) {
		return st, nil // as if there were none, also where a hint brings us here
	}
	if w != nil {
		st.Pending, st.SHA256 = w.Pending, w.SHA256
		if st.Decision, err = d.decision(k, w.SHA256); err != nil {
			return st, err
		}
	}
	rec, err := d.viewer.Record(ctx, k)
	if err != nil || rec == nil {
		return st, err
	}
	return telegram.Story{
		Pending: d.viewer.Asked(k, rec.Pending), Decision: d.viewer.Decision(k, rec.Decision), Record: rec,
	}, nil
}

// decision is the valid one in the slot of what waits; nil: there is none.
func (d telegramDesk) decision(k approval.Key, pending string) (*approval.Decision, error) {
	b, err := d.s.store.Read(approval.DocDecision, k)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if dec := d.viewer.Decision(k, b); dec != nil && dec.PendingSHA256 == pending {
		return dec, nil
	}
	return nil, nil
}

// May implements telegram.Guard.
func (d telegramDesk) May(ws string, p *approval.Pending, by approval.Person) (string, bool) {
	return d.s.decider(d.s.keys, d.s).May(ws, p, by)
}

// Refused implements telegram.Guard.
func (d telegramDesk) Refused(k approval.Key, by approval.Person) {
	d.decider.Refused(k, by, telegram.Via)
}

// Pause implements telegram.Pauser.
func (d telegramDesk) Pause(_ context.Context, ws string, by approval.Person, reason string) (changed bool, err error) {
	name, _ := d.May(ws, nil, by)
	err = d.s.store.Pause(ipc.Pause{Workspace: ws, By: name, Via: telegram.Via, At: time.Now().UTC(), Reason: reason})
	changed = err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	err = d.s.awaitClaims(ws)
	d.s.lookAtPauses()
	return changed, err
}

// Resume implements telegram.Pauser.
func (d telegramDesk) Resume(_ context.Context, ws string, by approval.Person) (changed bool, err error) {
	name, _ := d.May(ws, nil, by)
	_, err = d.s.store.ResumeVia(ws, name, telegram.Via, time.Now().UTC())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	d.s.lookAtPauses()
	return err == nil, err
}

// Last implements telegram.History.
func (d telegramDesk) Last(_ context.Context, workspaces []string, n int) ([]approval.Key, error) {
	found, _, err := audit.Requests(d.s.fs, d.s.layout.Audit(), audit.Wanted{Limit: n, Match: func(r *audit.Request) bool {
		for _, ws := range workspaces {
			if ws == r.Key.Workspace {
				return r.Status != audit.StatusPending && r.Status != audit.StatusRunning
			}
		}
		return false
	}})
	var keys []approval.Key
	for _, r := range found {
		keys = append(keys, r.Key)
	}
	return keys, err
}
