package secrets

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// A machine says where the matches of an expression may end. It reads each byte once and
// remembers what it computed, and so it is many times faster than package regexp. It
// knows no submatches: these are searched near the ends.
type machine struct {
	prog   *syntax.Prog
	cuts   []rune     // the first rune of each class, of runes that the expression does not distinguish
	ascii  [128]uint8 // the classes of these runes
	states []state
	known  map[string]uint16 // states by their key
	set    []bool            // by instruction: reached in this step
	reach  []uint32          // the instructions in set
}

// state is a set of instructions between two runes.
type state struct {
	before rune     // stands for the rune before: -1, '\n', 'a' or ' '
	at     []uint32 // instructions, sorted
	next   []step   // by class; the last is the end of the text
}

// step is a state's number plus 1, shifted left by one. The lowest bit says that a match
// ends before the rune. 0 is not computed yet.
type step uint16

const (
	maxStates  = 1024
	maxClasses = 200
)

// newMachine returns nil for an expression with too many classes.
func newMachine(x *syntax.Regexp) *machine {
	prog, err := syntax.Compile(withoutStart(x).Simplify())
	if err != nil {
		return nil
	}
	m := &machine{prog: prog, cuts: cutsOf(prog), set: make([]bool, len(prog.Inst))}
	if len(m.cuts) > maxClasses {
		return nil
	}
	for c := range m.ascii {
		m.ascii[c] = uint8(m.class(rune(c)))
	}
	m.reset()
	return m
}

// withoutStart drops an optional start, which does not change where matches end.
func withoutStart(x *syntax.Regexp) *syntax.Regexp {
	if x.Op != syntax.OpConcat || x.Sub[0].Op != syntax.OpRepeat || x.Sub[0].Min > 0 {
		return x
	}
	y := *x
	y.Sub = x.Sub[1:]
	return &y
}

// cutsOf are the borders between runes that prog or a word boundary distinguishes.
func cutsOf(prog *syntax.Prog) []rune {
	cuts := []rune{0, '\n', '\n' + 1, '0', '9' + 1, 'A', 'Z' + 1, '_', '_' + 1, 'a', 'z' + 1}
	for _, in := range prog.Inst {
		for i := 0; i+1 < len(in.Rune); i += 2 {
			cuts = append(cuts, in.Rune[i], in.Rune[i+1]+1)
		}
		if len(in.Rune) == 1 {
			for r := in.Rune[0]; ; {
				cuts = append(cuts, r, r+1)
				if r = unicode.SimpleFold(r); r == in.Rune[0] {
					break
				}
			}
		}
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

func (m *machine) class(r rune) int {
	n, exact := slices.BinarySearch(m.cuts, r)
	if exact {
		return n
	}
	return n - 1
}

func (m *machine) reset() {
	m.states, m.known = m.states[:0], map[string]uint16{}
	m.state(-1, nil)
}

// ends returns where matches in text end, at most limit places. ok is false if there are
// too many states.
func (m *machine) ends(text string, limit int) (ends []int, ok bool) {
	var at uint16
	for i, width := 0, 0; i <= len(text); i += width {
		class := len(m.cuts)
		width = 1
		if i < len(text) && text[i] < utf8.RuneSelf {
			class = int(m.ascii[text[i]])
		} else if i < len(text) {
			var r rune
			r, width = utf8.DecodeRuneInString(text[i:])
			class = m.class(r)
		}
		next := m.states[at].next[class]
		if next == 0 {
			if len(m.states) == maxStates {
				m.reset()
				return nil, false
			}
			next = m.step(at, class)
		}
		if next&1 != 0 {
			if ends = append(ends, i); len(ends) == limit {
				return ends, true
			}
		}
		at = uint16(next>>1) - 1
	}
	return ends, true
}

// step computes where a class leads from a state. A match may begin before each rune.
func (m *machine) step(from uint16, class int) step {
	s := m.states[from]
	r := rune(-1)
	if class < len(m.cuts) {
		r = m.cuts[class]
	}
	flags := syntax.EmptyOpContext(s.before, r)
	m.reach = m.reach[:0]
	m.follow(uint32(m.prog.Start), flags)
	for _, pc := range s.at {
		m.follow(pc, flags)
	}
	var matched step
	var to []uint32
	for _, pc := range m.reach {
		m.set[pc] = false
		switch in := &m.prog.Inst[pc]; in.Op {
		case syntax.InstMatch:
			matched = 1
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			if r >= 0 && in.MatchRune(r) {
				to = append(to, in.Out)
			}
		}
	}
	next := step(m.state(kindOf(r), to)+1)<<1 | matched
	m.states[from].next[class] = next
	return next
}

// kindOf returns a rune that a boundary does not distinguish from r.
func kindOf(r rune) rune {
	switch {
	case r < 0 || r == '\n':
		return r
	case syntax.IsWordChar(r):
		return 'a'
	}
	return ' '
}

// follow adds an instruction to reach, and those that follow without a rune.
func (m *machine) follow(pc uint32, flags syntax.EmptyOp) {
	if m.set[pc] {
		return
	}
	m.set[pc] = true
	m.reach = append(m.reach, pc)
	switch in := &m.prog.Inst[pc]; in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		m.follow(in.Out, flags)
		m.follow(in.Arg, flags)
	case syntax.InstCapture, syntax.InstNop:
		m.follow(in.Out, flags)
	case syntax.InstEmptyWidth:
		if syntax.EmptyOp(in.Arg)&^flags == 0 {
			m.follow(in.Out, flags)
		}
	}
}

// state returns the number of a state, a new one if it is not known.
func (m *machine) state(before rune, at []uint32) uint16 {
	slices.Sort(at)
	at = slices.Compact(at)
	key := binary.LittleEndian.AppendUint32(nil, uint32(before))
	for _, pc := range at {
		key = binary.LittleEndian.AppendUint32(key, pc)
	}
	n, known := m.known[string(key)]
	if !known {
		n = uint16(len(m.states))
		m.known[string(key)] = n
		m.states = append(m.states, state{before, at, make([]step, len(m.cuts)+1)})
	}
	return n
}

// longest is the length of the longest match of x in bytes, -1 if there is no limit.
func longest(x *syntax.Regexp) int {
	switch x.Op {
	case syntax.OpLiteral, syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return longestRunes(x)
	case syntax.OpStar, syntax.OpPlus:
		return -1
	case syntax.OpRepeat:
		if n := longest(x.Sub[0]); n >= 0 && x.Max >= 0 {
			return n * x.Max
		}
		return -1
	}
	n := 0
	for _, sub := range x.Sub {
		switch s := longest(sub); {
		case s < 0:
			return -1
		case x.Op == syntax.OpAlternate:
			n = max(n, s)
		default:
			n += s
		}
	}
	return n
}

// longestRunes is longest for an expression of one rune, or of literal ones.
func longestRunes(x *syntax.Regexp) (n int) {
	if x.Op != syntax.OpLiteral {
		if len(x.Rune) > 0 && x.Rune[len(x.Rune)-1] < utf8.RuneSelf {
			return 1
		}
		return utf8.UTFMax
	}
	if x.Flags&syntax.FoldCase != 0 {
		return len(x.Rune) * utf8.UTFMax
	}
	return len(string(x.Rune))
}
