package config

// channelKinds are the channels that a file may name: in [channels.NAME], and
// in a workspace's list.
func channelKinds() []string { return []string{"telegram", "email"} }

// channels reads [channels.NAME]. What nobody can be reached by is refused, rather
// than letting somebody wait for a message that is never sent.
func (s *section) channels() {
	s.known = append(s.known, "channels")
	defer s.warnUnreachableTelegram()
	defer s.warnUnreachableEmail()
	n := s.node.children["channels"]
	if n == nil {
		return
	}
	const hint = "take it out; people answer at the gate's terminal, or with permesso approve"
	if n.kind != table || len(n.order) == 0 {
		s.fail(n.key, "channels", "write [channels.telegram]", "no channel is named here")
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
			s.fail(child.key, "channels."+name, didYouMean(name, channelKinds(), hint), "channel %s is not known", quote(name))
			sub.secretsInside()
		}
	}
}

// secretsInside finds secrets that somebody wrote into the file itself.
func (s *section) secretsInside() {
	for _, key := range s.node.order {
		if secret(key) {
			s.inlineSecret(s.node.children[key], key)
		}
	}
}
