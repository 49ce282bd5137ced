package exec

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// Check refuses a handler that could not run, or not safely, so that the
// configuration is refused before an approver is asked.
//
// Elements of argv after the first may contain {field}, where field is a plain
// name (letters, digits, underscores): it is replaced by that argument of the
// request. A literal brace is written {{. A value stays inside one element and is
// never passed to a shell. Strings are used verbatim, numbers and booleans as
// their JSON text. A missing argument, null, an array, an object, or a NUL byte is
// refused.
//
// An agent must not turn a value into an option: a value that starts with "-" is
// refused unless its element comes after a literal "--", or a literal "=" precedes
// it in the same element, as in --text={text}. For the same reason Check refuses
// elements where the value names the option, such as -{x} or --{x}, and elements
// that are program text: those after -c or -e of a shell or another interpreter.
//
// For HTTP requests see the package comment. An error about one of their settings
// is a *keyError.
func Check(h approval.Handler) error {
	switch {
	case h.Timeout < 0 || h.MaxOutput < 0:
		return errors.New("timeout and max_output must not be negative")
	case h.Kind == "" || h.Kind == approval.HandlerNone:
		if len(h.Argv) > 0 {
			return errors.New(`argv without kind = "command"`)
		}
		return checkNoHTTP(h)
	case h.Kind == approval.HandlerHTTP:
		if len(h.Argv) > 0 || len(h.Env) > 0 || h.Dir != "" {
			return errors.New(`argv, dir and env belong to kind = "command"`)
		}
		return checkHTTP(h.HTTP)
	case h.Kind != approval.HandlerCommand:
		return fmt.Errorf("unknown handler kind %q", h.Kind)
	case len(h.Argv) == 0:
		return errors.New("argv is empty")
	case h.Dir != "" && !path.IsAbs(h.Dir):
		return fmt.Errorf("dir %q is not an absolute path", h.Dir)
	}
	if err := checkNoHTTP(h); err != nil {
		return err
	}
	for _, name := range h.Env {
		if err := checkEnvName(name); err != nil {
			return err
		}
	}
	return checkArgv(h.Argv)
}

func checkNoHTTP(h approval.Handler) error {
	if h.HTTP.URL != "" || h.HTTP.Method != "" {
		return errors.New(`method and url without kind = "http"`)
	}
	return nil
}

func checkArgv(argv []string) error {
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
func checkPlace(argv []string, i int, parts []part, afterDashes bool) error {
	first := parts[0].text // "" when the element begins with a placeholder
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

// part is literal text or a placeholder.
type part struct{ text, field string }

var errBrace = errors.New("a placeholder must be {field}, with letters, digits and _ only; write {{ for a literal brace")

// parse splits one element of argv into parts.
func parse(element string) ([]part, error) {
	if strings.ContainsRune(element, 0) {
		return nil, errors.New("contains a NUL byte")
	}
	var parts []part
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
		if !closed || !fieldPattern().MatchString(name) {
			return nil, errBrace
		}
		if text.Len() > 0 {
			parts = append(parts, part{text: text.String()})
			text.Reset()
		}
		parts = append(parts, part{field: name})
		element = after
	}
	if text.Len() > 0 || len(parts) == 0 {
		parts = append(parts, part{text: text.String()})
	}
	return parts, nil
}

func isLiteral(parts []part) bool { return len(parts) == 1 && parts[0].field == "" }

var fieldPattern = pattern(`^[A-Za-z0-9_]+$`)

// expandArgv puts the request's arguments into argv. The number and order of
// elements stay the same.
func expandArgv(argv []string, args []byte) ([]string, error) {
	var fields map[string]codec.Field
	out := make([]string, 0, len(argv))
	afterDashes := false
	for _, element := range argv {
		parts, err := parse(element)
		if err != nil {
			return nil, err
		}
		if !isLiteral(parts) && fields == nil {
			if fields, err = fieldsOf(args); err != nil {
				return nil, err
			}
		}
		expanded, err := expand(parts, fields, afterDashes)
		if err != nil {
			return nil, err
		}
		out = append(out, expanded)
		afterDashes = afterDashes || element == "--"
	}
	return out, nil
}

func fieldsOf(args []byte) (map[string]codec.Field, error) {
	if !isObject(bytes.TrimSpace(args)) {
		return nil, errors.New("the arguments are not a JSON object")
	}
	list, err := codec.Fields(args)
	if err != nil {
		return nil, fmt.Errorf("read arguments: %w", err)
	}
	fields := make(map[string]codec.Field, len(list))
	for _, f := range list {
		fields[f.Name] = f
	}
	return fields, nil
}

func expand(parts []part, fields map[string]codec.Field, afterDashes bool) (string, error) {
	var b strings.Builder
	safe := afterDashes // whether a leading dash is harmless here
	for _, p := range parts {
		if p.field == "" {
			b.WriteString(p.text)
			safe = safe || strings.Contains(p.text, "=")
			continue
		}
		v, err := value(p.field, fields)
		if err != nil {
			return "", err
		}
		if !safe && strings.HasPrefix(v, "-") {
			return "", fmt.Errorf("argument %q starts with \"-\" and could be taken for an option", p.field)
		}
		b.WriteString(v)
	}
	// After an empty value a literal dash may come first, as in {a}-{b}.
	if !afterDashes && parts[0].field != "" && strings.HasPrefix(b.String(), "-") {
		return "", fmt.Errorf("argument %q leaves an element that starts with \"-\"", parts[0].field)
	}
	return b.String(), nil
}

// value is the text of one argument.
func value(name string, fields map[string]codec.Field) (string, error) {
	f, ok := fields[name]
	if !ok {
		return "", fmt.Errorf("argument %q is missing", name)
	}
	v, isText := f.Text()
	if !isText {
		switch f.Value.Kind() {
		case '0', 't', 'f':
			v = string(f.Value)
		default:
			return "", fmt.Errorf("argument %q is not text, a number or a boolean", name)
		}
	}
	if strings.ContainsRune(v, 0) {
		return "", fmt.Errorf("argument %q contains a NUL byte", name)
	}
	return v, nil
}
