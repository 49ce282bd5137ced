package project

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

const root = "../../../.."

// maxReadme is the number of lines that a reader of the top README has time for.
const maxReadme = 200

var (
	linkPattern    = regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|srcset|href)="([^"]+)"`)
	headingPattern = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fencePattern   = regexp.MustCompile("(?ms)^```.*?^```$")
	sourcePattern  = regexp.MustCompile("`((?:[a-z]+/)+[a-z_]+\\.(?:go|md))`")
)

// anchors are the fragments of a document's headings, as GitHub derives them.
func anchors(text string) (found []string) {
	for _, m := range headingPattern.FindAllStringSubmatch(fencePattern.ReplaceAllString(text, ""), -1) {
		found = append(found, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return found
}

// brokenLinks lists the relative links and the source files named in a document
// that lead nowhere. path is relative to dir, the top folder.
func brokenLinks(t *testing.T, dir, path string) (broken []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, path))
	require.NoError(t, err)
	text := fencePattern.ReplaceAllString(string(b), "")
	for _, m := range linkPattern.FindAllStringSubmatch(text, -1) {
		link := m[1] + m[2]
		if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
			continue
		}
		file, anchor, _ := strings.Cut(link, "#")
		target := filepath.Join(dir, path)
		if file != "" {
			target = filepath.Join(filepath.Dir(target), file)
		}
		info, err := os.Stat(target)
		if err != nil {
			broken = append(broken, path+": "+link)
			continue
		}
		if anchor == "" {
			continue
		}
		var headings []string
		if !info.IsDir() {
			to, err := os.ReadFile(target)
			require.NoError(t, err)
			headings = anchors(string(to))
		}
		if !slices.Contains(headings, anchor) {
			broken = append(broken, path+": "+link)
		}
	}
	for _, m := range sourcePattern.FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join(dir, m[1])); err != nil {
			broken = append(broken, path+": "+m[1])
		}
	}
	return broken
}

func TestTopReadmeIsShort(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(b), "\n"), maxReadme, "move details into the README of a package")
}

func TestLinksInDocuments(t *testing.T) {
	n := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains(skippedFolders, d.Name()) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		require.NoError(t, err)
		require.Empty(t, brokenLinks(t, root, rel))
		n++
		return nil
	}))
	require.GreaterOrEqual(t, n, 10)
}

// TestLinksBite gives the checker one broken link of each kind.
func TestLinksBite(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.md"), []byte(text), 0o600))
	}
	for _, good := range []string{
		"# As a `service`, now\n[x](#as-a-service-now) [y](a.md) [z](https://example.org/none)\n",
		"```\n[x](none.md)\n```\n",
	} {
		write(good)
		require.Empty(t, brokenLinks(t, dir, "a.md"), good)
	}
	for _, bad := range []string{
		"[x](none.md)\n", "[x](#none)\n", "[x](a.md#none)\n", `<img src="none.png">`, "`approval/none.go`\n",
		"```\n# code\n```\n[x](#code)\n",
	} {
		write(bad)
		require.Len(t, brokenLinks(t, dir, "a.md"), 1, bad)
	}
}
