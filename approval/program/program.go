// Package program evaluates the programs of agents, and checks what they guarantee of their calls. It is pure: what a
// program calls is a function that it is given, and that has the effects, if any.
//
// A program is in Starlark. It reads nothing but the results of its calls: it has no files, no clock and no randomness, so
// that the same answers lead to the same calls, byte for byte. See Evaluate.
package program

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/permesso-dev/permesso/approval"
)

const (
	maxStarlark   = 5_000_000 // steps of the interpreter: less than a second
	maxGuarantees = 64
	maxPromised   = 64 << 10 // bytes of all guarantees
	maxNesting    = 1000     // of a program's syntax tree: the compiler is recursive
	maxShown      = 300      // characters of an error
	fileName      = "program"
	mainName      = "main"
)

var dialect = &syntax.FileOptions{Set: true}

// Evaluate runs a program. It asks call for the answer to each call of a tool, one after another. It ends
//   - when main has returned,
//   - at the first look at a result that is not known, with Needs: the program cannot prevent or notice that,
//   - with a *approval.ProgramError if the program is at fault,
//   - with the error of call, or of ctx.
//
// A loop within one operation of the interpreter, such as max(range(1 << 60)), does not end with ctx: what must survive
// every program evaluates it in a process of its own, see Serve.
func Evaluate(ctx context.Context, job approval.ProgramJob, call func(approval.Call) (approval.Answer, error)) (approval.Evaluation, error) {
	var steps []approval.Step
	ev, err := evaluate(ctx, job, func(c approval.Call) (approval.Answer, error) {
		steps = append(steps, approval.Step{Call: c, Declared: job.Tools[c.Tool]})
		return call(c)
	})
	if err != nil {
		return approval.Evaluation{}, err
	}
	ev.Guarantees = Check(steps, ev.Needs != nil, ev.Guarantees)
	return ev, nil
}

// evaluate is Evaluate, but leaves the guarantees unchecked.
func evaluate(ctx context.Context, job approval.ProgramJob, call func(approval.Call) (approval.Answer, error)) (approval.Evaluation, error) {
	e := &evaluator{job: job, call: call, names: slices.Sorted(maps.Keys(job.Tools)), tools: map[string]*tool{}}
	e.thread = &starlark.Thread{Name: fileName, Print: func(*starlark.Thread, string) {}}
	e.thread.SetMaxExecutionSteps(maxStarlark)
	defer context.AfterFunc(ctx, func() { e.thread.Cancel("out of time") })()
	err := e.run()
	switch {
	case e.failed != nil: // first: nothing that the program does hides it
		return approval.Evaluation{}, e.failed
	case e.needs != nil:
		return approval.Evaluation{Guarantees: e.guarantees, Needs: e.needs}, nil
	case err != nil && ctx.Err() != nil:
		return approval.Evaluation{}, context.Cause(ctx)
	case err != nil:
		return approval.Evaluation{}, e.errorOf(err)
	}
	return approval.Evaluation{Guarantees: e.guarantees}, nil
}

// evaluator is one evaluation.
type evaluator struct {
	job    approval.ProgramJob
	call   func(approval.Call) (approval.Answer, error)
	thread *starlark.Thread
	names  []string         // of the tools
	tools  map[string]*tool // that the program has named

	inMain     bool
	asking     bool // call has been called, and has not returned
	calls      int
	size       int // of the arguments
	guarantees []approval.Guarantee
	needs      *approval.Needs // it has looked at what is not known
	failed     error           // of call
}

func compile(source string, predeclared starlark.StringDict) (*starlark.Program, error) {
	file, err := parse(source)
	if err != nil {
		return nil, err
	}
	if err := checkTree(file, predeclared); err != nil {
		return nil, err
	}
	return starlark.FileProgram(file, predeclared.Has)
}

