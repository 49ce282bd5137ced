package facts

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// CheckArgv refuses a command line whose templates a request could use to choose the
// program, an option, or the text that an interpreter runs.
//
// Elements after the first may contain {field}, where field is a plain name (letters,
// digits, underscores): it is replaced by that argument of the request. A literal brace
// is written {{. A value stays inside one element and is never passed to a shell.
//
// An agent must not turn a value into an option: a value that starts with "-" is
// refused unless its element comes after a literal "--", or a literal "=" precedes
// it in the same element, as in --text={text}. For the same reason CheckArgv refuses
// elements where the value names the option, such as -{x} or --{x}, and elements
// that are program text: those after -c or -e of a shell or another interpreter.
func CheckArgv(argv []string) error {
	if err := checkProgram(argv[0]); err != nil {
		return err
	}
	afterDashes := false
	for i, element := range argv {
		parts, err := parse(element)
		if err != nil {
			return fmt.Errorf("argv[%d]: %w", i, err)
		}
		if !isLiteral(parts) {
			if err := checkPlace(argv, i, parts, afterDashes); err != nil {
				return fmt.Errorf("argv[%d] %q: %w", i, element, err)
			}
		}
		afterDashes = afterDashes || element == "--"
	}
	return nil
}

func checkProgram(name string) error {
	switch {
	case name == "":
		return errors.New("argv[0] is empty")
	case strings.Contains(name, "/") && !path.IsAbs(name):
		return fmt.Errorf("argv[0] %q: write an absolute path, or a name that is in PATH", name)
	}
	return nil
}

// checkPlace refuses placeholders where a value could be harmful.
func checkPlace(argv []string, i int, parts []approval.Part, afterDashes bool) error {
	first := parts[0].Text // "" when the element begins with a placeholder
	switch {
	case i == 0:
		return errors.New("the program itself must not come from the request")
	case isProgramText(argv, i):
		return errors.New(`a value here would be program text; pass it as an argument, as in: sh -c 'echo "$1"' sh {text}`)
	case afterDashes:
		return nil
	case first == "-", strings.HasPrefix(first, "--") && !strings.Contains(first, "="):
		return errors.New("the request could choose the option; write --option={field}")
	}
	return nil
}

// isProgramText says whether argv[i] is the text that an interpreter runs.
func isProgramText(argv []string, i int) bool {
	own, _, _ := strings.Cut(argv[i], "{") // perl takes -eTEXT, node --eval=TEXT
	if !takesProgram(argv[i-1]) && !takesProgram(strings.TrimSuffix(own, "=")) {
		return false
	}
	for _, a := range argv[:i] {
		if isInterpreter(path.Base(a)) {
			return true
		}
	}
	return false
}

// takesProgram says whether an interpreter may run the text after flag. Short flags
// can be combined, as in bash -lc.
func takesProgram(flag string) bool {
	if strings.HasPrefix(flag, "--") {
		return flag == "--eval" || flag == "--command" || flag == "--print" || flag == "--exec"
	}
	return strings.HasPrefix(flag, "-") && strings.ContainsAny(flag, "ceErRp")
}

func isInterpreter(name string) bool {
	switch strings.TrimRight(name, "0123456789.") {
	case "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "busybox", "su",
		"python", "perl", "ruby", "node", "nodejs", "php", "lua", "deno", "bun":
		return true
	}
	return false
}

var errBrace = errors.New("a placeholder must be {field}, with letters, digits and _ only; write {{ for a literal brace")

