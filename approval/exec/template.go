package exec

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// Check refuses a handler that could not run, or could not run safely, so that
// the configuration can say so before anyone is asked.
//
// Elements of argv behind the first may hold {field}, where field is a plain
// name (letters, digits, underscores): it is replaced by that argument of the
// request. A literal brace is written {{. A value is used as it is, inside one
// element; it never becomes two elements and never meets a shell. Strings are
// taken as they are, numbers and booleans as their JSON text. A missing
// argument, null, an array, an object, or a NUL byte is refused.
//
// An agent must not turn a value into an option: a value that starts with "-"
// is refused unless its element stands behind a literal "--", or a literal "="
// stands before it in the same element, as in --text={text}. For the same
// reason Check refuses elements that let the value name the option, such as
// -{x} or --{x}, and elements that are program text: what stands behind -c or
// -e of a shell or another interpreter.
//
// What a request over HTTP may take from the arguments, the package comment
// says. An error about one of its settings is a *KeyError.
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
		return fmt.Errorf("unknown kind of handler %q", h.Kind)
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
	behind := false
	for i, element := range argv {
		parts, err := parse(element)
		if err != nil {
			return fmt.Errorf("argv[%d]: %w", i, err)
		}
		if !plain(parts) {
			if err := checkPlace(argv, i, parts, behind); err != nil {
				return fmt.Errorf("argv[%d] %q: %w", i, element, err)
			}
		}
		behind = behind || element == "--"
	}
	return nil
}

func checkProgram(name string) error {
	switch {
	case name == "":
		return errors.New("argv[0] is empty")
	case strings.Contains(name, "/") && !path.IsAbs(name):
		return fmt.Errorf("argv[0] %q: write an absolute path, or a name to be found in PATH", name)
	}
	return nil
}

// checkPlace refuses placeholders where no value could be harmless.
func checkPlace(argv []string, i int, parts []part, behind bool) error {
	first := parts[0].text // "" when the element begins with a placeholder
	switch {
	case i == 0:
		return errors.New("the program itself cannot come from the request")
	case isProgramText(argv, i):
		return errors.New(`a value here would be program text; pass it behind, as in: sh -c 'echo "$1"' sh {text}`)
	case behind:
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

// takesProgram says whether an interpreter may take what follows flag as its
// program. Short flags come in bundles, as in bash -lc.
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

// part is a stretch of literal text, or a placeholder.
type part struct{ text, field string }

var errBrace = errors.New("a placeholder is {field}, with a plain name; write {{ for a literal brace")

// parse takes one element of argv apart.
func parse(element string) ([]part, error) {
	if strings.ContainsRune(element, 0) {
		return nil, errors.New("holds a NUL byte")
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
		if !closed || !plainName(name) {
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

func plain(parts []part) bool { return len(parts) == 1 && parts[0].field == "" }

func plainName(s string) bool {
	for _, r := range s {
		if r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	return s != ""
}

// expandArgv puts the request's arguments into argv. Elements keep their
// number and their places.
func expandArgv(argv []string, args []byte) ([]string, error) {
	var fields map[string]approval.Field
	out := make([]string, 0, len(argv))
	behind := false
	for _, element := range argv {
		parts, err := parse(element)
		if err != nil {
			return nil, err
		}
		if !plain(parts) && fields == nil {
			if fields, err = fieldsOf(args); err != nil {
				return nil, err
			}
		}
		expanded, err := expand(parts, fields, behind)
		if err != nil {
			return nil, err
		}
		out = append(out, expanded)
		behind = behind || element == "--"
	}
	return out, nil
}

func fieldsOf(args []byte) (map[string]approval.Field, error) {
	if !isObject(bytes.TrimSpace(args)) {
		return nil, errors.New("the arguments are not a JSON object")
	}
	list, err := approval.Fields(args)
	if err != nil {
		return nil, fmt.Errorf("read arguments: %w", err)
	}
	fields := make(map[string]approval.Field, len(list))
	for _, f := range list {
		fields[f.Name] = f
	}
	return fields, nil
}

func expand(parts []part, fields map[string]approval.Field, behind bool) (string, error) {
	var b strings.Builder
	safe := behind // whether a leading dash can do no harm here
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
	// An empty value may have left a dash of ours in front, as in {a}-{b}.
	if !behind && parts[0].field != "" && strings.HasPrefix(b.String(), "-") {
		return "", fmt.Errorf("argument %q leaves an element that starts with \"-\"", parts[0].field)
	}
	return b.String(), nil
}

// value is the text of one argument, if it has one.
func value(name string, fields map[string]approval.Field) (string, error) {
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
			return "", fmt.Errorf("argument %q is no text, number or boolean", name)
		}
	}
	if strings.ContainsRune(v, 0) {
		return "", fmt.Errorf("argument %q holds a NUL byte", name)
	}
	return v, nil
}
