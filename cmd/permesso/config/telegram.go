package config

// telegram reads [channels.telegram].
func (s *section) telegram() { s.absent("telegram") }
