package project

import (
	"fmt"
	"go/scanner"
	"go/token"
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

// bannedEverywhere are refused in identifiers, comments, strings and prose, as
// whole words. They hide which actor is meant.
var bannedEverywhere = []string{"somebody", "nobody", "whoever", "whosoever"}

// bannedNames are refused as a word of an identifier or of a file's name:
// villageStart has the words village and start.
var bannedNames = []string{
	"house", "world", "village", "furnish", "weather", "hearing", "warden", "bury", "thrift", "census",
	"thieves", "diary", "desk", "knock", "guest", "wish", "besider", "doubter", "stager", "ager",
	"troubled", "believer",
}

// bannedPhrases are refused in strings and in prose.
var bannedPhrases = []string{"say how", "say what to do", "look whether", "stand at", "the house", "the door", "this type of action"}

// exceptions are lines that may hold a banned word: a fragment of the line, and
// the reason.
var exceptions = []struct{ file, fragment, why string }{
	{"cmd/permesso/internal/project/words_test.go", "", "this list"},
	{"approval/documents_test.go", "nobody has signed it", "a sentence in documents of earlier versions"},
	{"chat/email/mailserver/servers_linux.go", `nobody"`, "the Unix user of the test servers"},
	{"chat/email/mailserver/servers_linux.go", "--reuid=nobody", "the Unix user of the test servers"},
}

// skippedFolders hold no prose or code of ours.
var skippedFolders = []string{".git", "bin", "dist", "node_modules", ".cache", "corpora"}

// textFiles are the endings of the files that are checked besides Go.
var textFiles = []string{
	".md", ".toml", ".sh", ".py", ".mjs", ".js", ".ts", ".mts", ".html", ".css", ".txtar", ".yml", ".yaml", ".mod",
	"Makefile", "Containerfile", "deps", "run", "fuzz", "oldest", "types", "build", "check", "control", "postinst",
	"postrm", "prerm", "root", "version",
}

// finding is one banned word in one place.
type finding struct {
	file string
	line int
	word string
	text string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %q in: %s", f.file, f.line, f.word, strings.TrimSpace(f.text))
}

// words matches any of list as whole words, in any case.
func words(list []string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(` + strings.Join(list, "|") + `)\b`)
}

var (
	everywhere = words(bannedEverywhere)
	phrases    = words(bannedPhrases)
)

// splitName gives the words of an identifier or a file name in lower case.
func splitName(name string) []string {
	var list []string
	var word []rune
	flush := func() {
		if len(word) > 0 {
			list = append(list, strings.ToLower(string(word)))
			word = nil
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			flush()
			continue
		case unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			flush()
		}
		word = append(word, r)
	}
	flush()
	return list
}

// bannedName gives the banned word of an identifier, "" where there is none.
func bannedName(name string) string {
	for _, w := range splitName(name) {
		if slices.Contains(bannedNames, w) || slices.Contains(bannedEverywhere, w) {
			return w
		}
	}
	return ""
}

// checkGo finds the banned words of a Go file.
func checkGo(file string, src []byte) []finding {
	var found []finding
	lines := strings.Split(string(src), "\n")
	fset := token.NewFileSet()
	f := fset.AddFile(file, -1, len(src))
	var s scanner.Scanner
	s.Init(f, src, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return found
		}
		line := fset.Position(pos).Line
		add := func(w string, offset int) {
			n := line + strings.Count(lit[:offset], "\n")
			found = append(found, finding{file, n, w, lines[n-1]})
		}
		switch tok {
		case token.IDENT:
			if w := bannedName(lit); w != "" {
				add(w, 0)
			}
		case token.COMMENT, token.STRING:
			for _, m := range everywhere.FindAllStringIndex(lit, -1) {
				add(lit[m[0]:m[1]], m[0])
			}
			if tok == token.STRING {
				for _, m := range phrases.FindAllStringIndex(lit, -1) {
					add(lit[m[0]:m[1]], m[0])
				}
			}
		}
	}
}

// checkText finds the banned words of any other text file.
func checkText(file string, src []byte) []finding {
	var found []finding
	for i, line := range strings.Split(string(src), "\n") {
		for _, x := range []*regexp.Regexp{everywhere, phrases} {
			for _, w := range x.FindAllString(line, -1) {
				found = append(found, finding{file, i + 1, w, line})
			}
		}
	}
	return found
}

// check walks the tree below root. Its findings name files relative to root.
func check(root string) ([]finding, error) {
	var found []finding
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains(skippedFolders, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		isGo := filepath.Ext(path) == ".go"
		if !isGo && !slices.Contains(textFiles, filepath.Ext(path)) && !slices.Contains(textFiles, d.Name()) {
			return nil
		}
		if w := bannedName(strings.TrimSuffix(d.Name(), filepath.Ext(d.Name()))); w != "" {
			found = append(found, finding{rel, 1, w, d.Name()})
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if isGo {
			found = append(found, checkGo(rel, src)...)
		} else {
			found = append(found, checkText(rel, src)...)
		}
		return nil
	})
	return found, err
}

// TestWords refuses the words that the project bans. PERMESSO_WORDS_IN checks one folder.
func TestWords(t *testing.T) {
	root := "../../../.."
	if only := os.Getenv("PERMESSO_WORDS_IN"); only != "" {
		root = filepath.Join(root, only)
	}
	found, err := check(root)
	require.NoError(t, err)
	for _, f := range found {
		excused := slices.ContainsFunc(exceptions, func(e struct{ file, fragment, why string }) bool {
			return strings.HasSuffix(e.file, f.file) && strings.Contains(f.text, e.fragment)
		})
		if !excused {
			t.Error(f)
		}
	}
}

// TestWordsBites gives the checker one violation of each kind.
func TestWordsBites(t *testing.T) {
	tests := []struct{ why, src, want string }{
		{"an identifier's word", "package p\nvar theHouse int\n", "house"},
		{"an identifier's first word", "package p\nfunc VillageStart() {}\n", "village"},
		{"a comment", "package p\n// for Somebody else\n", "Somebody"},
		{"a string", "package p\nvar s = \"nobody here\"\n", "nobody"},
		{"a second line of a raw string", "package p\nvar s = `\nthe door`\n", "the door"},
	}
	for _, tt := range tests {
		found := checkGo("x.go", []byte(tt.src))
		require.Len(t, found, 1, tt.why)
		require.Equal(t, tt.want, found[0].word, tt.why)
	}
	require.Empty(t, checkGo("x.go", []byte("package p\nvar pager, wished, desktop int // house\n")), "parts of words, and common nouns in prose")
	require.Len(t, checkText("x.md", []byte("Whoever knocks at the door\n")), 2)
}