// parse splits one element of argv, or a URL, into the operator's text and arguments
// without a value yet.
func parse(element string) ([]approval.Part, error) {
	if strings.ContainsRune(element, 0) {
		return nil, errors.New("contains a NUL byte")
	}
	var parts []approval.Part
	var text strings.Builder
	for element != "" {
		before, rest, found := strings.Cut(element, "{")
		text.WriteString(before)
		if !found {
			break
		}
		if after, ok := strings.CutPrefix(rest, "{"); ok {
			text.WriteByte('{')
			element = after
			continue
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || !plainName(name) {
			return nil, errBrace
		}
		if text.Len() > 0 {
			parts = append(parts, approval.Part{Text: text.String()})
			text.Reset()
		}
		parts = append(parts, approval.Part{Arg: name})
		element = after
	}
	if text.Len() > 0 || len(parts) == 0 {
		parts = append(parts, approval.Part{Text: text.String()})
	}
	return parts, nil
}

func isLiteral(parts []approval.Part) bool { return len(parts) == 1 && parts[0].Arg == "" }

// parseText splits a template in which braces without a plain name are text: JSON, a
// summary, a target.
func parseText(template string) []approval.Part {
	var parts []approval.Part
	text := 0 // start of the operator's text
	for at := 0; at < len(template); {
		name, _, closed := strings.Cut(template[at+1:], "}")
		if template[at] != '{' || !closed || !plainName(name) {
			at++
			continue
		}
		if at > text {
			parts = append(parts, approval.Part{Text: template[text:at]})
		}
		parts = append(parts, approval.Part{Arg: name})
		at += len(name) + len("{}")
		text = at
	}
	if text < len(template) {
		parts = append(parts, approval.Part{Text: template[text:]})
	}
	return parts
}

func plainName(s string) bool {
	for _, r := range s {
		if r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	return s != ""
}

// NamesIn lists the arguments that a text names as {name}.
func NamesIn(template string) []string { return namesOf(parseText(template)) }

func namesOf(parts []approval.Part) (names []string) {
	for _, p := range parts {
		if p.Arg != "" {
			names = append(names, p.Arg)
		}
	}
	return names
}

// Template is a setting of a tool whose text names arguments.
type Template struct {
	Key   string // as in the configuration: "summary", "handler.argv"
	Names []string
}

// Templates lists the templates of a tool that name arguments.
func Templates(t approval.Tool) (all []Template) {
	put := func(key string, names []string) {
		if len(names) > 0 {
			all = append(all, Template{key, names})
		}
	}
	put("summary", NamesIn(t.Summary))
	put("target", NamesIn(t.Target))
	for _, verb := range t.Verb {
		put("verb", NamesIn(verb))
	}
	if t.Handler.Kind == approval.HandlerMCP {
		return all // its server does not depend on a request
	}
	for _, element := range t.Handler.Argv {
		parts, _ := parse(element) // CheckArgv reports its errors
		put("handler.argv", namesOf(parts))
	}
	parts, _ := parse(t.Handler.HTTP.URL)
	put("handler.url", namesOf(parts))
	put("handler.body", NamesIn(t.Handler.HTTP.Body))
	return all
}

// filler puts the arguments of one request into templates.
type filler struct{ fields map[string]codec.Field }

// argv fills a command line. The number and order of elements stay the same.
func (f filler) argv(argv []string) ([][]approval.Part, approval.Reason) {
	out := make([][]approval.Part, 0, len(argv))
	afterDashes := false
	for _, element := range argv {
		parts, err := parse(element)
		if err != nil {
			return nil, badTemplate(err)
		}
		filled, why := f.element(parts, afterDashes)
		if !why.IsZero() {
			return nil, why
		}
		out = append(out, filled)
		afterDashes = afterDashes || element == "--"
	}
	return out, approval.Reason{}
}

func (f filler) element(parts []approval.Part, afterDashes bool) ([]approval.Part, approval.Reason) {
	safe := afterDashes // whether a leading dash is harmless here
	for i, p := range parts {
		if p.Arg == "" {
			safe = safe || strings.Contains(p.Text, "=")
			continue
		}
		v, why := f.value(p.Arg)
		if !why.IsZero() {
			return nil, why
		}
		if !safe && strings.HasPrefix(v, "-") {
			return nil, f.unfit(p.Arg, "fit_option")
		}
		parts[i].Text = v
	}
	// After an empty value a literal dash may come first, as in {a}-{b}.
	if !afterDashes && parts[0].Arg != "" && strings.HasPrefix(Join(parts), "-") {
		return nil, f.unfit(parts[0].Arg, "fit_dash")
	}
	return parts, approval.Reason{}
}

// value is the text of one argument.
func (f filler) value(name string) (string, approval.Reason) {
	field, ok := f.fields[name]
	if !ok {
		return "", f.unfit(name, "fit_missing")
	}
	v, isText := field.Text()
	if !isText {
		switch field.Value.Kind() {
		case '0', 't', 'f':
			v = string(field.Value)
		default:
			return "", f.unfit(name, "fit_plain")
		}
	}
	if strings.ContainsRune(v, 0) {
		return "", f.unfit(name, "fit_nul")
	}
	return v, approval.Reason{}
}

// unfit says why an argument does not fit into its template.
func (f filler) unfit(name, why string) approval.Reason {
	return approval.Because("argument_unfillable", "name", name, "value", shortValue(f.fields[name].Value), "why", why)
}

// badTemplate is the reason of a template that the configuration should have refused.
func badTemplate(err error) approval.Reason {
	return approval.Because("cannot_run", "problem", err.Error())
}

// Join returns the text of parts as it runs.
func Join(parts []approval.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}
