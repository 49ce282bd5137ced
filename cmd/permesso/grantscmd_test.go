package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/grant"
)

// A grant for the same request, or the same program, says where one sees it.
func TestGrantsNameTheirRequest(t *testing.T) {
	for form, want := range map[string]bool{grant.Again: true, grant.Program: true, grant.Tool: false} {
		l := grantLine{}
		l.ID, l.Form = "aaaaaaaaaaaaaaaa", form
		require.Equal(t, want, strings.Contains(grantText(l), "permesso show aaaaaaaa"), form)
	}
}
