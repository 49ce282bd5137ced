// Package messagestest checks that a section of the messages has the keys that a package reads,
// and no others. It also reads the phrases of people that every channel is tested with.
package messagestest

import (
	"math/rand/v2"
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

// Phrase is a reply to a card. Verdict is approve, note or deny; "" if it is no decision.
type Phrase struct{ Verdict, Text string }

// Phrases reads the corpus in testdata/chat/phrases: the ways to decide, and what decides nothing.
// root is the path of the repository.
func Phrases(t testing.TB, root string) (deciding, other []Phrase) {
	t.Helper()
	for _, name := range []string{"decide.txt", "neither.txt"} {
		b, err := os.ReadFile(filepath.Join(root, "testdata/chat/phrases", name))
		require.NoError(t, err)
		for line := range strings.Lines(string(b)) {
			line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), `\n`, "\n")
			verdict, text, ok := strings.Cut(line, "\t")
			switch {
			case strings.HasPrefix(line, "#"):
			case ok:
				deciding = append(deciding, Phrase{verdict, text})
			default:
				other = append(other, Phrase{"", line})
			}
		}
	}
	require.GreaterOrEqual(t, min(len(deciding), len(other)), 200)
	return deciding, other
}

// Sample is one of twenty of a list, all with PERMESSO_SOAK. It logs the seed.
func Sample[T any](t testing.TB, all []T) (some []T) {
	t.Helper()
	if os.Getenv("PERMESSO_SOAK") != "" {
		return all
	}
	seed := rand.Uint64() //nolint:gosec // which part of the corpus a run takes
	t.Logf("seed %d of %d", seed%20, len(all))
	for i := int(seed % 20); i < len(all); i += 20 {
		some = append(some, all[i])
	}
	return some
}
