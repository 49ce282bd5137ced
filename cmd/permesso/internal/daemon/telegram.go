package daemon

import (
	"context"
	"errors"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

func telegramKind() kind {
	return kind{telegram.Via, func(cfg *config.Config) any {
		if cfg.Telegram == nil {
			return nil
		}
		return *cfg.Telegram
	}, openTelegram}
}

// openTelegram creates the channel. It reads the token at every start of the
// channel, so that a corrected token works without a restart of the daemon.
func openTelegram(s *server, changes <-chan approval.Key) (channel, error) {
	cfg := s.Current().Telegram
	if cfg == nil {
		return channel{}, errors.New("[channels.telegram] is no longer configured")
	}
	token, err := home.BotToken(cfg, s.app.Env)
	if err != nil {
		return channel{}, err
	}
	r := s.channelEnv(telegram.Via)
	updates, err := r.sentStore.State("updates")
	if err != nil {
		return channel{}, err
	}
	notes, err := r.sentStore.State("notes")
	if err != nil {
		return channel{}, err
	}
	d := telegramEnv{r}
	a := &telegram.Adapter{Token: token, ServerURL: cfg.ServerURL, Updates: updates}
	if w := cfg.Webhook; w != nil {
		secret, err := home.SecretWord(w.SecretFile)
		if err != nil {
			return channel{}, err
		}
		a.Webhook = &telegram.Webhook{Listen: w.Listen, URL: w.URL, Secret: secret}
	}
	c := &deliver.Channel{
		Name: telegram.Via, Adapter: a, State: notes, Sent: r.sentStore,
		Viewer: d, Interceptor: r.interceptor(), Guard: d, Pauser: d, History: d,
		Workspaces: d.telegramWorkspaces, Feed: func() bool { return cfg.Feed }, Style: r.style, Foot: r.foot, Changes: changes, Problem: r.reportIssue,
		Log: func(err error) {
			s.log.Error().Str("via", telegram.Via).Err(err).EmbedObject(console.Advice{Err: err}).Msg("telegram channel failed")
		},
	}
	return channel{run: c.Run, alert: c.Alert}, nil
}

// telegramEnv is the environment of the Telegram channel.
type telegramEnv struct{ *channelEnv }

// telegramWorkspaces returns the workspaces that use Telegram, with their chats.
func (d telegramEnv) telegramWorkspaces() []deliver.Workspace {
	cfg := d.s.Current()
	var all []deliver.Workspace
	for _, name := range d.workspaces() {
		w := cfg.Workspaces[name]
		all = append(all, deliver.Workspace{Name: name, Language: w.Language, Quiet: w.QuietHours, Places: TelegramPlaces(cfg, name)})
	}
	return all
}

// TelegramPlaces returns the chats of a workspace: the configured chat, or the private chats of its approvers.
func TelegramPlaces(cfg *config.Config, ws string) []deliver.Place {
	people := peopleOf(cfg, ws)
	if at, ok := cfg.TelegramChats[ws]; ok {
		place := deliver.Place{Address: deliver.Address{Chat: deliver.NumberID(at.ChatID), Thread: deliver.NumberID(int64(at.ThreadID))}}
		for _, p := range people {
			if p.IDs[telegram.Via] == string(place.Chat) {
				place.Language, place.Person = p.Language, p.Name
			}
		}
		return []deliver.Place{place}
	}
	var places []deliver.Place
	for _, p := range people {
		if id := p.IDs[telegram.Via]; id != "" {
			places = append(places, deliver.Place{Address: deliver.Address{Chat: deliver.ID(id)}, Language: p.Language, Person: p.Name})
		}
	}
	return places
}

// Story implements deliver.Channel.
func (d telegramEnv) Story(ctx context.Context, k approval.Key) (read.Story, error) {
	st, err := d.viewer.Story(ctx, k)
	if st.SHA256 != "" && !d.asks(st.Pending) {
		return read.Story{}, err // not for this channel, even if a hint names it
	}
	return st, err
}

// May implements deliver.Channel.
func (d telegramEnv) May(ws string, p *approval.Pending, by approval.Person) (string, bool) {
	return d.s.gateDecider().May(ws, p, by)
}

// Refused implements deliver.Channel.
func (d telegramEnv) Refused(k approval.Key, by approval.Person) {
	d.decider.Refused(k, by, telegram.Via)
}

// Pause implements deliver.Channel.
func (d telegramEnv) Pause(_ context.Context, ws string, by approval.Person, reason string) (changed bool, err error) {
	return d.s.pause(ws, by, telegram.Via, reason)
}

// Resume implements deliver.Channel.
func (d telegramEnv) Resume(_ context.Context, ws string, by approval.Person) (changed bool, err error) {
	return d.s.resume(ws, by, telegram.Via)
}

// Last implements deliver.Channel.
func (d telegramEnv) Last(_ context.Context, workspaces []string, n int) ([]approval.Key, error) {
	if len(workspaces) == 0 {
		return nil, nil // an empty list would mean every workspace
	}
	found, _, err := d.viewer.Requests(read.Query{Workspaces: workspaces, Limit: n, Match: (*read.Request).Ended})
	var keys []approval.Key
	for _, r := range found {
		keys = append(keys, r.Key)
	}
	return keys, err
}