func (e *evaluator) run() (err error) {
	defer func() {
		if e.asking { // it is the panic of call
			return
		}
		if r := recover(); r != nil { // the library makes a list of any size
			err = &approval.ProgramError{Line: e.line(), Text: fmt.Sprintf("the program needs too much memory: %v", r)}
		}
	}()
	predeclared := e.predeclared()
	compiled, err := compile(e.job.Source, predeclared)
	if err != nil {
		return err
	}
	globals, err := compiled.Init(e.thread, predeclared)
	if err != nil {
		return err
	}
	globals.Freeze()
	main, ok := globals[mainName].(*starlark.Function)
	if !ok || main.NumParams() > 0 {
		return &approval.ProgramError{Text: "the program must define main: def main(): …, without parameters"}
	}
	e.inMain = true
	_, err = starlark.Call(e.thread, main, nil, nil)
	return err
}

func parse(source string) (*syntax.File, error) {
	switch {
	case len(source) > approval.MaxProgram:
		return nil, &approval.ProgramError{Text: fmt.Sprintf("the program is larger than %d KiB", approval.MaxProgram>>10)}
	case !utf8.ValidString(source):
		return nil, &approval.ProgramError{Text: "the program is not UTF-8"}
	}
	for i, line := range strings.Split(source, "\n") {
		if at := strings.IndexFunc(line, misleads); at >= 0 {
			r, _ := utf8.DecodeRuneInString(line[at:])
			if r == '\r' && at == len(line)-1 {
				return nil, &approval.ProgramError{Line: i + 1, Text: "the line ends with CR LF: end lines with LF alone"}
			}
			return nil, &approval.ProgramError{Line: i + 1, Text: fmt.Sprintf("the program has the character %U; in a string, write it with \\", r)}
		}
	}
	return dialect.Parse(fileName, source, 0) // it refuses deep nesting
}

