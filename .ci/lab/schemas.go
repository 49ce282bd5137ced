package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// fixtures has the events of the golden tests, and the answers to them in answers.
const fixtures = "testdata/hook"

// schema is JSON Schema, as the package has it, or as its program's code has it.
type schema = map[string]any

// forms are the schemas of an agent: of an event, of an answer to it, and of the arguments of a tool; nil: the package
// has none.
type forms struct {
	event, answer, arguments func(name string) (schema, error)
}

var formsOf = map[string]func(l *lab) (forms, error){"claude-code": claudeForms, "codex": codexForms, "gemini": geminiForms}

// schemas validates the golden events and answers of each agent against the schemas in its package.
func (l *lab) schemas(now *report) {
	now.Schemas = map[string]map[string]string{}
	for _, agent := range slices.Sorted(maps.Keys(formsOf)) {
		version := now.Versions[agent]
		if version == "" {
			continue
		}
		f, err := formsOf[agent](l)
		if err != nil {
			now.Schemas[agent] = map[string]string{"schemas": err.Error()}
			continue
		}
		now.Schemas[agent] = f.validate(agent)
		for _, name := range slices.Sorted(maps.Keys(now.Schemas[agent])) {
			fmt.Printf("lab: %-14s %-22s %s\n", now.Schemas[agent][name], agent+" "+version, name)
		}
	}
}

// validate is, by the file, "valid" and its digest, or what is wrong with it. A golden answer without output has no file.
func (f forms) validate(agent string) map[string]string {
	results := map[string]string{}
	events, _ := filepath.Glob(filepath.Join(fixtures, agent+"-*.json"))
	for _, file := range events {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		event, b, err := readEvent(file)
		if f.event != nil || err != nil {
			results[name] = result(b, err, func() error { return f.validEvent(event, b) })
		}
		if strings.HasSuffix(name, "-after") {
			continue
		}
		answers, _ := filepath.Glob(filepath.Join(fixtures, "answers", name+".*.json"))
		for _, answer := range answers {
			b, err := os.ReadFile(answer)
			results[strings.TrimSuffix(filepath.Base(answer), ".json")] = result(b, err, func() error {
				return f.validAnswer(event.Name, b)
			})
		}
	}
	return results
}

func result(file []byte, err error, check func() error) string {
	if err == nil {
		err = check()
	}
	if err != nil {
		return strings.Join(strings.Fields(err.Error()), " ")
	}
	digest := sha256.Sum256(file)
	return "valid " + hex.EncodeToString(digest[:4])
}

type event struct {
	Name  string          `json:"hook_event_name"`
	Tool  string          `json:"tool_name"`
	Input json.RawMessage `json:"tool_input"`
}

func readEvent(file string) (e event, b []byte, err error) {
	if b, err = os.ReadFile(file); err != nil {
		return e, nil, err
	}
	return e, b, json.Unmarshal(b, &e)
}

func (f forms) validEvent(e event, b []byte) error {
	err := check(f.event, e.Name, b)
	if f.arguments != nil {
		err = errors.Join(err, check(f.arguments, e.Tool, e.Input))
	}
	return err
}

// validAnswer also proves that the schema refuses a member that it does not know: that of an earlier version would.
func (f forms) validAnswer(event string, b []byte) error {
	if err := check(f.answer, event, b); err != nil {
		return err
	}
	at := max(1, bytes.Index(b, []byte(`"hookEventName"`)))
	if check(f.answer, event, slices.Concat(b[:at], []byte(`"fromTomorrow":1,`), b[at:])) == nil {
		return errors.New("the schema refuses nothing")
	}
	return nil
}

func check(find func(string) (schema, error), name string, doc []byte) error {
	s, err := find(name)
	if err != nil {
		return err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("form:///form.json", s); err != nil {
		return err
	}
	compiled, err := c.Compile("form:///form.json")
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return err
	}
	return compiled.Validate(value)
}

// binary maps the largest file of a pattern below node_modules.
func (l *lab) binary(pattern string) ([]byte, error) {
	names, err := filepath.Glob(filepath.Join(l.folder, "node_modules", pattern))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("%s is not installed", pattern)
	}
	f, err := os.Open(names[0])
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
}

