package facts

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// The types of arguments.
const (
	TypeText       = "text"
	TypeNumber     = "number"
	TypeBool       = "bool"
	TypePath       = "path"
	TypeURL        = "url"
	TypeHost       = "host"
	TypeRecipients = "recipients"
	TypeAmount     = "amount"
	TypeTable      = "table"
	TypeCommand    = "command"
	TypeDiff       = "diff"
	TypeList       = "list"
	TypeJSON       = "json"
	TypeProgram    = "program"
)

// argTypes is the closed set of types, each with the code of what its values must be, and
// with their check.
var argTypes = [...]struct {
	name, code string
	fits       func(approval.Raw) bool
}{
	{TypeText, "is_text", isText},
	{TypeNumber, "is_number", func(v approval.Raw) bool { return v.Kind() == '0' }},
	{TypeBool, "is_bool", isBool},
	{TypePath, "is_path", textOrList(func(s string) bool { return s != "" && !strings.ContainsRune(s, 0) })},
	{TypeURL, "is_url", textOrList(isURL)},
	{TypeHost, "is_host", textOrList(isHost)},
	{TypeRecipients, "is_recipients", areRecipients},
	{TypeAmount, "is_amount", isAmount},
	{TypeTable, "is_table", textOrList(notEmpty)},
	{TypeCommand, "is_command", isCommand},
	{TypeDiff, "is_diff", isText},
	{TypeList, "is_list", isPlainList},
	{TypeJSON, "is_json", func(v approval.Raw) bool { return v.IsValid() }},
	{TypeProgram, "is_program", isText},
}

// ArgTypes lists the types that an argument can be declared as.
func ArgTypes() (names []string) {
	for _, t := range argTypes {
		names = append(names, t.name)
	}
	return names
}

// actionExec is the release-only action that asks for a command.
const actionExec = "exec_cmd"

// ReleaseArgs gives the types of arguments that a release-only request of this action
// usually has. They are for display only: such a request declares nothing.
func ReleaseArgs(actionType string) map[string]approval.Argument {
	types := map[string]string{}
	switch actionType {
	case actionExec:
		types = map[string]string{"argv": TypeCommand, "command": TypeCommand, "cmd": TypeCommand, "cwd": TypePath}
	case "http_request":
		types = map[string]string{"url": TypeURL, "method": TypeText, "headers": TypeJSON, "body": TypeText}
	case "write_file":
		types = map[string]string{"path": TypePath, "content": TypeText}
	case "send_message":
		types = map[string]string{"to": TypeRecipients, "recipients": TypeRecipients, "text": TypeText, "body": TypeText}
	}
	args := map[string]approval.Argument{}
	for name, t := range types {
		args[name] = approval.Argument{Type: t, Optional: true}
	}
	return args
}

// AgentArgs gives the types of the arguments of a call that the agent itself executes, and that no table declares so: those
// that the tool declares, and of the others what their names usually hold, if they do. A call is asked whatever they are.
func AgentArgs(t approval.Tool, data approval.Raw) map[string]approval.Argument {
	args := maps.Clone(t.Args)
	if args == nil {
		args = map[string]approval.Argument{}
	}
	fields := map[string]codec.Field{}
	for _, f := range codec.FirstFields(data) {
		fields[f.Name] = f
	}
	for name, f := range fields {
		if _, declared := args[name]; declared {
			continue
		}
		a, usual := agentArgs[name]
		if text, _ := f.Text(); a.Type == TypeCommand && strings.HasPrefix(strings.TrimSpace(text), "*** Begin Patch") {
			a.Type = TypeDiff
		}
		if _, there := fields[a.Writes]; a.Writes != "" && !there {
			a.Writes = ""
		}
		if _, there := fields[a.Replaces]; a.Replaces != "" && !there {
			a.Replaces = ""
		}
		a.Optional = true
		if usual && fits(a, f.Value) {
			args[name] = a
		}
	}
	return args
}

// agentArgs are names that agents commonly use.
var agentArgs = map[string]approval.Argument{
	"command": {Type: TypeCommand}, "url": {Type: TypeURL}, "cwd": {Type: TypePath}, "files": {Type: TypePath},
	"file_path": {Type: TypePath}, "notebook_path": {Type: TypePath}, "path": {Type: TypePath}, "dir_path": {Type: TypePath},
	"content": {Type: TypeText, Writes: "file_path"}, "old_string": {Type: TypeText}, "new_string": {Type: TypeText, Replaces: "old_string"},
}

func fits(a approval.Argument, v approval.Raw) bool {
	i := slices.IndexFunc(argTypes[:], func(t struct {
		name, code string
		fits       func(approval.Raw) bool
	},
	) bool {
		return t.name == a.Type
	})
	return i >= 0 && argTypes[i].fits(v)
}

// Arguments are those that a tool takes: the declared ones, else the names in its
// templates, as text.
func Arguments(t approval.Tool) map[string]approval.Argument {
	if t.Args != nil {
		return t.Args
	}
	args := map[string]approval.Argument{}
	for _, template := range Templates(t) {
		for _, name := range template.Names {
			args[name] = approval.Argument{Type: TypeText}
		}
	}
	return args
}

// CheckArgs says why data is not what the arguments declare: the zero Reason if it is. An
// optional argument may be absent or null.
func CheckArgs(args map[string]approval.Argument, data approval.Raw) approval.Reason {
	fields, err := codec.Fields(data)
	if err != nil {
		return approval.Because("argument_none", "detail", describe(args))
	}
	return checkFields(args, fields)
}