// misleads reports whether a character hides from a reader of the program what the next ones are. A carriage return begins a
// line, for the language alone.
func misleads(r rune) bool {
	return r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// compared is the name, in the tree alone, of a function that gives its argument, and looks at what it holds. The
// interpreter compares a string with another value without asking that value, see opaque.
const compared = "?compared"

func checked(x syntax.Expr) syntax.Expr {
	switch y := x.(type) {
	case *syntax.Literal, *syntax.UnaryExpr: // -1, *args
		return x
	case *syntax.BinaryExpr:
		if y.Op == syntax.EQ { // an argument by name
			return x
		}
	}
	at, _ := x.Span()
	return &syntax.CallExpr{Fn: &syntax.Ident{NamePos: at, Name: compared}, Lparen: at, Args: []syntax.Expr{x}, Rparen: at}
}

// compared looks at what is not known in a value that is compared, and counts its parts as steps.
func (e *evaluator) compared(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
	var look func(v starlark.Value, depth int) error
	look = func(v starlark.Value, depth int) error {
		if e.thread.Steps++; e.thread.Steps > maxStarlark || depth > starlark.CompareLimit {
			return nil // the interpreter ends, or cannot compare it
		}
		switch v := v.(type) {
		case *opaque:
			return e.looks(v.step)
		case starlark.Tuple, *starlark.List:
			for _, item := range itemsOf(v) {
				if err := look(item, depth+1); err != nil {
					return err
				}
			}
		case *starlark.Dict:
			for _, item := range v.Entries() {
				if err := look(item, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return args[0], look(args[0], 0)
}

// checkTree refuses what the grammar permits, but what a reader of the program can be misled by: other letters that look
// like ASCII, and other values behind the names that make effects or guarantees.
func checkTree(file *syntax.File, predeclared starlark.StringDict) (err error) {
	refuse := func(at syntax.Position, format string, args ...any) {
		if err == nil {
			err = &approval.ProgramError{Line: int(at.Line), Text: fmt.Sprintf(format, args...)}
		}
	}
	bind := func(targets ...syntax.Expr) {
		for _, target := range targets {
			for _, id := range bound(target) {
				if predeclared.Has(id.Name) || starlark.Universe.Has(id.Name) {
					refuse(id.NamePos, "%s is predeclared; choose another name", id.Name)
				}
			}
		}
	}
	depth := 0
	syntax.Walk(file, func(n syntax.Node) bool {
		if n == nil {
			depth--
			return false
		}
		if depth++; depth > maxNesting {
			at, _ := n.Span()
			refuse(at, "nested too deeply")
		}
		switch n := n.(type) {
		case *syntax.Ident:
			if strings.ContainsFunc(n.Name, func(r rune) bool { return r >= utf8.RuneSelf }) {
				refuse(n.NamePos, "names must be ASCII: %s is not", n.Name)
			}
		case *syntax.LoadStmt:
			refuse(n.Load, "load is not available: a program has no other files")
		case *syntax.BinaryExpr:
			switch n.Op {
			case syntax.EQL, syntax.NEQ:
				n.Y = checked(n.Y)
			case syntax.IN, syntax.NOT_IN:
				n.X = checked(n.X)
			}
		case *syntax.CallExpr:
			if dot, ok := n.Fn.(*syntax.DotExpr); ok && len(n.Args) == 1 && (dot.Name.Name == "index" || dot.Name.Name == "remove") {
				n.Args[0] = checked(n.Args[0])
			}
		case *syntax.AssignStmt:
			bind(n.LHS)
		case *syntax.DefStmt:
			bind(n.Name)
			bind(n.Params...)
		case *syntax.LambdaExpr:
			bind(n.Params...)
		case *syntax.ForStmt:
			bind(n.Vars)
		case *syntax.ForClause:
			bind(n.Vars)
		}
		if err != nil {
			depth-- // Walk does not return to a node that it does not enter
		}
		return err == nil
	})
	return err
}

// bound lists the names that a target of an assignment, or a parameter, binds.
func bound(target syntax.Expr) (ids []*syntax.Ident) {
	switch x := target.(type) {
	case *syntax.Ident:
		return []*syntax.Ident{x}
	case *syntax.ParenExpr:
		return bound(x.X)
	case *syntax.ListExpr:
		for _, item := range x.List {
			ids = append(ids, bound(item)...)
		}
	case *syntax.TupleExpr:
		for _, item := range x.List {
			ids = append(ids, bound(item)...)
		}
	case *syntax.BinaryExpr: // a parameter with a default
		return bound(x.X)
	case *syntax.UnaryExpr: // *args, **kwargs
		if x.X != nil {
			return bound(x.X)
		}
	}
	return ids
}

// looks ends the evaluation: the program looks at the result of a step that has not run. The interpreter stops before its
// next instruction, and no call is made any more, whatever becomes of the error.
func (e *evaluator) looks(step int) error {
	if e.needs == nil {
		e.needs = &approval.Needs{Step: step, Line: e.line()}
	}
	e.thread.Cancel("needs a result")
	return fmt.Errorf("the result of step %d is not known", step)
}

// line is the line of the program that is being evaluated.
func (e *evaluator) line() int {
	for i := range e.thread.CallStackDepth() {
		if at := e.thread.CallFrame(i).Pos; at.Line > 0 && at.Filename() == fileName {
			return int(at.Line)
		}
	}
	return 0
}

func (e *evaluator) errorOf(err error) error {
	if own, ok := errors.AsType[*approval.ProgramError](err); ok {
		line := own.Line
		if trace, ok := errors.AsType[*starlark.EvalError](err); ok && line == 0 {
			line = lineOf(trace.CallStack)
		}
		return &approval.ProgramError{Line: line, Text: Shown(own.Text)}
	}
	if e.thread.Steps >= maxStarlark {
		err = errors.New("the program takes too many steps")
	}
	line, text := e.line(), err.Error()
	switch err := err.(type) { //nolint:errorlint // the library does not wrap them
	case syntax.Error:
		line, text = int(err.Pos.Line), err.Msg
	case resolve.ErrorList:
		line, text = int(err[0].Pos.Line), err[0].Msg
	case *starlark.EvalError:
		line, text = lineOf(err.CallStack), err.Msg
	}
	return &approval.ProgramError{Line: line, Text: Shown(text)}
}

func lineOf(stack starlark.CallStack) int {
	for i := range stack {
		if at := stack.At(i).Pos; at.Line > 0 && at.Filename() == fileName {
			return int(at.Line)
		}
	}
	return 0
}

// Shown is a text with words of a program as an error shows them: its beginning, on one line, in ASCII.
func Shown(text string) string {
	var b strings.Builder
	n := 0
	for _, r := range text {
		if n++; n > maxShown {
			b.WriteString("…")
			break
		}
		switch {
		case r == '…' || ' ' <= r && r <= '~':
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
