package project

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hintExceptions are literals below the command line that may name a command or the
// configuration: the file, a fragment of the literal, and the reason.
var hintExceptions = []struct{ file, fragment, why string }{
	{"chat/catalog.go", "", "sentences that people read in a chat"},
	{"chat/catalog_it.go", "", "sentences that people read in a chat"},
	{"chat/email/messages.go", "", "sentences that people read in an email"},
	{"chat/email/messages_it.go", "", "sentences that people read in an email"},
	{"chat/telegram/setup_catalog.go", "", "sentences that people read in a chat"},
	{"chat/terminal/catalog.go", "", "sentences that people read in the terminal"},
	{"chat/web/words.go", "", "sentences that people read on a page"},
	{"chat/web/words_it.go", "", "sentences that people read on a page"},
	{"chat/email/test_card.go", "permesso email test", "the name of the request that a test card shows"},
	{"security/receipt/receipt.go", "permesso receipt v1", "the first line of a format"},
	{"security/receipt/rotate.go", "permesso key rotation v1", "the first line of a format"},
	{"ipc/service/service.go", "permesso request\x00", "the beginning of what is hashed"},
	{"ipc/client/rest.go", "permesso key create", "the users of the client make their key with this command"},
	{"ipc/mcp/follow.go", "permesso serve", "a result of a tool has no hint beside it"},
	{"security/policy/engine.go", "permesso session clear", "a reason in documents of earlier versions"},
	{"approval/gate/intake.go", "permesso.toml", "a reason in documents of earlier versions"},
}

// TestHints: advice is a value beside an error, not a part of its text; and packages
// below the command line name neither its commands nor its configuration file.
func TestHints(t *testing.T) {
	const root = "../../../.."
	known := commands(t, filepath.Join(root, "cmd"))
	require.Subset(t, known, []string{"serve", "init", "doctor", "audit"}, "looked in the wrong folder")
	require.Equal(t, []string{"a.go:3: names a command or the configuration: run permesso init", "a.go:4: has a hint in a text: x\nhint: y"},
		hintFaults(t, "a.go", "package a\n// permesso init\nvar x = \"run permesso init\"\nvar y = \"x\\nhint: y\"\nvar z = \"permesso waits\"\n", namesOf(known)),
		"the search finds what there is")

	names := namesOf(known)
	var found []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == filepath.Join(root, "cmd") {
				return fs.SkipDir
			}
			return enter(root, name)
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		found = append(found, hintFaults(t, filepath.ToSlash(rel), string(src), names)...)
		return err
	})
	require.NoError(t, err)
	require.Empty(t, found)
}

// hintFaults returns one sentence for each string literal of a file that is refused.
func hintFaults(t *testing.T, file, src string, names *regexp.Regexp) (found []string) {
	t.Helper()
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, src, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(tree, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(lit.Value)
		require.NoError(t, err)
		fault := ""
		switch {
		case strings.Contains(text, "\nhint: "), strings.Contains(text, "(hint: "):
			fault = "has a hint in a text"
		case names.MatchString(text) && !isHintException(file, text):
			fault = "names a command or the configuration"
		default:
			return true
		}
		found = append(found, fmt.Sprintf("%s:%d: %s: %s", file, set.Position(lit.Pos()).Line, fault, text))
		return true
	})
	return found
}

func isHintException(file, text string) bool {
	for _, x := range hintExceptions {
		if x.file == file && strings.Contains(text, x.fragment) {
			return true
		}
	}
	return false
}

// namesOf matches "permesso COMMAND", the configuration file and its tables.
func namesOf(commands []string) *regexp.Regexp {
	return regexp.MustCompile(`\bpermesso (` + strings.Join(commands, "|") + `)\b|permesso\.toml|\[(workspaces|channels|approvers|tools)\b`)
}

// commands are the names in the Use fields below a folder.
func commands(t *testing.T, folder string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") {
			return err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			pair, ok := n.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			key, isName := pair.Key.(*ast.Ident)
			lit, isText := pair.Value.(*ast.BasicLit)
			if isName && isText && key.Name == "Use" {
				use, err := strconv.Unquote(lit.Value)
				if fields := strings.Fields(use); err == nil && len(fields) > 0 {
					names = append(names, regexp.QuoteMeta(fields[0]))
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	slices.Sort(names)
	return slices.Compact(names)
}
