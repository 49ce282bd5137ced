package program

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	starlarkmath "go.starlark.net/lib/math"
	starlarktime "go.starlark.net/lib/time"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

type builtin = func(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error)

// predeclared are the names that a program has besides those of the language.
func (e *evaluator) predeclared() starlark.StringDict {
	names := starlark.StringDict{
		"tools": toolbox{e},
		"math":  starlarkmath.Module,
		"time":  durations,
		"json":  module("json", map[string]builtin{"encode": e.encodeJSON, "decode": decodeJSON}),
		"re": module("re", map[string]builtin{
			"match": reMatch, "search": reSearch, "findall": reFindAll, "sub": reSub, "split": reSplit,
		}),
	}
	for name, f := range map[string]builtin{
		"try_": e.tryTool, "guarantee": e.guarantee, "only": e.onlyOf, "at_most": e.atMost, "none": e.none, "unique": e.unique,
		"only_under": e.onlyUnder, "sum_of": e.sumOf, "print": ignore, compared: e.compared,
	} {
		names[name] = starlark.NewBuiltin(name, f)
	}
	return names
}

func module(name string, functions map[string]builtin) *starlarkstruct.Module {
	m := &starlarkstruct.Module{Name: name, Members: starlark.StringDict{}}
	for f, impl := range functions {
		m.Members[f] = starlark.NewBuiltin(name+"."+f, impl)
	}
	m.Freeze()
	return m
}

// durations is the part of the library's module that looks at no clock and no time zone.
var durations = func() *starlarkstruct.Module {
	m := &starlarkstruct.Module{Name: "time", Members: starlark.StringDict{}}
	for _, name := range []string{"parse_duration", "nanosecond", "microsecond", "millisecond", "second", "minute", "hour"} {
		m.Members[name] = starlarktime.Module.Members[name]
	}
	return m
}()

// ignore is print: a plan has no output, and printing a result that is not known is no look at it.
func ignore(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
	return starlark.None, nil
}

func (e *evaluator) encodeJSON(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	if len(args) != 1 || len(kwargs) > 0 {
		return nil, fmt.Errorf("%s takes one value", b.Name())
	}
	w := writer{e: e, limit: maxJSON}
	if err := w.write(args[0], 1); err != nil {
		return nil, fmt.Errorf("%s: %w", b.Name(), err)
	}
	return starlark.String(w.out), nil
}

func decodeJSON(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	var text string
	if err := starlark.UnpackPositionalArgs(b.Name(), args, kwargs, 1, &text); err != nil {
		return nil, err
	}
	if len(text) > maxJSON {
		return nil, fmt.Errorf("%s: the text is larger than %d MiB", b.Name(), maxJSON>>20)
	}
	v, err := decode(approval.Raw(text), codec.MaxDepth)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Name(), err)
	}
	return v, nil
}

// Bounds of what expressions take: the time is at most their product.
const (
	maxPattern = 1 << 10
	maxText    = 256 << 10
	maxMatches = 10_000
)

// expression reads the arguments of a function of re: a pattern, then texts.
func expression(b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple, anchor string, texts ...*string) (*regexp.Regexp, error) {
	pattern := ""
	vars := []any{&pattern}
	for _, t := range texts {
		vars = append(vars, t)
	}
	if err := starlark.UnpackPositionalArgs(b.Name(), args, kwargs, len(vars), vars...); err != nil {
		return nil, err
	}
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("%s: the pattern is longer than %d bytes", b.Name(), maxPattern)
	}
	for _, t := range texts {
		if len(*t) > maxText || !utf8.ValidString(*t) {
			return nil, fmt.Errorf("%s: a text is longer than %d KiB, or not UTF-8", b.Name(), maxText>>10)
		}
	}
	if anchor != "" {
		if _, err := regexp.Compile(pattern); err != nil { // it must be one by itself: not "a)|(b"
			return nil, fmt.Errorf("%s: %w", b.Name(), err)
		}
		pattern = anchor + "(?:" + pattern + ")"
	}
	x, err := regexp.Compile(pattern)
	if err != nil {
		err = fmt.Errorf("%s: %w", b.Name(), err)
	}
	return x, err
}

