package decide_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
)

func TestRefusalNamesTheFirstDecider(t *testing.T) {
	for _, c := range []struct {
		refusal decide.Refusal
		want    string
	}{
		{decide.Refusal{Reason: decide.ErrUnknown}, "no such request"},
		{decide.Refusal{Reason: decide.ErrNotApplicable, Hint: "a question has no code 6"}, "not possible here: a question has no code 6"},
		{
			decide.Refusal{Reason: decide.ErrDecided, By: "ann", At: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).In(time.FixedZone("", 3600)), Verdict: approval.Denied, Hint: "x"},
			"already decided: denied by ann at 2026-11-21T12:00:00Z",
		},
	} {
		require.EqualError(t, &c.refusal, c.want)
		require.ErrorIs(t, fmt.Errorf("decide: %w", &c.refusal), c.refusal.Reason)
	}
}
