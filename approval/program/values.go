package program

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

const (
	maxDepth   = 24      // of an argument: the plan that holds it is nested in other documents
	maxIntBits = 1000    // of a whole number in JSON
	maxJSON    = 4 << 20 // bytes of what json.encode gives and json.decode takes
)

// toolbox is "tools".
type toolbox struct{ e *evaluator }

var (
	_ starlark.HasAttrs = toolbox{}
	_ starlark.Mapping  = toolbox{}
)

func (t toolbox) String() string        { return "tools" }
func (t toolbox) Type() string          { return "tools" }
func (t toolbox) Freeze()               {}
func (t toolbox) Truth() starlark.Bool  { return true }
func (t toolbox) Hash() (uint32, error) { return 0, errors.New("unhashable: tools") }
func (t toolbox) AttrNames() []string   { return slices.Clone(t.e.names) }

func (t toolbox) Attr(name string) (starlark.Value, error) {
	if _, ok := t.e.job.Tools[name]; !ok {
		text := "there is no tool " + name
		if near := facts.Nearest(name, t.e.names); near != "" {
			text += "; did you mean " + near + "?"
		}
		return nil, &approval.ProgramError{Text: text}
	}
	if t.e.tools[name] == nil {
		t.e.tools[name] = &tool{e: t.e, name: name}
	}
	return t.e.tools[name], nil
}

// Get is tools["mcp.server.tool"].
func (t toolbox) Get(k starlark.Value) (starlark.Value, bool, error) {
	name, ok := starlark.AsString(k)
	if !ok {
		return nil, false, t.e.unfit(k, "tools[…] takes the name of a tool")
	}
	v, err := t.Attr(name)
	return v, err == nil, err
}

// tool is a tool that a program can call.
type tool struct {
	e    *evaluator
	name string
}

var (
	_ starlark.Callable = (*tool)(nil)
	_ starlark.HasAttrs = (*tool)(nil)
)

func (t *tool) String() string        { return "tools." + t.name }
func (t *tool) Name() string          { return "tools." + t.name }
func (t *tool) Type() string          { return "tool" }
func (t *tool) Freeze()               {}
func (t *tool) Truth() starlark.Bool  { return true }
func (t *tool) Hash() (uint32, error) { return starlark.String(t.name).Hash() }
func (t *tool) AttrNames() []string   { return []string{"only"} }

func (t *tool) Attr(name string) (starlark.Value, error) {
	if name != "only" {
		return nil, nil
	}
	return starlark.NewBuiltin("only", func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		return t.e.only(append(starlark.Tuple{t}, args...), kwargs)
	}), nil
}

func (t *tool) CallInternal(_ *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	step, answer, err := t.e.callTool(t, args, kwargs, false)
	if err != nil {
		return nil, err
	}
	return t.e.resultOf(step, answer)
}

// tryTool is try_(tools.x, …).
func (e *evaluator) tryTool(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if len(args) == 0 {
		return nil, errors.New("try_ takes a tool and its arguments: try_(tools.x, to = …)")
	}
	t, ok := args[0].(*tool)
	if !ok {
		return nil, errors.New("try_ takes a tool and its arguments: try_(tools.x, to = …)")
	}
	step, answer, err := e.callTool(t, args[1:], kwargs, true)
	if err != nil {
		return nil, err
	}
	o := &outcome{e: e, step: step, known: answer.Known, failed: answer.Failed, value: starlark.None}
	if answer.Failed == "" {
		o.value, err = e.resultOf(step, answer)
	}
	return o, err
}

// callTool makes one call.
func (e *evaluator) callTool(t *tool, args starlark.Tuple, kwargs []starlark.Tuple, try bool) (step int, answer approval.Answer, err error) {
	switch {
	case e.needs != nil || e.failed != nil:
		return 0, answer, errors.New("the evaluation has ended")
	case !e.inMain:
		return 0, answer, errors.New("tools can be called only within main")
	case len(args) > 0:
		return 0, answer, fmt.Errorf("%s takes its arguments by name: %s(to = …)", t.Name(), t.Name())
	case e.calls == approval.MaxSteps:
		return 0, answer, fmt.Errorf("a program can call tools at most %d times", approval.MaxSteps)
	}
	c, err := e.callOf(t.name, kwargs)
	if err != nil {
		return 0, answer, err
	}
	e.calls++
	c.Line, c.Try = e.line(), try
	e.asking = true
	answer, err = e.call(c)
	e.asking = false
	if err == nil && answer.Failed != "" && !try {
		err = failedStep(e.calls, c.Line, answer)
	}
	if err != nil {
		e.failed = err
		e.thread.Cancel("a call failed")
	}
	return e.calls, answer, err
}

func failedStep(step, line int, answer approval.Answer) error {
	return &approval.ProgramError{Line: line, Text: Shown(fmt.Sprintf("step %d failed: %s", step, answer.Failed))}
}

