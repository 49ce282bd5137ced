package project

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// optionalInterfaces are type assertions to an interface of ours that are allowed: the
// file, the interface, the reason.
var optionalInterfaces = []struct{ file, name, why string }{
	{"approval/hints/hints.go", "interface", "errors of any package may have a hint"},
	{"chat/terminal/input.go", "interface", "standard input may be a pipe, which has no deadline"},
	{"ipc/httpapi/guard.go", "interface", "net/http hands out the address as any"},
}

// TestNoOptionalInterfaces: no interface is found by type assertion. A wrapper would lose
// its methods silently.
func TestNoOptionalInterfaces(t *testing.T) {
	root := filepath.Join("..", "..", "..", "..")
	dirs := map[string]map[string]*ast.File{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		name, err := filepath.Rel(root, path)
		require.NoError(t, err)
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if dirs[filepath.Dir(name)] == nil {
			dirs[filepath.Dir(name)] = map[string]*ast.File{}
		}
		dirs[filepath.Dir(name)][filepath.ToSlash(name)] = f
		return err
	}))
	var found []string
	for _, files := range dirs {
		found = append(found, assertions(files)...)
	}
	require.Empty(t, found)

	f, err := parser.ParseFile(token.NewFileSet(), "", "package p\ntype syncer interface{ Sync() }\nfunc f(v any) { s, ok := v.(syncer) }", 0)
	require.NoError(t, err)
	require.Equal(t, []string{"p.go: type assertion to syncer"}, assertions(map[string]*ast.File{"p.go": f}), "the test bites")
}

// assertions lists the type assertions of a package to its own interfaces.
func assertions(files map[string]*ast.File) (found []string) {
	own := map[string]bool{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				_, is := spec.Type.(*ast.InterfaceType)
				own[spec.Name.Name] = own[spec.Name.Name] || is
			}
			return true
		})
	}
	for file, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			a, ok := n.(*ast.TypeAssertExpr)
			if !ok {
				return true
			}
			name := ""
			switch x := a.Type.(type) {
			case *ast.Ident:
				if own[x.Name] {
					name = x.Name
				}
			case *ast.InterfaceType:
				name = "interface"
			}
			allowed := slices.ContainsFunc(optionalInterfaces, func(e struct{ file, name, why string }) bool {
				return e.file == file && e.name == name
			})
			if name != "" && !allowed {
				found = append(found, fmt.Sprintf("%s: type assertion to %s", file, name))
			}
			return true
		})
	}
	return found
}
