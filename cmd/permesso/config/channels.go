package config

import (
	"iter"
	"slices"

	"github.com/permesso-dev/permesso/approval"
)

// channelKinds lists the channels that a file may name: in [channels.NAME], and in
// a workspace's list.
func channelKinds() []string { return []string{channelTelegram, channelEmail} }

// channels reads [channels.NAME]. Unknown channels are refused: otherwise approvers
// would wait for messages that are never sent.
func (s *section) channels() {
	if n := s.node.children["channels"]; n != nil && (n.kind != table || len(n.order) == 0) {
		s.fail(n.key, "channels", "write [channels.telegram]", "no channel is configured here")
	}
	s.each("channels", func(name string, sub *section) {
		switch name {
		case channelTelegram:
			sub.telegramChannel()
		case channelEmail:
			sub.emailChannel()
		}
	})
	s.warnUnreachableEmail()
	s.warnUnreachableTelegram()
}

// users yields the workspaces that use a channel, by name.
func (s *section) users(channel string) iter.Seq2[string, approval.Workspace] {
	return func(yield func(string, approval.Workspace) bool) {
		for _, name := range sortedKeys(s.cfg.Workspaces) {
			if w := s.cfg.Workspaces[name]; slices.Contains(w.Channels, channel) && !yield(name, w) {
				return
			}
		}
	}
}