// callOf is the call with these arguments.
func (e *evaluator) callOf(name string, kwargs []starlark.Tuple) (c approval.Call, err error) {
	declared := e.job.Tools[name]
	rest := maps.Clone(declared) // without those that are not known
	var fields []codec.Field
	slices.SortStableFunc(kwargs, func(a, b starlark.Tuple) int { return cmp.Compare(a[0].(starlark.String), b[0].(starlark.String)) })
	for i, kv := range kwargs {
		arg := string(kv[0].(starlark.String))
		a, known := declared[arg]
		o, opaque := kv[1].(*opaque)
		switch {
		case i > 0 && kwargs[i-1][0] == kv[0]:
			return c, fmt.Errorf("argument %s is given twice", arg)
		case kv[1] == starlark.None:
		case opaque && known && a.Type != "" && a.Type != facts.TypeText:
			return c, e.looks(o.step)
		case opaque && known:
			c.Opaque = append(c.Opaque, approval.ResultRef{Arg: arg, Step: o.step, At: o.at})
			delete(rest, arg)
		case opaque:
			fields = append(fields, codec.Field{Name: arg, Value: jsontext.Value("null")}) // an error below
		default:
			w := writer{e: e, limit: approval.MaxTrace - e.size}
			if err := w.write(kv[1], 1); err != nil {
				return c, fmt.Errorf("argument %s: %w", arg, err)
			}
			fields = append(fields, codec.Field{Name: arg, Value: w.out})
		}
	}
	c.Tool, c.Data = name, codec.Object(fields)
	if e.size += len(c.Data); e.size > approval.MaxTrace {
		return c, fmt.Errorf("the arguments of all calls are larger than %d KiB", approval.MaxTrace>>10)
	}
	return c, wrongArgs(name, facts.CheckArgs(rest, c.Data))
}

// wrongArgs says in English why arguments are not what their tool declares.
func wrongArgs(tool string, why approval.Reason) error {
	name, kind := why.Args["name"], strings.TrimPrefix(why.Args["why"], "is_")
	switch why.Code {
	case "":
		return nil
	case "argument_undeclared":
		text := fmt.Sprintf("tools.%s has no argument %s", tool, name)
		if near := why.Args["near"]; near != "" {
			text += "; did you mean " + near + "?"
		}
		return errors.New(text)
	case "argument_missing":
		return fmt.Errorf("tools.%s needs the argument %s (%s)", tool, name, kind)
	case "argument_type":
		return fmt.Errorf("argument %s of tools.%s must be of type %s, not %s", name, tool, kind, why.Args["value"])
	}
	return fmt.Errorf("the arguments of tools.%s are refused: %s", tool, why)
}

func (e *evaluator) resultOf(step int, answer approval.Answer) (starlark.Value, error) {
	if !answer.Known {
		return &opaque{e: e, step: step}, nil
	}
	v, err := decode(answer.Result, codec.MaxDepth)
	if err != nil {
		err = fmt.Errorf("the result of step %d: %w", step, err)
	}
	return v, err
}

// opaque is the result of a step that has not run, or a part of it. It can be passed on as the whole of an argument. All
// else is a look at it, see looks: the interpreter asks for the type where it compares values, too.
type opaque struct {
	e    *evaluator
	step int
	at   string // a JSON pointer
}

var (
	_ starlark.HasAttrs   = (*opaque)(nil)
	_ starlark.Mapping    = (*opaque)(nil)
	_ starlark.Container  = (*opaque)(nil)
	_ starlark.Comparable = (*opaque)(nil)
)

func (o *opaque) Freeze() {}

func (o *opaque) String() string {
	_ = o.e.looks(o.step)
	return "opaque"
}

// Type looks: a comparison with a value of another type calls only this.
func (o *opaque) Type() string { return o.String() }

func (o *opaque) Truth() starlark.Bool {
	_ = o.e.looks(o.step)
	return false
}

func (o *opaque) Hash() (uint32, error) { return 0, o.e.looks(o.step) }

func (o *opaque) CompareSameType(syntax.Token, starlark.Value, int) (bool, error) {
	return false, o.e.looks(o.step)
}

// Attr looks: a result that is known has methods.
func (o *opaque) Attr(string) (starlark.Value, error) { return nil, o.e.looks(o.step) }

// AttrNames is dir(o).
func (o *opaque) AttrNames() []string {
	_ = o.e.looks(o.step)
	return nil
}

// Has is the operator in.
func (o *opaque) Has(starlark.Value) (bool, error) { return false, o.e.looks(o.step) }

// Get gives a part: o["id"], o[0].
func (o *opaque) Get(k starlark.Value) (starlark.Value, bool, error) {
	token := ""
	switch k := k.(type) {
	case starlark.String:
		if token = string(k); !utf8.ValidString(token) {
			return nil, false, errors.New("a name in a result must be UTF-8")
		}
	case starlark.Int:
		n, ok := k.Int64()
		if !ok || n < 0 { // the length must be known
			return nil, false, o.e.looks(o.step)
		}
		token = strconv.FormatInt(n, 10)
	case *opaque:
		return nil, false, o.e.looks(k.step)
	default:
		return nil, false, o.e.looks(o.step)
	}
	at := o.at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
	if len(at) > maxPointer {
		return nil, false, errors.New("a part of a result is nested too deeply")
	}
	return &opaque{e: o.e, step: o.step, at: at}, true, nil
}

