package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// An id of several requests is refused, and all of them are named.
func TestFindNamesAllRequests(t *testing.T) {
	const id = "a7f3b2c1d4e5f6a7"
	list := func(context.Context, string, string) ([]approval.Key, error) {
		return []approval.Key{{Workspace: "personal", ID: id}, {Workspace: "work", ID: id}}, nil
	}
	_, err := find(t.Context(), list, "a7f3b2c1")
	require.ErrorContains(t, err, `"a7f3b2c1" matches 2 requests: personal/`+id+`, work/`+id)
	many := func(context.Context, string, string) ([]approval.Key, error) {
		return make([]approval.Key, 9), nil
	}
	_, err = find(t.Context(), many, "a7f3b2c1")
	require.ErrorContains(t, err, "matches 9 requests: /, /, /, /, /, …")
}