func checkFields(args map[string]approval.Argument, fields []codec.Field) approval.Reason {
	given := map[string]bool{}
	for _, f := range fields {
		if _, declared := args[f.Name]; !declared {
			near := Nearest(f.Name, slices.Sorted(maps.Keys(args)))
			return approval.Because("argument_undeclared", "name", clip(f.Name), "near", near, "detail", describe(args))
		}
		given[f.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if !given[name] && !args[name].Optional {
			code := typeOf(args[name]).code
			return approval.Because("argument_missing", "name", name, "why", code, "detail", describe(args))
		}
	}
	currencies := currencyArgs(args)
	for _, f := range fields {
		a, why := args[f.Name], ""
		switch t := typeOf(a); {
		case a.Optional && f.Value.Kind() == 'n':
		case !t.fits(f.Value):
			why = t.code
		case currencies[f.Name] && !isCurrency(f.Value):
			why = "is_currency"
		}
		if why != "" {
			return approval.Because("argument_type", "name", f.Name, "value", shortValue(f.Value), "why", why)
		}
	}
	return approval.Reason{}
}

// currencyArgs are the arguments that hold the currency of an amount.
func currencyArgs(args map[string]approval.Argument) map[string]bool {
	names := map[string]bool{}
	for _, a := range args {
		if a.Type == TypeAmount {
			names[a.Currency] = true
		}
	}
	return names
}

type argType = struct {
	name, code string
	fits       func(approval.Raw) bool
}

// typeOf is the type of an argument. One that no version knows fits nothing.
func typeOf(a approval.Argument) argType {
	for _, t := range argTypes {
		if t.name == a.Type || a.Type == "" && t.name == TypeText {
			return t
		}
	}
	return argType{a.Type, "is_unknown", func(approval.Raw) bool { return false }}
}

// describe lists arguments with their types: "to (recipients), dry_run (bool, optional)".
func describe(args map[string]approval.Argument) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(args)) {
		more := ""
		if args[name].Optional {
			more = ", optional"
		}
		list = append(list, name+" ("+typeOf(args[name]).name+more+")")
	}
	return strings.Join(list, ", ")
}

// maxShown is how much of a value, in characters, an error shows.
const maxShown = 60

// shortValue is the beginning of a value, a text as JSON: "true" is not true.
func shortValue(v approval.Raw) string {
	if s, ok := (codec.Field{Value: v}).Text(); ok {
		b, _ := json.Marshal(clip(s)) // s is valid UTF-8
		return string(b)
	}
	return clip(string(v))
}

func clip(s string) string {
	if utf8.RuneCountInString(s) <= maxShown {
		return s
	}
	return string([]rune(s[:min(len(s), maxShown*utf8.UTFMax)])[:maxShown]) + "…"
}

func isText(v approval.Raw) bool {
	_, ok := (codec.Field{Value: v}).Text()
	return ok
}

func isBool(v approval.Raw) bool { return v.Kind() == 't' || v.Kind() == 'f' }

// textOrList checks one text, or each of a list.
func textOrList(fits func(string) bool) func(approval.Raw) bool {
	return func(v approval.Raw) bool {
		if s, ok := (codec.Field{Value: v}).Text(); ok {
			return fits(s)
		}
		return isListOf(v, func(item approval.Raw) bool {
			s, ok := (codec.Field{Value: item}).Text()
			return ok && fits(s)
		})
	}
}

func isListOf(v approval.Raw, fits func(approval.Raw) bool) bool {
	items, err := codec.Items(v)
	return err == nil && !slices.ContainsFunc(items, func(item approval.Raw) bool { return !fits(item) })
}

func notEmpty(s string) bool { return strings.TrimSpace(s) != "" }

// areRecipients takes a text or a list that is not empty. A line break could begin another
// header of a mail.
func areRecipients(v approval.Raw) bool {
	items, _ := codec.Items(v)
	return (v.Kind() != '[' || len(items) > 0) && textOrList(func(s string) bool {
		return notEmpty(s) && !strings.ContainsFunc(s, isControl)
	})(v)
}

func isControl(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }

// isCurrency takes 2 to 10 ASCII letters and digits.
func isCurrency(v approval.Raw) bool {
	s, ok := (codec.Field{Value: v}).Text()
	return ok && len(s) >= 2 && len(s) <= 10 && only(s, "")
}

func isPlainList(v approval.Raw) bool {
	return isListOf(v, func(item approval.Raw) bool { return item.Kind() == '0' || isBool(item) || isText(item) })
}

// isCommand takes a line for a shell, or a list of words.
func isCommand(v approval.Raw) bool {
	if s, ok := (codec.Field{Value: v}).Text(); ok {
		return notEmpty(s)
	}
	items, _ := codec.Items(v)
	return len(items) > 0 && isListOf(v, func(item approval.Raw) bool {
		s, ok := (codec.Field{Value: item}).Text()
		return ok && !strings.ContainsRune(s, 0)
	})
}

// isAmount takes a decimal number without an exponent, as a number or as text.
func isAmount(v approval.Raw) bool {
	s, ok := (codec.Field{Value: v}).Text()
	if !ok && v.Kind() == '0' {
		s = string(v)
	}
	a := AmountOf(s)
	return a.Valid && !a.Exponent && !strings.HasPrefix(s, "+")
}

// isURL takes what every reader takes as the same http or https URL, without a user and
// without blanks.
func isURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil && u.Opaque == "" &&
		isHost(u.Host) && !strings.Contains(s, `\`) &&
		!strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || isControl(r) })
}

// isHost takes a name or an address, with or without a port.
func isHost(s string) bool {
	return s != "" && !strings.HasPrefix(s, ":") && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune(`/\@?#%"'<>|^{}`+"`", r)
	})
}
