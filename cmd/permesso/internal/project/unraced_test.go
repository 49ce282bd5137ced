package project

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUnracedTests: make test skips the tests of UNRACED in all packages under the race
// detector, and runs them without it in the packages of UNRACED_IN. So each name stands
// for one test, in a listed package; else a test would not run, or not under the race
// detector.
func TestUnracedTests(t *testing.T) {
	const root = "../../../.."
	b, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	makefile := strings.ReplaceAll(string(b), "\\\n", "")
	list := regexp.MustCompile(`(?m)^UNRACED +:= \^\((\S+)\)\$\$$`).FindStringSubmatch(makefile)
	require.NotNil(t, list)
	in := regexp.MustCompile(`(?m)^UNRACED_IN := (.*)$`).FindStringSubmatch(makefile)
	require.NotNil(t, in)
	names := strings.Split(list[1], "|")
	require.ElementsMatch(t, slices.Compact(slices.Sorted(slices.Values(names))), names)

	packages := map[string][]string{} // by test
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	files, err := walk(root, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	require.NoError(t, err)
	for name, src := range files {
		for _, m := range declared.FindAllStringSubmatch(src, -1) {
			packages[m[1]] = append(packages[m[1]], "./"+path.Dir(name))
		}
	}
	var used []string
	for _, name := range names {
		require.Len(t, packages[name], 1, "%s must be the name of one test: %v", name, packages[name])
		used = append(used, packages[name]...)
	}
	slices.Sort(used)
	require.ElementsMatch(t, slices.Compact(used), strings.Fields(in[1]))
}

// walk reads the selected files below root, by their path from there.
func walk(root string, selected func(name string) bool) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(root, name)
		}
		if !selected(name) {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		files[filepath.ToSlash(rel)] = string(src)
		return err
	})
	return files, err
}
