package project

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// codeUses collects the string literals of a file, and what is wrong with the codes of
// reasons that it creates or compares.
type codeUses struct {
	known    map[string][]string
	literals map[string]bool
	findings []string
}

// TestReasonCodes holds every use of a reason's code against the closed list, and finds
// codes of the list that no code creates.
func TestReasonCodes(t *testing.T) {
	u := &codeUses{known: approval.ReasonCodes(), literals: map[string]bool{}}
	require.NoError(t, filepath.WalkDir("../../../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir() && path != "../../../.." && strings.HasPrefix(d.Name(), "."):
			return cmp.Or(err, fs.SkipDir)
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, "approval/reason.go"):
			u.read(t, path, nil)
		}
		return nil
	}))
	require.NotEmpty(t, u.literals)
	earlier := []string{"text", "short_id_pending", "short_id_settled"} // only earlier versions stored them
	for code := range u.known {
		if !slices.Contains(earlier, code) && !u.literals[code] {
			u.findings = append(u.findings, "no code creates "+code)
		}
	}
	require.Empty(t, u.findings)
}

// TestReasonCodesBites gives the checker one fault each.
func TestReasonCodesBites(t *testing.T) {
	for source, want := range map[string]string{
		`var r = approval.Because("tabel_ask")`:                                                                               `unknown code "tabel_ask"`,
		`var r = Because("secret", "were", "title")`:                                                                          `"secret" has no arg "were"`,
		`func f(r R) bool { return r.Code == "expird" }`:                                                                      `unknown code "expird"`,
		`func f(r R) { switch r.Code { case "question", "asks": } }`:                                                          `unknown code "asks"`,
		`var r = approval.Because("rule_unproven", "clause", "c", "gap", "gap_claim", "why", "proof_no_field", "field", "f")`: "",
	} {
		u := &codeUses{known: approval.ReasonCodes(), literals: map[string]bool{}}
		u.read(t, "fault.go", "package p\n"+source)
		if want == "" {
			require.Empty(t, u.findings, source)
			continue
		}
		require.Len(t, u.findings, 1, source)
		require.Contains(t, u.findings[0], want)
	}
}

func (u *codeUses) read(t *testing.T, path string, source any) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		at := func() string { return files.Position(n.Pos()).String() }
		switch x := n.(type) {
		case *ast.BasicLit:
			if text, ok := literal(x); ok {
				u.literals[text] = true
			}
		case *ast.CallExpr:
			u.create(at(), x)
		case *ast.BinaryExpr:
			if isCode(x.X) {
				u.check(at(), x.Y)
			}
		case *ast.SwitchStmt:
			if isCode(x.Tag) {
				for _, c := range x.Body.List {
					for _, e := range c.(*ast.CaseClause).List {
						u.check(at(), e)
					}
				}
			}
		}
		return true
	})
}

// create checks a call of Because: the code, and the names of its args.
func (u *codeUses) create(at string, call *ast.CallExpr) {
	f := call.Fun
	if s, ok := f.(*ast.SelectorExpr); ok {
		f = s.Sel
	}
	if id, ok := f.(*ast.Ident); !ok || id.Name != "Because" || len(call.Args) == 0 {
		return
	}
	code, ok := literal(call.Args[0])
	if !ok {
		return // a variable: where its values are written, they are literals
	}
	allowed, known := u.known[code]
	if !known {
		u.check(at, call.Args[0])
		return
	}
	for i := 1; i < len(call.Args); i += 2 {
		if name, ok := literal(call.Args[i]); ok && !slices.Contains(allowed, name) && !slices.Contains(allowed, name+"?") {
			u.findings = append(u.findings, fmt.Sprintf("%s: %q has no arg %q", at, code, name))
		}
	}
}

func (u *codeUses) check(at string, e ast.Expr) {
	code, ok := literal(e)
	if _, known := u.known[code]; ok && !known && code != "" {
		u.findings = append(u.findings, fmt.Sprintf("%s: unknown code %q", at, code))
	}
}

// isCode reports whether an expression is the code of a reason.
func isCode(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Code" {
		return false
	}
	id, ok := s.X.(*ast.Ident)
	return ok && id.Name == "r"
}

func literal(e ast.Expr) (string, bool) {
	x, ok := e.(*ast.BasicLit)
	if !ok || x.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(x.Value)
	return text, err == nil
}
