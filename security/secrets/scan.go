package secrets

import (
	"bytes"
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

// Scanner finds secrets. It is safe for concurrent use.
type Scanner struct {
	rules []*rule
	words *keywords
	of    [][]int // rules of each keyword

	generic map[string]bool // kinds that a text is by what stands around it

	recent recent
}

// generic is the only rule that uses the name before a value.
const generic = "generic-api-key"

// New makes a scanner. It fails only if the embedded rules are damaged.
func New() (*Scanner, error) {
	set, err := loadRules()
	if err != nil {
		return nil, err
	}
	s := &Scanner{rules: set.Rules, generic: map[string]bool{}}
	index := map[string]int{}
	var words []string
	for n, r := range s.rules {
		if r.Generic {
			s.generic[r.ID] = true
		}
		for _, w := range r.Keywords {
			w = strings.ToLower(w)
			if _, ok := index[w]; !ok {
				index[w] = len(words)
				words = append(words, w)
				s.of = append(s.of, nil)
			}
			s.of[index[w]] = append(s.of[index[w]], n)
		}
	}
	s.words = newKeywords(words)
	return s, nil
}

// Scan finds the secrets in a request: in its arguments, their names, the agent's
// prose and the proof. Each kind is reported once for each place.
func (s *Scanner) Scan(f *approval.Facts) []approval.Finding {
	leaves := append(leavesOf(f.Args, f.Agent), proofLeaves(f.Evidence.Proof)...)
	types := argTypes{f.Declared, nil}
	if f.Tool == "" {
		types.release = facts.ReleaseArgs(f.ActionType)
	}
	for i := range leaves {
		if l := &leaves[i]; l.depth > 0 {
			l.place = isPlaceType(types.of(l.top))
		}
	}
	return s.scan(append(leaves, nameLeaves(f.Tool, f.ActionType, f.SessionID)...), nil)
}

// nameLeaves are the names in a request that the agent chooses.
func nameLeaves(tool, action, session string) (leaves []leaf) {
	for _, n := range [][2]string{{"tool_name", tool}, {"action_type", action}, {"session_id", session}} {
		if n[1] != "" {
			l := newLeaf(n[0], n[1])
			l.alone, l.mask = true, maskNever
			leaves = append(leaves, l)
		}
	}
	return leaves
}

// proofLeaves are a proof's texts, which cards show.
func proofLeaves(p *approval.Proof) []leaf {
	if p == nil {
		return nil
	}
	var leaves []leaf
	add := func(where string, texts ...string) {
		for _, text := range texts {
			leaves = append(leaves, newLeaf("proof."+where, text))
		}
	}
	add("program", p.Program)
	add("trusted", p.Trusted...)
	add("contracts", p.Contracts...)
	for _, x := range p.Effects {
		add("effects", x.Domain, x.Op)
		leaves = append(leaves, walk("proof.effects.args", x.Args)...)
	}
	for _, c := range p.Coverage {
		add("coverage", append([]string{c.Domain}, c.Missing...)...)
	}
	return leaves
}

// scan returns the findings and calls each, if it is not nil, with every match in every
// view: the leaves that hold it, and in which view.
func (s *Scanner) scan(leaves []leaf, each func(m match)) (found []approval.Finding) {
	names := map[string]bool{} // names of members that contain a secret or a part of one
	seen := map[approval.Finding]bool{}
	size := 0
	d := &decoder{}
	for n, v := range views(leaves, d) {
		if size += len(v.text); size > maxViewed {
			break
		}
		least := 0
		if v.reversed {
			least = minBackwards
		}
		s.searchFor(v.text, least, func(r *rule, p place) {
			in := v.leavesIn(p.start, p.end)
			if r.passes(leaves, in) {
				return
			}
			inNames := !slices.ContainsFunc(in, func(l int) bool { return !leaves[l].key })
			for _, l := range in {
				if leaves[l].key && (inNames || !word.MatchString(leaves[l].shown)) {
					names[leaves[l].shown] = true
				}
			}
			where := joinPlaces(leaves, in)
			key := approval.Finding{Kind: r.ID, Where: where}
			if !seen[key] {
				seen[key] = true
				found = append(found, approval.Finding{Kind: r.ID, Where: where, Length: p.end - p.start})
			}
			if each != nil && r.ID != iban {
				each(match{r.ID, v.text[p.start:p.end], in, n == 0})
			}
		})
	}
	if size > maxViewed || d.inflated > maxInflated {
		found = append(found, approval.Finding{Kind: "too-long-to-search", Where: "request_data", Length: max(size, d.inflated)})
	}
	hide := newNameHider(names)
	for i := range found {
		found[i].Where = hide.redact(found[i].Where)
	}
	slices.SortFunc(found, func(a, b approval.Finding) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.Kind, b.Kind))
	})
	return s.specific(found)
}

