// Package messagestest checks that a section of the messages has the keys that a
// package reads, and no others.
package messagestest

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/require"
)

// RequireKeys compares the English section with the fields of T and the keys that
// templates read. The folder of the messages is relative to the package under test.
// Package chat compares the other languages with English.
func RequireKeys[T any](t *testing.T, folder, section string, inTemplates ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "en.toml"))
	require.NoError(t, err)
	var file map[string]any
	require.NoError(t, toml.Unmarshal(text, &file))
	require.Empty(t, differences(section, file[section], reflect.TypeFor[T](), inTemplates...))
}

func differences(at string, read any, want reflect.Type, known ...string) (found []string) {
	table, ok := read.(map[string]any)
	if !ok {
		return []string{at + " is not a table"}
	}
	for _, key := range known {
		if _, ok := table[key]; !ok {
			found = append(found, at+"."+key+" is missing")
		}
	}
	for _, f := range reflect.VisibleFields(want) {
		key := strings.ToLower(f.Name[:1]) + f.Name[1:]
		known = append(known, key)
		value, ok := table[key]
		switch {
		case !ok:
			found = append(found, at+"."+key+" is missing")
		case f.Type.Kind() == reflect.Struct:
			found = append(found, differences(at+"."+key, value, f.Type)...)
		}
	}
	for key := range table {
		if !slices.Contains(known, key) {
			found = append(found, at+"."+key+" is read by no field")
		}
	}
	slices.Sort(found)
	return found
}
