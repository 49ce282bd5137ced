package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// What a schema may cost. One that costs more, or whose references are circular or lead elsewhere, leaves arguments
// unchecked: they are asked about anyway.
const (
	maxSchema      = 256 << 10 // bytes
	maxSchemaDepth = 64
	maxWeight      = 10_000    // schemas that apply to one value
	maxWork        = 2_000_000 // those, for all values of the arguments
	maxNumber      = 40        // digits; a number's exponent may have two
	maxFault       = 1000      // bytes of an error's text
	maxCompiled    = 256       // schemas that are kept
)

var errUnusable = errors.New("the schema cannot be used")

// schemas keeps compiled ones, by their bytes.
type schemas struct {
	mu   sync.Mutex
	kept map[string]*compiled
}

type compiled struct {
	schema *jsonschema.Schema // nil: cannot be used
	weight int
}

// check says what is wrong with the arguments, nil where nothing is known to be wrong.
func (s *schemas) check(schema, arguments approval.Raw) (fault error) {
	if len(schema) == 0 {
		return nil
	}
	key := approval.Digest(schema)
	s.mu.Lock()
	c := s.kept[key]
	s.mu.Unlock()
	if c == nil {
		c = &compiled{}
		c.schema, c.weight, _ = compile(schema) // an error is a schema that cannot be used
		s.mu.Lock()
		if s.kept == nil || len(s.kept) >= maxCompiled {
			s.kept = map[string]*compiled{}
		}
		s.kept[key] = c
		s.mu.Unlock()
	}
	values, err := measure(arguments, codec.MaxDepth)
	if c.schema == nil || err != nil || values*c.weight > maxWork {
		return nil
	}
	defer func() {
		if recover() != nil {
			fault = nil // of the library: unchecked
		}
	}()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(arguments))
	if err != nil {
		return err
	}
	if err := c.schema.Validate(value); err != nil {
		text := strings.ReplaceAll(err.Error(), "file:///schema#", "#")
		return errors.New(strings.ToValidUTF8(text[:min(len(text), maxFault)], ""))
	}
	return nil
}

func compile(schema approval.Raw) (_ *jsonschema.Schema, weight int, err error) {
	defer func() {
		if recover() != nil {
			err = errUnusable
		}
	}()
	if len(schema) > maxSchema {
		return nil, 0, errUnusable
	}
	if _, err := measure(schema, maxSchemaDepth); err != nil {
		return nil, 0, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, 0, err
	}
	w := weigher{root: doc, known: map[string]int{}, under: map[string]bool{}}
	weight, err = w.of(doc, true)
	if err != nil {
		return nil, 0, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	const here = "file:///schema"
	if err := c.AddResource(here, doc); err != nil {
		return nil, 0, err
	}
	s, err := c.Compile(here)
	return s, weight, err
}

// noLoader loads nothing: a schema of a server must not make this program read a file or ask a host.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errUnusable }

// weigher counts the schemas that can apply to one value: every object and array below, and what they refer to.
type weigher struct {
	root  any
	known map[string]int // by reference
	under map[string]bool
}

func (w *weigher) of(v any, root bool) (int, error) {
	sum := 1
	add := func(n int, err error) error {
		if sum += n; sum > maxWeight {
			return errUnusable
		}
		return err
	}
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			text, isText := member.(string)
			switch {
			case name == "$dynamicRef", name == "$recursiveRef", name == "$id" && isText && !root:
				return 0, errUnusable // what they lead to depends on more than the place
			case name == "$ref" && isText:
				if err := add(w.ofRef(text)); err != nil {
					return 0, err
				}
			}
			if err := add(w.of(member, false)); err != nil {
				return 0, err
			}
		}
	case []any:
		for _, item := range v {
			if err := add(w.of(item, false)); err != nil {
				return 0, err
			}
		}
	}
	return sum, nil
}

func (w *weigher) ofRef(ref string) (int, error) {
	if n, ok := w.known[ref]; ok {
		return n, nil
	}
	target, found := w.root, ref == "#"
	if at, is := strings.CutPrefix(ref, "#/"); is {
		target, found = lookUp(w.root, strings.Split(at, "/"))
	}
	if w.under[ref] || !found {
		return 0, errUnusable // circular, or elsewhere
	}
	w.under[ref] = true
	n, err := w.of(target, false)
	delete(w.under, ref)
	if err == nil {
		w.known[ref] = n
	}
	return n, err
}

// lookUp follows a JSON pointer.
func lookUp(v any, path []string) (any, bool) {
	for _, part := range path {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch at := v.(type) {
		case map[string]any:
			member, has := at[part]
			if !has {
				return nil, false
			}
			v = member
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// measure counts the values of a JSON text, and refuses numbers that cost more to compute with than to read.
func measure(b approval.Raw, depth int) (values int, err error) {
	if err := codec.CheckDepth(b, depth); err != nil {
		return 0, err
	}
	dec := jsontext.NewDecoder(bytes.NewReader(b))
	for {
		tok, err := dec.ReadToken()
		if errors.Is(err, io.EOF) {
			return values, nil
		}
		if err != nil {
			return 0, err
		}
		values++
		if tok.Kind() == '0' && !cheap(tok.String()) {
			return 0, fmt.Errorf("a number has more than %d digits", maxNumber)
		}
	}
}

func cheap(number string) bool {
	digits, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	return len(digits) <= maxNumber && len(strings.TrimLeft(exponent, "+-0")) <= 2
}
