package approval_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// Digits name a request by its short id. The beginning of its id may be the short id of
// another request, so it counts only where the short id is that beginning.
func TestIsNamed(t *testing.T) {
	usual := approval.Pending{RequestID: "aaaaaaaa00000001", ShortID: "aaaaaaaa"}
	other := approval.Pending{RequestID: "aaaaaaaa00000002", ShortID: "00000002"}
	longer := approval.Pending{RequestID: "aaaaaaaa1100000002", ShortID: "100000002"}
	uuid := approval.Pending{RequestID: "0190f3c2-1b7e-7c4a-9d2e-5f60718293a4", ShortID: "0190f3c2"}
	later := approval.Pending{RequestID: "0190f3c2-1b7e-7c4a-9d2e-5f60718293a5", ShortID: "718293a5"}
	for _, c := range []struct {
		typed string
		p     approval.Pending
		want  bool
	}{
		{"aaaa", usual, true},
		{"aaaaaaaa", usual, true},
		{"aaaaaaaa0000", usual, true},
		{"aaaaaaaa00000002", usual, false},
		{"00000001", usual, false},
		{"0000", other, true},
		{"00000002", other, true},
		{"aaaaaaaa", other, false},
		{"aaaaaaaa0000", other, false},
		{"aaaaaaaa00000002", other, true},
		{"100000002", longer, true},
		{"00000002", longer, false},
		{"0190f3c2", uuid, true},
		{"0190f3c2-", uuid, true},
		{"0190f3c2-1b7e-7", uuid, true},
		{"0190f3c21b7e7", uuid, true},
		{uuid.RequestID, uuid, true},
		{"0190f3c2-1b7e7", uuid, false},
		{"0190f3c2-1b7f", uuid, false},
		{"0190f3c2", later, false},
		{"0190f3c2-1b7e", later, false},
		{"5f60718293a5", later, false},
		{"718293a5", later, true},
		{later.RequestID, later, true},
		{"0190f3c21b7e7c4a9d2e5f60718293a5", later, true},
	} {
		require.Equal(t, c.want, c.p.IsNamed(c.typed), "%s for %s", c.typed, c.p.RequestID)
	}
}
