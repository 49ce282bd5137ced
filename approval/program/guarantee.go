package program

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// promise is what only, at_most, … give: guarantees that count once they are passed to guarantee.
type promise []approval.Guarantee

func (p promise) String() string        { return "promise" }
func (p promise) Type() string          { return "promise" }
func (p promise) Freeze()               {}
func (p promise) Truth() starlark.Bool  { return true }
func (p promise) Hash() (uint32, error) { return 0, errors.New("unhashable: promise") }

// sum is what sum_of gives.
type sum struct{ arg, max, currency string }

func (s sum) String() string        { return "sum_of" }
func (s sum) Type() string          { return "sum_of" }
func (s sum) Freeze()               {}
func (s sum) Truth() starlark.Bool  { return true }
func (s sum) Hash() (uint32, error) { return 0, errors.New("unhashable: sum_of") }

func (e *evaluator) guarantee(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if len(kwargs) > 0 {
		return nil, errors.New("guarantee takes none(…), at_most(…) and the like, not names")
	}
	for _, arg := range args {
		p, ok := arg.(promise)
		if !ok {
			return nil, e.unfit(arg, "guarantee takes none(…), at_most(…) and the like")
		}
		for _, g := range p {
			g.Line = e.line()
			e.guarantees = append(e.guarantees, g)
		}
	}
	return starlark.None, tooMany(e.guarantees)
}

func tooMany(gs []approval.Guarantee) error {
	size := 0
	for _, g := range gs {
		for _, v := range append(g.Values, g.Tool, g.Arg, g.Sum) {
			size += len(v)
		}
	}
	if len(gs) > maxGuarantees || size > maxPromised {
		return fmt.Errorf("a program can guarantee at most %d things, of %d KiB", maxGuarantees, maxPromised>>10)
	}
	return nil
}

// unfit is the error for a value that is not what a guarantee takes.
func (e *evaluator) unfit(v starlark.Value, text string) error {
	if o, ok := v.(*opaque); ok {
		return e.looks(o.step)
	}
	return errors.New(text)
}

func (e *evaluator) onlyOf(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	return e.only(args, kwargs)
}

// only is tools.x.only(to = ["a@example.com"]).
func (e *evaluator) only(args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	const text = `only takes values by name: tools.x.only(to = ["a@example.com"])`
	t, err := e.toolIn(args, text)
	if err != nil {
		return nil, err
	}
	if len(args) > 1 || len(kwargs) == 0 {
		return nil, errors.New(text)
	}
	var p promise
	for _, kv := range kwargs {
		arg := string(kv[0].(starlark.String))
		if err := e.declares(t, arg); err != nil {
			return nil, err
		}
		g := approval.Guarantee{Kind: approval.GuaranteeOnly, Tool: t.name, Arg: arg, Values: []string{}}
		for _, item := range itemsOf(kv[1]) {
			text, err := e.literal(item, asJSON(e.job.Tools[t.name][arg].Type))
			if err != nil {
				return nil, err
			}
			g.Values = append(g.Values, text)
		}
		p = append(p, g)
	}
	return p, nil
}

func itemsOf(v starlark.Value) []starlark.Value {
	switch v := v.(type) {
	case *starlark.List:
		return slices.Collect(v.Elements())
	case starlark.Tuple:
		return v
	}
	return []starlark.Value{v}
}

// literal is a value of a guarantee: a text, or the JSON of another value, and of all if they are compared so.
func (e *evaluator) literal(v starlark.Value, json bool) (string, error) {
	if s, ok := v.(starlark.String); ok && !json {
		return string(s), nil
	}
	w := writer{e: e, limit: maxText}
	err := w.write(v, 1)
	return string(w.out), err
}

func (e *evaluator) toolIn(args starlark.Tuple, text string) (*tool, error) {
	if len(args) == 0 {
		return nil, errors.New(text)
	}
	t, ok := args[0].(*tool)
	if !ok {
		return nil, e.unfit(args[0], text)
	}
	return t, nil
}

// declares refuses a guarantee about an argument that cannot occur: it would hold, and mean nothing.
func (e *evaluator) declares(t *tool, arg string) error {
	if _, ok := e.job.Tools[t.name][arg]; ok {
		return nil
	}
	return fmt.Errorf("%s has no argument %s", t.Name(), arg)
}

