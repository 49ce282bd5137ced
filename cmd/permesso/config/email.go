package config

// mail reads [channels.email].
func (s *section) mail() { s.absent("email") }
