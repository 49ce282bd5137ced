package facts

import "slices"

// Edit is a line that is kept (' '), removed ('-') or added ('+'). At is its index
// in the text before if it is removed, else in the text after.
type Edit struct {
	Sign byte
	At   int
}

// maxTrace bounds the work and memory of a comparison: about 700 edits.
const maxTrace = 1 << 19

// Edits turns the lines of a into those of b, by a shortest script: E. Myers, "An
// O(ND) Difference Algorithm and Its Variations", 1986. Texts that differ too much
// count as one replacement between their common beginning and end.
func Edits(a, b []string) []Edit {
	from, end := SameEnds(a, b)
	all := make([]Edit, 0, max(len(a), len(b)))
	for i := range from {
		all = append(all, Edit{' ', i})
	}
	for _, e := range myers(numbered(a[from:len(a)-end], b[from:len(b)-end])) {
		all = append(all, Edit{e.Sign, e.At + from})
	}
	for i := range end {
		all = append(all, Edit{' ', len(b) - end + i})
	}
	return all
}

// SameEnds counts what a and b have in common at the beginning, and then at the end.
func SameEnds[T comparable](a, b []T) (from, end int) {
	for from < min(len(a), len(b)) && a[from] == b[from] {
		from++
	}
	for end < min(len(a), len(b))-from && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	return from, end
}

// numbered gives the same number to the same line.
func numbered(a, b []string) (x, y []int) {
	numbers := map[string]int{}
	number := func(lines []string) []int {
		ns := make([]int, len(lines))
		for i, l := range lines {
			n, ok := numbers[l]
			if !ok {
				n = len(numbers)
				numbers[l] = n
			}
			ns[i] = n
		}
		return ns
	}
	return number(a), number(b)
}

// myers keeps, for each number of edits d, how far they lead in a on each diagonal
// from -d to d.
func myers(a, b []int) []Edit {
	var trace [][]int
	for d, kept := 0, 1; kept <= maxTrace; d, kept = d+1, kept+2*d+3 {
		row := make([]int, 2*d+1)
		trace = append(trace, row)
		for k := -d; k <= d; k += 2 {
			x, _ := step(trace, d, k)
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			if row[k+d] = x; x >= len(a) && x-k >= len(b) {
				return script(trace, len(a), len(b))
			}
		}
	}
	all := make([]Edit, 0, len(a)+len(b))
	for i := range a {
		all = append(all, Edit{'-', i})
	}
	for i := range b {
		all = append(all, Edit{'+', i})
	}
	return all
}

// step is where the edit number d leads on diagonal k: a line removed, or added.
func step(trace [][]int, d, k int) (x int, sign byte) {
	if d == 0 {
		return 0, ' '
	}
	before := trace[d-1]
	if k == -d || k < d && before[k+d-2] < before[k+d] {
		return before[k+d], '+'
	}
	return before[k+d-2] + 1, '-'
}

// script goes back from the end of both texts.
func script(trace [][]int, x, y int) (all []Edit) {
	for d := len(trace) - 1; d >= 0; d-- {
		start, sign := step(trace, d, x-y)
		for x > start {
			x, y = x-1, y-1
			all = append(all, Edit{' ', y})
		}
		switch sign {
		case '-':
			x--
			all = append(all, Edit{'-', x})
		case '+':
			y--
			all = append(all, Edit{'+', y})
		}
	}
	slices.Reverse(all)
	return all
}
