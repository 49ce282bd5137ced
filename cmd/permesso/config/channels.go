package config

// channelKinds lists the channels that a file may name: in [channels.NAME], and in
// a workspace's list.
func channelKinds() []string { return []string{"telegram", "email"} }

// channels reads [channels.NAME]. It refuses unknown channels: otherwise approvers
// would wait for messages that are never sent.
func (s *section) channels() {
	s.known = append(s.known, "channels")
	defer s.warnUnreachableTelegram()
	defer s.warnUnreachableEmail()
	n := s.node.children["channels"]
	if n == nil {
		return
	}
	const hint = "remove it; approvers decide at the daemon's terminal, or with permesso approve"
	if n.kind != table || len(n.order) == 0 {
		s.fail(n.key, "channels", "write [channels.telegram]", "no channel is configured here")
		return
	}
	for _, name := range n.order {
		child := n.children[name]
		sub := s.section(child, "channels."+name)
		switch name {
		case "telegram":
			sub.telegramChannel()
		case "email":
			sub.emailChannel()
		default:
			s.fail(child.key, "channels."+name, didYouMean(name, channelKinds(), hint), "unknown channel %s", quote(name))
			sub.secretsInside()
		}
	}
}

// secretsInside reports secrets written into the file.
func (s *section) secretsInside() {
	for _, key := range s.node.order {
		if secret(key) {
			s.inlineSecret(s.node.children[key], key)
		}
	}
}