// atMost is at_most(tools.pay, 3) or at_most(tools.pay, 3, sum_of("amount", 100, "EUR")).
func (e *evaluator) atMost(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	const text = `at_most takes a tool, how often, and perhaps a sum: at_most(tools.pay, 3, sum_of("amount", 100, "EUR"))`
	t, err := e.toolIn(args, text)
	if err != nil {
		return nil, err
	}
	if len(args) < 2 || len(args) > 3 || len(kwargs) > 0 {
		return nil, errors.New(text)
	}
	n, ok := args[1].(starlark.Int)
	most, fits := n.Int64()
	if !ok || !fits || most < 0 {
		return nil, e.unfit(args[1], text)
	}
	p := promise{{Kind: approval.GuaranteeAtMost, Tool: t.name, Max: most}}
	if len(args) == 3 {
		s, ok := args[2].(sum)
		if !ok {
			return nil, e.unfit(args[2], text)
		}
		if err := e.declares(t, s.arg); err != nil {
			return nil, err
		}
		if !isNumber(e.job.Tools[t.name][s.arg].Type) {
			return nil, fmt.Errorf("argument %s of %s is no amount", s.arg, t.Name())
		}
		p = append(p, approval.Guarantee{
			Kind: approval.GuaranteeSum, Tool: t.name, Arg: s.arg, Max: p[0].Max, Sum: s.max, Currency: s.currency,
		})
	}
	return p, nil
}

func (e *evaluator) sumOf(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	const text = `sum_of takes an argument, a sum, and perhaps its currency: sum_of("amount", 100, "EUR")`
	if len(args) < 2 || len(args) > 3 || len(kwargs) > 0 {
		return nil, errors.New(text)
	}
	var parts [3]string
	for i, arg := range args {
		s, err := e.literal(arg, false)
		if err != nil {
			return nil, err
		}
		parts[i] = s
	}
	s := sum{parts[0], parts[1], parts[2]}
	if _, ok := decimal(s.max); !ok || strings.HasPrefix(s.max, "-") {
		return nil, fmt.Errorf("sum_of: %q is no sum", s.max)
	}
	if s.currency != "" && !facts.IsCurrency(s.currency) {
		return nil, fmt.Errorf("sum_of: %q is no currency such as EUR", s.currency)
	}
	return s, nil
}

func (e *evaluator) none(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	const text = "none takes tools: none(tools.write_file)"
	if len(args) == 0 || len(kwargs) > 0 {
		return nil, errors.New(text)
	}
	var p promise
	for i := range args {
		t, err := e.toolIn(args[i:], text)
		if err != nil {
			return nil, err
		}
		p = append(p, approval.Guarantee{Kind: approval.GuaranteeNone, Tool: t.name})
	}
	return p, nil
}

func (e *evaluator) unique(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	const text = `unique takes a tool and an argument: unique(tools.send_email, "to")`
	t, err := e.toolIn(args, text)
	if err != nil {
		return nil, err
	}
	if len(args) != 2 || len(kwargs) > 0 {
		return nil, errors.New(text)
	}
	arg, ok := starlark.AsString(args[1])
	if !ok {
		return nil, e.unfit(args[1], text)
	}
	return promise{{Kind: approval.GuaranteeUnique, Tool: t.name, Arg: arg}}, e.declares(t, arg)
}

func (e *evaluator) onlyUnder(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	const text = `only_under takes an argument and folders: only_under("path", "~/Sandbox")`
	var names []string
	for _, arg := range args {
		for _, v := range itemsOf(arg) {
			s, ok := starlark.AsString(v)
			if !ok || s == "" {
				return nil, e.unfit(v, text)
			}
			names = append(names, s)
		}
	}
	if len(names) < 2 || len(kwargs) > 0 {
		return nil, errors.New(text)
	}
	for _, folder := range names[1:] {
		if escapes(placeOf(folder)) {
			return nil, fmt.Errorf("only_under: a folder must be without .., not %q", folder)
		}
	}
	known := names[0] == facts.TypePath
	for _, args := range e.job.Tools {
		_, declared := args[names[0]]
		known = known || declared
	}
	if !known {
		return nil, fmt.Errorf("only_under: no tool has an argument %s", names[0])
	}
	return promise{{Kind: approval.GuaranteeOnlyUnder, Arg: names[0], Values: names[1:]}}, nil
}
