package chat

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// A pause is the first fact on every kind of card.
func TestCardOfAPausedWorkspace(t *testing.T) {
	p := example()
	yesterday := p.Timestamp.Add(-24 * time.Hour)
	for _, tt := range []struct{ language, want string }{
		{"en", "⏸ paused since " + yesterday.Format("2006-01-02 15:04") + " UTC by ann: nothing runs until resume"},
		{"it", "⏸ in pausa (ann, " + yesterday.Format("2006-01-02 15:04") + " UTC): non si esegue nulla fino alla ripresa"},
	} {
		s := Style{Language: tt.language, Paused: func(ws string) *Pause {
			if ws != p.SourceGroup {
				return nil
			}
			return &Pause{By: "ann", Since: yesterday}
		}}
		require.Equal(t, tt.want, s.Card(p).Warnings[0])
		q := *p
		q.Type, q.Agent.Title = approval.TypeQuestion, "Which?"
		require.Equal(t, tt.want, s.Card(&q).Warnings[0])
		q.SourceGroup = "another"
		require.NotContains(t, s.Card(&q).String(), "⏸")
	}
	s := Style{Paused: func(string) *Pause {
		return &Pause{By: "a\nb", Since: p.Timestamp, Reason: strings.Repeat("long\n", 100)}
	}}
	line := s.PauseLine("any", p.Timestamp)
	require.NotContains(t, line, "\n")
	require.Less(t, len(line), 600)
}
