package chat

import (
	"encoding/json"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// Masked lists the kinds of the secrets that the card of p masks, one for each mask. It is
// empty if Reveal would show nothing more, or p is nil.
func (s Style) Masked(p *approval.Pending) (kinds []string) {
	if p == nil {
		return nil
	}
	s.Reveal, s.Local = false, true
	r := s.renderer(p)
	for _, text := range maskable(flat(p)) {
		for piece, secret := range pieces(text, r.secrets(text)) {
			if secret != nil && piece != "" {
				kinds = append(kinds, secret.Kind)
			}
		}
	}
	return kinds
}

// maskable lists the texts of p in which a card masks secrets.
func maskable(p *approval.Pending) []string {
	texts := append([]string{p.Agent.Title, p.Agent.Preview, p.Agent.Rationale}, p.Options...)
	for _, data := range []string{string(p.RequestData), string(p.Metadata)} {
		for start, end := range jsonStrings(data) {
			var s string
			isName := strings.HasPrefix(strings.TrimLeft(data[end:], " \t\r\n"), ":")
			if !isName && json.Unmarshal([]byte(data[start:end]), &s) == nil {
				texts = append(texts, s)
			}
		}
	}
	return texts
}