// maxPointer bounds a JSON pointer into a result.
const maxPointer = 1000

// outcome is what try_ gives.
type outcome struct {
	e      *evaluator
	step   int
	known  bool
	failed string
	value  starlark.Value
}

var _ starlark.HasAttrs = (*outcome)(nil)

func (o *outcome) Type() string          { return "outcome" }
func (o *outcome) String() string        { return "outcome" }
func (o *outcome) Freeze()               {}
func (o *outcome) Hash() (uint32, error) { return 0, errors.New("unhashable: outcome") }
func (o *outcome) AttrNames() []string   { return []string{"error", "ok", "value"} }

func (o *outcome) Truth() starlark.Bool {
	if !o.known {
		_ = o.e.looks(o.step)
	}
	return o.failed == ""
}

func (o *outcome) Attr(name string) (starlark.Value, error) {
	switch name {
	case "value":
		return o.value, nil
	case "ok", "error":
		if !o.known {
			return nil, o.e.looks(o.step)
		}
		if name == "ok" {
			return starlark.Bool(o.failed == ""), nil
		}
		return starlark.String(o.failed), nil
	}
	return nil, nil
}

// writer writes values as JSON, in one way: members in the order of the dict, numbers as ECMAScript does.
type writer struct {
	e     *evaluator
	out   jsontext.Value
	limit int
}

func (w *writer) write(v starlark.Value, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	var err error
	switch v := v.(type) {
	case starlark.NoneType:
		w.out = append(w.out, "null"...)
	case starlark.Bool:
		w.out = strconv.AppendBool(w.out, bool(v))
	case starlark.Int:
		if v.BigInt().BitLen() > maxIntBits {
			return errors.New("a whole number is too large")
		}
		w.out = append(w.out, v.String()...)
	case starlark.Float:
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return errors.New("a number is not finite")
		}
		w.out = append(w.out, jsontext.Float(float64(v)).String()...)
	case starlark.String:
		err = w.quote(string(v))
	case *starlark.List:
		err = w.array(v, depth)
	case starlark.Tuple:
		err = w.array(v, depth)
	case *starlark.Dict:
		err = w.object(v, depth)
	case *opaque:
		return w.e.looks(v.step)
	default:
		return fmt.Errorf("a value of type %s cannot be written as JSON", v.Type())
	}
	if err == nil && len(w.out) > w.limit {
		err = errors.New("too large")
	}
	return err
}

func (w *writer) quote(s string) (err error) {
	if !utf8.ValidString(s) {
		return errors.New("a string is not UTF-8")
	}
	if len(s) > w.limit {
		return errors.New("too large")
	}
	w.out, err = jsontext.AppendQuote(w.out, s)
	return err
}

func (w *writer) array(v starlark.Indexable, depth int) error {
	w.out = append(w.out, '[')
	for i := range v.Len() {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.write(v.Index(i), depth+1); err != nil {
			return err
		}
	}
	w.out = append(w.out, ']')
	return nil
}

func (w *writer) object(v *starlark.Dict, depth int) error {
	w.out = append(w.out, '{')
	i := 0
	for k, value := range v.Entries() {
		name, ok := starlark.AsString(k)
		if !ok {
			return fmt.Errorf("a key must be a string, not %s", k.Type())
		}
		if i++; i > 1 {
			w.out = append(w.out, ',')
		}
		if err := w.quote(name); err != nil {
			return err
		}
		w.out = append(w.out, ':')
		if err := w.write(value, depth+1); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	return nil
}

// decode is a JSON value as a program sees it: frozen.
func decode(v approval.Raw, depth int) (starlark.Value, error) {
	if err := codec.CheckDepth(v, depth); err != nil {
		return nil, err
	}
	var whole jsontext.Value
	if err := codec.Decode(v, &whole); err != nil {
		return nil, err
	}
	d := jsontext.NewDecoder(strings.NewReader(string(v)))
	value, err := read(d)
	if err != nil {
		return nil, err
	}
	value.Freeze()
	return value, nil
}

func read(d *jsontext.Decoder) (starlark.Value, error) {
	tok, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case 't', 'f':
		return starlark.Bool(tok.Bool()), nil
	case '"':
		return starlark.String(tok.String()), nil
	case '0':
		return number(tok.String())
	case '[':
		var items []starlark.Value
		for d.PeekKind() != ']' {
			item, err := read(d)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		_, err := d.ReadToken()
		return starlark.NewList(items), err
	case '{':
		dict := new(starlark.Dict)
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			key := starlark.String(name.String())
			value, err := read(d)
			if err != nil {
				return nil, err
			}
			if err := dict.SetKey(key, value); err != nil {
				return nil, err
			}
		}
		_, err := d.ReadToken()
		return dict, err
	}
	return starlark.None, nil
}

func number(text string) (starlark.Value, error) {
	if len(text) > maxIntBits/3 {
		return nil, errors.New("a number is too long")
	}
	if strings.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		return starlark.Float(f), err
	}
	n, ok := new(big.Int).SetString(text, 10)
	if !ok {
		return nil, errors.New("not a number")
	}
	return starlark.MakeBigInt(n), nil
}
