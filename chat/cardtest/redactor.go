package cardtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/security/secrets"
)

// redactor is the real scanner, as cmd/permesso gives it to the channels.
type redactor struct {
	scanner *secrets.Scanner
	*secrets.Redactor
}

// Style redacts with the real scanner. local says that the card does not leave the host.
func Style(t testing.TB, local bool) chat.Style {
	s, err := secrets.New()
	require.NoError(t, err)
	return chat.Style{Redact: redactor{s, s.Independent()}, Local: local}
}

func (x redactor) For(p *approval.Pending) chat.Redactor {
	return redactor{x.scanner, x.scanner.Redactor(p)}
}

func (x redactor) Secrets(text string) []chat.Span { return spans(x.Spans(text)) }

func (x redactor) Tokens(text string) []chat.Span { return spans(x.Redactor.Tokens(text)) }

func spans(found []secrets.Span) (all []chat.Span) {
	for _, s := range found {
		all = append(all, chat.Span(s))
	}
	return all
}
