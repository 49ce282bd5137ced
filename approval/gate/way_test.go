package gate_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

// hop is one line of the way in doc.go.
type hop struct {
	function string // "Gate.end"
	from     []int  // the hops that call it; nil: it is called from outside
}

// readWay reads the numbered list in doc.go.
func readWay(t *testing.T) (way []hop) {
	b, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^// +(\d+)\. (\w+\.\w+)(?: \(from ([^)]+)\))?: `).FindAllStringSubmatch(string(b), -1) {
		h := hop{function: m[2]}
		require.Equal(t, strconv.Itoa(len(way)+1), m[1])
		switch {
		case len(way) == 0 || m[3] == "outside":
		case m[3] == "":
			h.from = []int{len(way)}
		default:
			for _, n := range strings.Split(m[3], ", ") {
				i, err := strconv.Atoi(n)
				require.NoError(t, err)
				h.from = append(h.from, i)
			}
		}
		way = append(way, h)
	}
	return way
}

// callGraph says for each method of the package which methods of its own receiver it
// calls.
func callGraph(t *testing.T) map[string][]string {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	calls := map[string][]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range f.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || d.Recv == nil || len(d.Recv.List[0].Names) == 0 {
				continue
			}
			star, ok := d.Recv.List[0].Type.(*ast.StarExpr)
			if !ok {
				continue
			}
			named, ok := star.X.(*ast.Ident)
			if !ok {
				continue // a generic type is no hop
			}
			receiver, typ := d.Recv.List[0].Names[0].Name, named.Name+"."
			calls[typ+d.Name.Name] = []string{}
			ast.Inspect(d.Body, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if s, ok := call.Fun.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == receiver {
						calls[typ+d.Name.Name] = append(calls[typ+d.Name.Name], typ+s.Sel.Name)
					}
				}
				return true
			})
		}
	}
	return calls
}

// TestWay checks the way in doc.go against the code: every function exists, and its
// caller calls it, directly or through one helper.
func TestWay(t *testing.T) {
	way, calls := readWay(t), callGraph(t)
	require.Greater(t, len(way), 6)
	require.LessOrEqual(t, len(way), 12)
	for _, h := range way {
		require.Contains(t, calls, h.function, "no such function")
		for _, n := range h.from {
			direct := calls[way[n-1].function]
			through := slices.ContainsFunc(direct, func(helper string) bool { return slices.Contains(calls[helper], h.function) })
			require.True(t, through || slices.Contains(direct, h.function), "%s does not call %s", way[n-1].function, h.function)
		}
	}
}

// stackStore records the functions of the gate that are on the stack when a document
// is written.
type stackStore struct {
	store.Store
	record func()
}

func (s stackStore) Commit(ctx context.Context, ops ...store.Op) error {
	s.record()
	return s.Store.Commit(ctx, ops...)
}

// TestRequestsTakeTheWay runs an allowed and an approved request. The stacks at their
// writes and at the handler show every function of the way, in its order.
func TestRequestsTakeTheWay(t *testing.T) {
	way := readWay(t)
	taken := map[string]bool{}
	for tool, other := range map[string][]string{
		"auto": {"Gate.ask", "Decider.Decide", "Gate.claimDecided"},
		"run":  {"Gate.allow"},
	} {
		t.Run(tool, func(t *testing.T) {
			var mu sync.Mutex
			var seen []string // in the order of their first call
			record := func() {
				mu.Lock()
				defer mu.Unlock()
				for _, f := range slices.Backward(stack()) {
					if !slices.Contains(seen, f) {
						seen = append(seen, f)
					}
				}
			}
			h := newRig(t, options{store: func(s store.Store) store.Store { return stackStore{s, record} }})
			h.executor.do = func(approval.Job) approval.Effect { record(); return approval.Effect{} }
			h.run(0)
			k := key(1)
			h.writeRequest(k, request(k, tool, ""))
			h.gate.Wake(k)
			if tool == "run" {
				h.waitFor(waitLimit, "pending", func() bool { return h.pending(k) != nil })
				d := h.decider()
				d.Store, d.Decided = stackStore{h.store, record}, h.gate.Wake
				_, err := d.Decide(context.Background(), decision(k, approval.Approved))
				require.NoError(t, err)
			}
			h.waitResponse(k, waitLimit)
			h.waitFor(waitLimit, "idle", h.gate.Idle)
			var want, got []string
			for _, hop := range way {
				if !slices.Contains(other, hop.function) {
					want, taken[hop.function] = append(want, hop.function), true
				}
			}
			for _, f := range seen {
				if slices.ContainsFunc(way, func(h hop) bool { return h.function == f }) {
					got = append(got, f)
				}
			}
			require.Equal(t, want, got)
		})
	}
	require.Len(t, taken, len(way))
}

// stack lists the methods of the gate's package that called the caller, the innermost
// first: "Gate.end".
func stack() (functions []string) {
	pcs := make([]uintptr, 50)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	method := regexp.MustCompile(`approval/gate\.\(\*(\w+)\)\.(\w+)`)
	for {
		f, more := frames.Next()
		if m := method.FindStringSubmatch(f.Function); m != nil {
			functions = append(functions, fmt.Sprintf("%s.%s", m[1], m[2]))
		}
		if !more {
			return functions
		}
	}
}