// codexForms are whole schemas in Codex's program, each with the title EVENT.command.input or EVENT.command.output.
func codexForms(l *lab) (forms, error) {
	program, err := l.binary("@openai/codex-*/vendor/*/bin/codex")
	if err != nil {
		return forms{}, err
	}
	find := func(kind string) func(string) (schema, error) {
		return func(event string) (schema, error) {
			title := hyphens(event) + ".command." + kind
			end := bytes.Index(program, []byte(`"title": "`+title+`"`))
			if end < 0 {
				return nil, fmt.Errorf("the program has no schema %s", title)
			}
			begin := bytes.LastIndex(program[:end], []byte("{\n  \"$schema\""))
			if begin < 0 {
				return nil, fmt.Errorf("the schema %s has no beginning", title)
			}
			var s schema
			err := json.NewDecoder(bytes.NewReader(program[begin:min(len(program), begin+1<<20)])).Decode(&s)
			if err == nil && s["title"] != title {
				err = fmt.Errorf("the schema before %s is %v", title, s["title"])
			}
			return s, err
		}
	}
	return forms{event: find("input"), answer: find("output")}, nil
}

// hyphens is pre-tool-use of PreToolUse.
func hyphens(name string) string {
	return strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(name, "$1-$2"))
}

// claudeForms come from the code in Claude Code's program that checks a hook's answer, and from the types of its tools.
func claudeForms(l *lab) (forms, error) {
	program, err := l.binary("@anthropic-ai/claude-code-*/claude")
	if err != nil {
		return forms{}, err
	}
	tools, err := os.ReadFile(filepath.Join(l.folder, "node_modules/@anthropic-ai/claude-code/sdk-tools.d.ts"))
	if err != nil {
		return forms{}, err
	}
	code := checks{program}
	return forms{
		event: func(name string) (schema, error) { // the members that all events have are elsewhere in it
			s, err := code.object("hook_event_name", name)
			delete(s, "additionalProperties")
			return s, err
		},
		answer: func(name string) (schema, error) {
			s, err := code.object("hookEventName", name)
			return closed(schema{"hookSpecificOutput": s}, "hookSpecificOutput"), err
		},
		arguments: func(tool string) (schema, error) {
			names := map[string]string{"Write": "FileWriteInput", "Bash": "BashInput"}
			return typed(tools, names[tool])
		},
	}, nil
}

func closed(properties schema, required ...any) schema {
	return schema{"type": "object", "additionalProperties": false, "properties": properties, "required": slices.Concat([]any{}, required)}
}

// typed is the schema of an interface in a file of types.
func typed(types []byte, name string) (schema, error) {
	_, rest, ok := strings.Cut(string(types), "export interface "+name+" {\n")
	body, _, ok2 := strings.Cut(rest, "\n}\n")
	if !ok || !ok2 {
		return nil, fmt.Errorf("there is no type %q", name)
	}
	properties, required := schema{}, []any{}
	for _, m := range regexp.MustCompile(`(?m)^  (\w+)(\??): (string|number|boolean)?`).FindAllStringSubmatch(body, -1) {
		properties[m[1]] = schema{}
		if m[3] != "" {
			properties[m[1]] = schema{"type": m[3]}
		}
		if m[2] == "" {
			required = append(required, m[1])
		}
	}
	return closed(properties, required...), nil
}

// checks is code that builds schemas from objects of calls, with names that differ in each version:
// a({name:b("one text"),name:c(["one","of","these"]).optional(),name:d([a({...}),a({...})])}).
type checks struct{ code []byte }

var (
	oneText    = regexp.MustCompile(`^[\w$]+\("([^"\\]*)"\)`)
	oneOf      = regexp.MustCompile(`^[\w$]+\((\[(?:"[^"\\]*",?)+\])\)`)
	objects    = regexp.MustCompile(`^[\w$]+\(\[[\w$]+\(\{`)
	shared     = regexp.MustCompile(`^([\w$]+)\(\)`)
	optional   = regexp.MustCompile(`\.(optional|catch)\(`)
	objectHead = regexp.MustCompile(`[\w$]+\(\{`)
)

// object is the schema of the object whose first member is this name, for one text.
func (c checks) object(name, text string) (schema, error) {
	for at, rest := 0, c.code; ; {
		i := bytes.Index(rest, []byte(name+":"))
		if i < 0 {
			return nil, fmt.Errorf("the program has no check of %s %s", name, text)
		}
		at, rest = at+i, rest[i:]
		value := oneText.FindSubmatch(rest[len(name)+1 : min(len(rest), 200)])
		if value != nil && string(value[1]) == text {
			near := checks{c.code[max(0, at-nearby):min(len(c.code), at+nearby)]}
			return near.members(rest[:min(len(rest), nearby)]), nil
		}
		at, rest = at+1, rest[1:]
	}
}

