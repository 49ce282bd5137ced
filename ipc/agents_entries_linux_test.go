package ipc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What the operator granted stays as it was, and nothing that a mask hides is revealed.
func TestAdmitAgentsKeepsOtherEntries(t *testing.T) {
	const agent, reader, group = 40003, 40007, 50
	owner, other := aclEntry{aclUserObj, 7, aclNoID}, aclEntry{aclOther, 0, aclNoID}
	list := func(entries ...aclEntry) []aclEntry {
		return append(append([]aclEntry{owner}, entries...), other)
	}
	for _, row := range []struct {
		why       string
		was, want []aclEntry
		agents    []uint32
	}{
		{"the group stays", list(aclEntry{aclGroupObj, 5, aclNoID}), list(aclEntry{aclUser, 1, agent}, aclEntry{aclGroupObj, 5, aclNoID}, aclEntry{aclMask, 5, aclNoID}), []uint32{agent}},
		{
			"users and groups of the operator stay", list(aclEntry{aclUser, 5, reader}, aclEntry{aclGroupObj, 0, aclNoID}, aclEntry{aclGroup, 4, group}, aclEntry{aclMask, 5, aclNoID}),
			list(aclEntry{aclUser, 1, agent}, aclEntry{aclUser, 5, reader}, aclEntry{aclGroupObj, 0, aclNoID}, aclEntry{aclGroup, 4, group}, aclEntry{aclMask, 5, aclNoID}),
			[]uint32{agent},
		},
		{
			"the mask hid the group", list(aclEntry{aclUser, 5, reader}, aclEntry{aclGroupObj, 5, aclNoID}, aclEntry{aclMask, 0, aclNoID}),
			list(aclEntry{aclUser, 1, agent}, aclEntry{aclUser, 0, reader}, aclEntry{aclGroupObj, 0, aclNoID}, aclEntry{aclMask, 1, aclNoID}),
			[]uint32{agent},
		},
		{
			"an agent that may read", list(aclEntry{aclUser, 4, reader}, aclEntry{aclGroupObj, 0, aclNoID}, aclEntry{aclMask, 4, aclNoID}),
			list(aclEntry{aclUser, 5, reader}, aclEntry{aclGroupObj, 0, aclNoID}, aclEntry{aclMask, 5, aclNoID}),
			[]uint32{reader},
		},
		{"no agent any more", list(aclEntry{aclUser, 1, agent}, aclEntry{aclGroupObj, 0, aclNoID}, aclEntry{aclMask, 1, aclNoID}), list(aclEntry{aclGroupObj, 0, aclNoID}), nil},
		{
			"no agent at all", list(aclEntry{aclUser, 5, reader}, aclEntry{aclGroupObj, 5, aclNoID}, aclEntry{aclMask, 0, aclNoID}),
			list(aclEntry{aclUser, 5, reader}, aclEntry{aclGroupObj, 5, aclNoID}, aclEntry{aclMask, 0, aclNoID}), nil,
		},
	} {
		require.Equal(t, row.want, withAgents(row.was, row.agents), row.why)
		require.Equal(t, row.want, withAgents(row.want, row.agents), "again: %s", row.why)
	}
}