// groups gives a match as a tuple: the whole, then the groups, None for those that match nothing.
func groups(text string, at []int) starlark.Value {
	if at == nil {
		return starlark.None
	}
	var t starlark.Tuple
	for i := 0; i < len(at); i += 2 {
		if at[i] < 0 {
			t = append(t, starlark.None)
		} else {
			t = append(t, starlark.String(text[at[i]:at[i+1]]))
		}
	}
	return t
}

func reMatch(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	text := ""
	x, err := expression(b, args, kwargs, `\A`, &text)
	if err != nil {
		return nil, err
	}
	return groups(text, x.FindStringSubmatchIndex(text)), nil
}

func reSearch(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	text := ""
	x, err := expression(b, args, kwargs, "", &text)
	if err != nil {
		return nil, err
	}
	return groups(text, x.FindStringSubmatchIndex(text)), nil
}

func matches(b *starlark.Builtin, x *regexp.Regexp, text string) ([][]int, error) {
	all := x.FindAllStringSubmatchIndex(text, maxMatches+1)
	if len(all) > maxMatches {
		return nil, fmt.Errorf("%s: more than %d matches", b.Name(), maxMatches)
	}
	return all, nil
}

// reFindAll gives a list of the matches: the whole if there are no groups, the group if there is one, else tuples of them.
func reFindAll(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	text := ""
	x, err := expression(b, args, kwargs, "", &text)
	if err != nil {
		return nil, err
	}
	all, err := matches(b, x, text)
	if err != nil {
		return nil, err
	}
	var list []starlark.Value
	for _, at := range all {
		t := groups(text, at).(starlark.Tuple)
		switch len(t) {
		case 1:
			list = append(list, t[0])
		case 2:
			list = append(list, t[1])
		default:
			list = append(list, t[1:])
		}
	}
	return starlark.NewList(list), nil
}

var errTooLong = errors.New("the result is too long")

// reSub replaces all matches. In the replacement, \1 is the first group and \\ a backslash.
func reSub(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	repl, text := "", ""
	x, err := expression(b, args, kwargs, "", &repl, &text)
	if err != nil {
		return nil, err
	}
	all, err := matches(b, x, text)
	if err != nil {
		return nil, err
	}
	template := goTemplate(repl)
	var out []byte
	end := 0
	for _, at := range all {
		out = append(out, text[end:at[0]]...)
		if out = x.ExpandString(out, template, text, at); len(out) > maxJSON {
			return nil, fmt.Errorf("%s: %w", b.Name(), errTooLong)
		}
		end = at[1]
	}
	return starlark.String(append(out, text[end:]...)), nil
}

func goTemplate(repl string) string {
	var t strings.Builder
	for i := 0; i < len(repl); i++ {
		c := repl[i]
		switch {
		case c == '$':
			t.WriteString("$$")
		case c == '\\' && i+1 < len(repl) && '0' <= repl[i+1] && repl[i+1] <= '9':
			i++
			t.WriteString("${" + string(repl[i]) + "}")
		case c == '\\' && i+1 < len(repl) && repl[i+1] == '\\':
			i++
			t.WriteByte('\\')
		default:
			t.WriteByte(c)
		}
	}
	return t.String()
}

func reSplit(_ *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	text := ""
	x, err := expression(b, args, kwargs, "", &text)
	if err != nil {
		return nil, err
	}
	if _, err := matches(b, x, text); err != nil {
		return nil, err
	}
	var list []starlark.Value
	for _, part := range x.Split(text, -1) {
		list = append(list, starlark.String(part))
	}
	return starlark.NewList(list), nil
}
