package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/security/policy"
)

// anyTextCondition is met by every text.
const anyTextCondition = `{ matches = "` + policy.AnyText + `" }`

// callShape are calls of a program that one rule allows: of one tool, with the same arguments, of which those that cannot
// be generalized have the same values.
type callShape struct {
	tool string
	args []string
	on   map[string]*argRange
}

// argRange is what the calls of a shape have of one argument.
type argRange struct {
	kind, currency string
	exact          string   // the condition on the one value; "": values are
	values         []string // as a condition has them, each once
}

// ProposeProgram returns the [[rules]] lines for programs of a client that call only these tools, with these recipients,
// paths and hosts, amounts and numbers as far as these, any text, and nothing else, and no tool more often. The texts of
// a tool that has an amount are the same ones. A call whose arguments are not all known has no rule, and is named in a
// comment. "" means that no step needs a rule.
func ProposeProgram(steps []approval.Step, workspace, client string) string {
	var shapes []*callShape
	var comments []string
	tools, left, calls := map[string]bool{}, 0, map[string]int{}
	for i := range steps {
		s := &steps[i]
		tools[s.Tool] = true
		if s.Done() {
			continue
		}
		left++
		calls[s.Tool]++
		switch fields, err := codec.Fields(s.Data); {
		case s.Ruling.Outcome != approval.Ask:
		case err != nil || len(s.Opaque) > 0:
			comments = append(comments, fmt.Sprintf("# no rule allows step %d, %s: not all of its arguments are known before it runs", i+1, s.Tool))
		default:
			shapes = addShape(shapes, shapeOf(s, fields))
		}
	}
	names := slices.Sorted(maps.Keys(tools))
	for _, c := range shapes {
		comments = append(comments, c.lines(names, workspace, client, left, calls[c.tool]))
	}
	return strings.Join(comments, "\n")
}

func addShape(all []*callShape, c *callShape) []*callShape {
	for _, has := range all {
		if has.includes(c) {
			for name, on := range has.on {
				for _, v := range c.on[name].values {
					if !slices.Contains(on.values, v) {
						on.values = append(on.values, v)
					}
				}
			}
			return all
		}
	}
	return append(all, c)
}

func (c *callShape) includes(d *callShape) bool {
	return c.tool == d.tool && slices.Equal(c.args, d.args) && !slices.ContainsFunc(c.args, func(name string) bool {
		x, y := c.on[name], d.on[name]
		return x.kind != y.kind || x.currency != y.currency || x.exact != y.exact
	})
}

func shapeOf(s *approval.Step, fields []codec.Field) *callShape {
	c := &callShape{tool: s.Tool, on: map[string]*argRange{}}
	pays := false // then a text may be the payee
	for _, a := range s.Declared {
		pays = pays || a.Type == facts.TypeAmount
	}
	for _, f := range fields {
		a := s.Declared[f.Name]
		on := &argRange{kind: a.Type}
		values, ok := valuesOf(f, a)
		if _, named := s.Declared[a.Currency]; named {
			i := slices.IndexFunc(fields, func(x codec.Field) bool { return x.Name == a.Currency })
			if i >= 0 {
				on.currency, _ = fields[i].Text()
			}
			ok = ok && on.currency != ""
		}
		if on.values = values; !ok || pays && len(values) == 0 {
			on.exact, on.values = conditionOn(f, a.Type), nil
		}
		c.args, c.on[f.Name] = append(c.args, f.Name), on
	}
	slices.Sort(c.args)
	return c
}

// valuesOf are the values of an argument as a condition lists or bounds them; ok is false if only the same value can be
// named.
func valuesOf(f codec.Field, a approval.Argument) (values []string, ok bool) {
	texts := textsOf(f)
	switch a.Type {
	case "", facts.TypeText:
		_, isText := f.Text()
		return nil, isText
	case facts.TypeAmount, facts.TypeNumber:
		number := string(f.Value)
		if f.Value.Kind() == '"' {
			number, _ = f.Text()
		}
		return []string{number}, policy.Condition{Field: f.Name, Max: number, Min: number}.Check() == nil
	case facts.TypeURL, facts.TypeHost:
		for i := range texts {
			texts[i], ok = facts.Origin(texts[i])
			if !ok {
				return nil, false
			}
		}
	case facts.TypePath:
		for i := range texts {
			texts[i] = policy.EscapeGlob(texts[i])
		}
	case facts.TypeRecipients:
	default:
		return nil, false
	}
	c := policy.Condition{Field: f.Name, Is: texts}
	return texts, len(texts) > 0 && c.Check() == nil && c.CheckType(a) == nil
}

// textsOf is a text, or the texts of a list; nil if it has something else.
func textsOf(f codec.Field) (texts []string) {
	items, err := codec.Items(f.Value)
	if err != nil || f.Value.Kind() != '[' {
		items = []approval.Raw{f.Value}
	}
	for _, item := range items {
		text, ok := codec.Field{Value: item}.Text()
		if !ok {
			return nil
		}
		texts = append(texts, text)
	}
	return texts
}

// condition is what the values have in common.
func (r *argRange) condition() string {
	switch {
	case r.exact != "":
		return r.exact
	case len(r.values) == 0:
		return anyTextCondition
	case r.kind != facts.TypeAmount && r.kind != facts.TypeNumber:
		items := make([]string, len(r.values))
		for i, v := range r.values {
			items[i] = quoteTOML(v)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	least, most := slices.MinFunc(r.values, policy.CompareDecimals), slices.MaxFunc(r.values, policy.CompareDecimals)
	c := "{ max = " + quoteTOML(most)
	if r.kind == facts.TypeNumber || strings.HasPrefix(least, "-") {
		c += ", min = " + quoteTOML(least)
	}
	if r.currency != "" {
		c += ", currency = " + quoteTOML(r.currency)
	}
	return c + " }"
}

func (c *callShape) lines(tools []string, workspace, client string, left, calls int) string {
	var open, args, all []string
	for _, name := range c.args {
		condition := c.on[name].condition()
		if condition == anyTextCondition {
			open = append(open, visible(name))
		}
		args = append(args, keyTOML(name)+" = "+condition)
	}
	for _, name := range tools {
		all = append(all, quoteTOML(name))
	}
	match := []string{
		"program = true", "tools = [" + strings.Join(all, ", ") + "]", "tool = " + quoteTOML(c.tool), "workspace = " + quoteTOML(workspace),
		"client = " + quoteTOML(client), "max_steps = " + strconv.Itoa(left), "max_calls = " + strconv.Itoa(calls),
	}
	if len(args) > 0 {
		match = append(match, "args = { "+strings.Join(args, ", ")+" }")
	}
	text := ""
	if len(open) > 0 {
		text = "# any text is allowed in " + strings.Join(open, ", ") + "\n"
	}
	return text + "[[rules]]\nmatch = { " + strings.Join(append(match, "other_args = false"), ", ") + " }\n" + `outcome = "allow"`
}
