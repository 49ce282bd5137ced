package email

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/cardtest"
)

// Nothing of what would run is hidden in an email that a reply can approve, in neither part.
func TestHostilePairsInEmail(t *testing.T) {
	cardtest.Run(t, cardtest.Style(t, false), func(style chat.Style, p *approval.Pending) (forms []string, approvable bool) {
		m := &cardMail{pending: p, style: style, texts: textsFor("en")}
		letter, err := m.render()
		require.NoError(t, err)
		return []string{strings.Join(letter.Lines, "\n"), cardtest.VisibleHTML(letter.Page, "")}, letter.Complete
	})
}
