package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

// commandPattern finds a command in a shell block or in code: "permesso key create".
// Its last group is set if that is the first line of a signed text instead.
var commandPattern = regexp.MustCompile("(?m)(?:^|[`|] ?|\\$\\()permesso ([a-z][a-z-]*)( [a-z-]+\\b)?( v[0-9]\\b)?")

// documents returns the text of each README.md and FORMAT.md of ours, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.Name() != "README.md" && d.Name() != "FORMAT.md":
			return nil
		}
		b, err := os.ReadFile(path)
		found[strings.TrimPrefix(path, root+"/")] = string(b)
		return err
	}))
	require.Contains(t, found, "README.md")
	require.Contains(t, found, "security/audit/FORMAT.md")
	return found
}

// blocksOf returns the text of the fenced blocks of text in that language.
func blocksOf(text, language string) (blocks []string) {
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

func TestConfigurationsInDocumentsAreValid(t *testing.T) {
	n := 0
	for file, text := range documents(t) {
		for _, b := range blocksOf(text, "toml") {
			c, err := config.Parse(file, []byte(b))
			require.NoError(t, err)
			require.Empty(t, c.Warnings, file)
			n++
		}
	}
	require.GreaterOrEqual(t, n, 5)
}

// The rulings in the README of policy are those that policy test gets.
func TestPolicyReadme(t *testing.T) {
	text := documents(t)["security/policy/README.md"]
	dir := t.TempDir()
	for name, language := range map[string]string{"permesso.toml": "toml", "cases.json": "json"} {
		blocks := blocksOf(text, language)
		require.Len(t, blocks, 1, language)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(blocks[0]), 0o600))
	}
	require.Contains(t, text, "\npermesso policy test cases.json --config permesso.toml\n")
	var out bytes.Buffer
	env := func(name string) string { return map[string]string{"HOME": dir}[name] }
	code := Main{In: strings.NewReader(""), Out: &out, Err: &out, Env: env}.Run(t.Context(), []string{
		"policy", "test", filepath.Join(dir, "cases.json"), "--config", filepath.Join(dir, "permesso.toml"),
	})
	require.Zero(t, code, out.String())
}