// passes says whether a match is none where it stands: several values, or places, which the types or
// the names of their members say.
func (r *rule) passes(leaves []leaf, in []int) bool {
	isPlace := func(l int) bool { return leaves[l].place || r.Generic && leaves[l].isPlace() }
	switch {
	case r.oneValue && len(in) > 1:
		return true
	case r.Generic && len(in) > 1:
		return slices.ContainsFunc(in, isPlace) // a text and a recipient form no password
	}
	return r.ID == iban && len(in) > 0 && isPlace(in[0])
}

// minBackwards is the length of the shortest keyword that counts in a reversed text: shorter ones
// occur everywhere.
const minBackwards = 3

// match is a secret in a view.
type match struct {
	kind   string
	text   string
	leaves []int
	plain  bool // in the view that neither joins nor decodes
}

// nameHider removes names that are secrets from a place, because places appear on cards
// and in the log.
type nameHider struct {
	names []string // as in a place, the longest first
	all   bool     // there are too many names: a place says none
}

const maxNames = 256

func newNameHider(names map[string]bool) nameHider {
	byLength := slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	if len(byLength) > maxNames {
		return nameHider{all: true}
	}
	var h nameHider
	for _, n := range byLength {
		// A shorter one could match other words.
		if n = escapes.Replace(n); len(n) >= minPart {
			h.names = append(h.names, n)
		}
	}
	return h
}

func (h nameHider) redact(where string) string {
	if h.all {
		top, _, _ := strings.Cut(where, ".")
		return top + "." + approval.RedactedName
	}
	for _, n := range h.names {
		where = strings.ReplaceAll(where, n, approval.RedactedName)
		if cut, ok := strings.CutSuffix(where, "…"); ok {
			for k := min(len(n), len(cut)); k > 0; k-- {
				if strings.HasSuffix(cut, n[:k]) {
					where = cut[:len(cut)-k] + approval.RedactedName
					break
				}
			}
		}
	}
	return where
}

// word is a name between the parts of a secret that is no part of it.
var word = regexp.MustCompile(`^[A-Za-z_-]{1,32}[0-9]{0,2}$`)

// specific drops findings of generic rules where another one matched, and those of the most generic
// one where any other did.
func (s *Scanner) specific(found []approval.Finding) []approval.Finding {
	rank := func(f approval.Finding) int {
		switch {
		case f.Kind == generic:
			return 0
		case s.generic[f.Kind]:
			return 1
		}
		return 2
	}
	best := map[string]int{} // by place
	for _, f := range found {
		best[f.Where] = max(best[f.Where], rank(f))
	}
	return slices.DeleteFunc(found, func(f approval.Finding) bool { return rank(f) < best[f.Where] })
}

func joinPlaces(leaves []leaf, in []int) string {
	if len(in) == 0 {
		return "request_data"
	}
	var places []string
	seen := map[string]bool{}
	for _, i := range in {
		if where := leaves[i].where; !seen[where] {
			seen[where] = true
			places = append(places, where)
		}
	}
	if len(places) > 3 {
		return places[0] + " and " + strconv.Itoa(len(places)-1) + " more places"
	}
	return strings.Join(places, " + ")
}

