package config

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
