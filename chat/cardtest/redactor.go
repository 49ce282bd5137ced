package cardtest

import (
	"sync"
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
	last *lastRequest
}

// lastRequest keeps what was found in a request, because channels ask for it several times.
type lastRequest struct {
	mu    sync.Mutex
	p     *approval.Pending
	found *secrets.Redactor
}

// Style redacts with the real scanner. local says that the card does not leave the host.
func Style(t testing.TB, local bool) chat.Style {
	s, err := secrets.New()
	require.NoError(t, err)
	return chat.Style{Redact: redactor{s, s.Independent(), &lastRequest{}}, Local: local}
}

func (x redactor) For(p *approval.Pending) chat.Redactor {
	x.last.mu.Lock()
	defer x.last.mu.Unlock()
	if x.last.p != p {
		x.last.p, x.last.found = p, x.scanner.Redactor(p)
	}
	return redactor{x.scanner, x.last.found, x.last}
}

func (x redactor) Secrets(text string) []chat.Span { return spans(x.Spans(text)) }

func (x redactor) Tokens(text string) []chat.Span { return spans(x.Redactor.Tokens(text)) }

func spans(found []secrets.Span) (all []chat.Span) {
	for _, s := range found {
		all = append(all, chat.Span(s))
	}
	return all
}
