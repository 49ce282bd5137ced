package daemon

import (
	"errors"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

func telegramKind() kind {
	return kind{telegram.Via, func(cfg *config.Config) any { return settingsOf(cfg.Telegram) }, openTelegram}
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
	a := &telegram.Adapter{Token: token, ServerURL: cfg.ServerURL, Updates: updates}
	if w := cfg.Webhook; w != nil {
		secret, err := home.SecretWord(w.SecretFile)
		if err != nil {
			return channel{}, err
		}
		a.Webhook = &telegram.Webhook{Listen: w.Listen, URL: w.URL, Secret: secret}
	}
	c := r.deliver(a, notes, changes, TelegramPlaces, func() bool { return cfg.Feed })
	return channel{run: c.Run, alert: c.Alert}, nil
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
