package daemon

import (
	"errors"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/ntfy"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

func ntfyKind() kind {
	return kind{ntfy.Via, func(cfg *config.Config) any { return settingsOf(cfg.Ntfy) }, openNtfy}
}

// openNtfy creates the channel. It reads the secrets at every start of the channel.
func openNtfy(s *server, changes <-chan approval.Key) (channel, error) {
	cfg := s.Current().Ntfy
	if cfg == nil {
		return channel{}, errors.New("[channels.ntfy] is no longer configured")
	}
	topic, err := home.SecretWord(cfg.TopicFile)
	token := ""
	if err == nil && cfg.TokenFile != "" {
		token, err = home.SecretWord(cfg.TokenFile)
	}
	if err != nil {
		return channel{}, err
	}
	r := s.channelEnv(ntfy.Via)
	state, err := r.sentStore.State(storeState)
	if err != nil {
		return channel{}, err
	}
	a := &ntfy.Adapter{Server: cfg.Server, Topic: topic, Token: token}
	if cfg.UIURL != "" {
		a.Page = func(k approval.Key) string { return cfg.UIURL + "/r/" + k.Workspace + "/" + k.ID }
	}
	place := []deliver.Place{{Address: deliver.Address{Chat: ntfy.Place}}}
	c := r.deliver(a, state, changes, func(*config.Config, string) []deliver.Place { return place }, nil)
	return channel{run: c.Run, limited: c.Limited}, nil
}