// nearby is where the code has what its objects share, in bytes before and behind.
const nearby = 256 << 10

// members are those of an object, up to its end.
func (c checks) members(code []byte) schema {
	properties, required := schema{}, []any{}
	for {
		colon := bytes.IndexByte(code, ':')
		if colon < 0 {
			break
		}
		n := valueEnd(code[colon+1:])
		name, value := string(code[:colon]), code[colon+1:colon+1+n]
		properties[name] = c.value(value)
		if !optional.Match(value) {
			required = append(required, name)
		}
		if code = code[colon+1+n:]; len(code) == 0 || code[0] != ',' {
			break
		}
		code = code[1:]
	}
	return closed(properties, required...)
}

func (c checks) value(code []byte) schema {
	if m := oneText.FindSubmatch(code); m != nil {
		return schema{"const": string(m[1])}
	}
	if m := oneOf.FindSubmatch(code); m != nil {
		return enum(m[1])
	}
	if objects.Match(code) {
		var forms []any
		for _, at := range objectHead.FindAllIndex(code, -1) {
			forms = append(forms, c.members(code[at[1]:]))
		}
		return schema{"anyOf": forms}
	}
	if m := shared.FindSubmatch(code); m != nil {
		list := regexp.MustCompile(`\b` + regexp.QuoteMeta(string(m[1])) + `=[\w$]+\(\(\)=>[\w$]+\((\[(?:"[^"\\]*",?)+\])\)`)
		if m := list.FindSubmatch(c.code); m != nil {
			return enum(m[1])
		}
	}
	return schema{}
}

func enum(list []byte) schema {
	var texts []any
	if err := json.Unmarshal(list, &texts); err != nil {
		return schema{}
	}
	return schema{"enum": texts}
}

// valueEnd is the length of an expression, up to the comma or bracket behind it.
func valueEnd(code []byte) int {
	depth := 0
	for i := 0; i < len(code); i++ {
		switch b := code[i]; b {
		case '"', '\'', '`':
			for i++; i < len(code) && code[i] != b; i++ {
				if code[i] == '\\' {
					i++
				}
			}
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth == 0 {
				return i
			}
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return len(code)
}

// geminiForms come from the class in Gemini CLI's bundle that reads a hook's answer: the members that it takes, those that
// it looks for in hookSpecificOutput, and the decisions that are no allow.
func geminiForms(l *lab) (forms, error) {
	bundle, err := l.containing("@google/gemini-cli/bundle/chunk-*.js", "var BeforeToolHookOutput = class")
	if err != nil {
		return forms{}, err
	}
	_, base, _ := strings.Cut(bundle, "var DefaultHookOutput = class")
	base, rest, ok := strings.Cut(base, "var BeforeToolHookOutput = class")
	before, _, ok2 := strings.Cut(rest, "\n};")
	if !ok || !ok2 {
		return forms{}, errors.New("the classes of a hook's output have another form")
	}
	answer, specific, no := schema{}, schema{}, []any{}
	for _, m := range regexp.MustCompile(`this\.(\w+) = data\.(\w+)`).FindAllStringSubmatch(base, -1) {
		answer[m[1]] = schema{}
	}
	for _, m := range regexp.MustCompile(`"(\w+)" in this\.hookSpecificOutput`).FindAllStringSubmatch(base+before, -1) {
		specific[m[1]] = schema{}
	}
	for _, m := range regexp.MustCompile(`this\.decision === "(\w+)"`).FindAllStringSubmatch(base, -1) {
		no = append(no, m[1])
	}
	if answer["decision"] == nil || specific["tool_input"] == nil || len(no) == 0 {
		return forms{}, errors.New("the class of a hook's output has another form")
	}
	answer["decision"] = schema{"type": "string", "not": schema{"enum": no}}
	specific["tool_input"] = schema{"type": "object"}
	answer["hookSpecificOutput"] = closed(specific)
	return forms{answer: func(string) (schema, error) { return closed(answer, "decision"), nil }}, nil
}

// containing is the first file of a pattern below node_modules that has a text.
func (l *lab) containing(pattern, text string) (string, error) {
	names, err := filepath.Glob(filepath.Join(l.folder, "node_modules", pattern))
	if err != nil {
		return "", err
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		if bytes.Contains(b, []byte(text)) {
			return string(b), nil
		}
	}
	return "", fmt.Errorf("no file %s has %s", pattern, text)
}