// search tries the rules whose keywords occur in text.
func (s *Scanner) search(text string, found func(r *rule, p place)) { s.searchFor(text, 0, found) }

// searchFor leaves out keywords that are shorter than least.
func (s *Scanner) searchFor(text string, least int, found func(r *rule, p place)) {
	var hits map[int][]int // by rule
	s.words.in(text, func(w, end int) {
		if len(s.words.words[w]) < least {
			return
		}
		if hits == nil {
			hits = map[int][]int{}
		}
		for _, r := range s.of[w] {
			hits[r] = append(hits[r], end)
		}
	})
	for _, n := range slices.Sorted(maps.Keys(hits)) {
		r, at := s.rules[n], hits[n]
		slices.Sort(at)
		r.find(text, at, func(p place) { found(r, p) })
	}
	for _, f := range finders {
		if f.rule.oneValue && least > 0 {
			continue // a false alarm is likelier than a reversed number
		}
		f.find(text, func(p place) { found(f.rule, p) })
	}
}

// leavesOf reads a request's arguments and prose, cleaned.
func leavesOf(args approval.Raw, prose approval.Prose) []leaf {
	leaves := walk("request_data", args)
	for _, p := range []struct{ name, text string }{
		{"title", prose.Title}, {"preview", prose.Preview}, {"rationale", prose.Rationale},
	} {
		if p.text != "" {
			leaves = append(leaves, newLeaf(p.name, p.text))
		}
	}
	return leaves
}

// walk reads a JSON value token by token, which keeps the order and the digits.
// Invalid JSON is one leaf.
func walk(where string, args approval.Raw) []leaf {
	var leaves []leaf
	d := jsontext.NewDecoder(bytes.NewReader(args), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	name, top := "", ""
	var open []string // the places of the open lists and objects
	for {
		kind, index := d.StackIndex(d.StackDepth())
		isName := kind == '{' && index%2 == 0
		tok, err := d.ReadToken()
		if err != nil {
			if len(leaves) == 0 && len(bytes.TrimSpace(args)) > 0 && d.InputOffset() == 0 {
				leaves = append(leaves, newLeaf(where, string(args)))
			}
			return leaves
		}
		text := ""
		switch tok.Kind() {
		case '}', ']':
			open = open[:len(open)-1]
			continue
		case '"', '0':
			text = tok.String()
		}
		if isName {
			name = text
		}
		last := name
		if kind == '[' {
			last = strconv.FormatInt(index, 10)
		}
		if len(open) == 1 {
			top = last
		}
		at := ""
		if len(open) > 0 {
			at = below(open[len(open)-1], last)
		}
		switch tok.Kind() {
		case '{', '[':
			open = append(open, at)
		case '"', '0':
			l := newLeaf(where+shortened(at), text)
			if !isName && kind != '[' {
				l.name = clean(last)
			}
			l.key, l.number, l.depth = isName, tok.Kind() == '0', len(open)
			if l.depth > 0 {
				l.top, l.first = top, last == "0"
			}
			leaves = append(leaves, l)
		}
	}
}

// maxPlace is the length of a place in a request that is reported, in bytes.
const maxPlace = 80

// escapes are those of a JSON pointer.
var escapes = strings.NewReplacer("~", "~0", "/", "~1")

// below is the place of a member or an element, cut where no report shows more.
func below(at, name string) string {
	name = name[:min(len(name), maxPlace+1)]
	at += "." + escapes.Replace(name)
	return at[:min(len(at), maxPlace+1)]
}

func shortened(at string) string {
	if len(at) > maxPlace {
		return strings.ToValidUTF8(at[:maxPlace], "") + "…"
	}
	return at
}

func newLeaf(where, text string) leaf {
	return leaf{where: where, text: clean(text), shown: text}
}
