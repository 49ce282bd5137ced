package audit_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/security/audit"
)

// Keys of tests only.
const (
	testPrivate = "PRIVATE+KEY+home.example.org+3bc3b73a+AQcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH"
	testPublic  = "home.example.org+3bc3b73a+AepKbGPinFIKvvVQexMuxfmVR3auvr57kkIe6mkURtIs"
)

func testKeys(t testing.TB) audit.Keys {
	t.Helper()
	s, err := note.NewSigner(testPrivate)
	require.NoError(t, err)
	v, err := note.NewVerifier(testPublic)
	require.NoError(t, err)
	return audit.Keys{Signer: s, Known: note.VerifierList(v)}
}

const (
	goodEntries = 1000
	signedEach  = 64
	receiptEach = 50 // every 50th entry is an approval with a receipt
)

// goodLog is a log of 1,000 entries as the daemon writes it, and possible witnesses.
type goodLog struct {
	lines       [][]byte // with their line feeds
	offsets     []int    // of lines, as in one segment
	checkpoints [][]byte
	sizes       []int64 // of marks
	notes       []string
	receipts    map[string]int64 // digest → number of its entry
	keys        audit.Keys
}

func makeGoodLog(t testing.TB) *goodLog {
	t.Helper()
	g := &goodLog{keys: testKeys(t), receipts: map[string]int64{}}
	disk := newDisk(t)
	l := openLog(t, disk.Process("daemon"), dir, clock, g.keys)
	for n := 1; n <= goodEntries; n++ {
		e := event.Entry{Event: event.Executed, RequestID: fmt.Sprintf("%08x", n), By: "é\"\\"}
		if n%receiptEach == 0 {
			e.Event, e.ReceiptSHA256 = event.Approved, approval.Digest([]byte(strconv.Itoa(n)))
			g.receipts[e.ReceiptSHA256] = int64(n)
		}
		l.Note(e)
		if n%signedEach == 0 || n == goodEntries {
			require.NoError(t, l.Checkpoint())
			g.sizes = append(g.sizes, int64(n))
			g.notes = append(g.notes, l.Newest().Note)
		}
	}
	require.NoError(t, l.Close())
	g.lines = bytes.SplitAfter(disk.Files()[dir+"/log.jsonl"], []byte("\n"))
	g.lines = g.lines[:len(g.lines)-1]
	g.checkpoints = bytes.SplitAfter(disk.Files()[dir+"/checkpoints.jsonl"], []byte("\n"))
	g.checkpoints = g.checkpoints[:len(g.checkpoints)-1]
	require.Len(t, g.lines, goodEntries)
	for i, offset := 0, 0; i < goodEntries; i++ {
		g.offsets = append(g.offsets, offset)
		offset += len(g.lines[i])
	}
	require.Len(t, g.checkpoints, len(g.sizes))
	return g
}

// segmentsAt lists the lines of the good log after which a new segment begins.
var segmentsAt = []int{400, 750}

// files splits lines into segments at segmentsAt.
func (g *goodLog) files(lines, marks [][]byte) map[string][]byte {
	files := map[string][]byte{"checkpoints.jsonl": bytes.Join(marks, nil)}
	if len(marks) == 0 {
		delete(files, "checkpoints.jsonl")
	}
	begin := 0
	for i, end := range append(slices.Clone(segmentsAt), len(lines)) {
		if end = min(end, len(lines)); end > begin || i == 0 {
			files[segmentName(i+1)] = bytes.Join(lines[begin:end], nil)
			begin = end
		}
	}
	return files
}

func segmentName(n int) string {
	if n == 1 {
		return "log.jsonl"
	}
	return fmt.Sprintf("log-%d.jsonl", n)
}

// put replaces line i by a and line j by b, and returns a function to undo that.
func (g *goodLog) put(m *memFS, i int, a []byte, j int, b []byte) (restore func()) {
	if len(a) != len(g.lines[i]) || len(b) != len(g.lines[j]) {
		lines := slices.Clone(g.lines)
		lines[i], lines[j] = a, b
		good := m.files
		m.files = g.files(lines, g.checkpoints)
		return func() { m.files = good }
	}
	copy(g.at(m, i), a)
	copy(g.at(m, j), b)
	return func() {
		copy(g.at(m, i), g.lines[i])
		copy(g.at(m, j), g.lines[j])
	}
}

// at returns the bytes from a line on.
func (g *goodLog) at(m *memFS, line int) []byte {
	segment, first := 1, 0
	for _, end := range segmentsAt {
		if line >= end {
			segment, first = segment+1, end
		}
	}
	return m.files[segmentName(segment)][g.offsets[line]-g.offsets[first]:]
}

// bytePos is a byte of the log: its line, from 0, its file and its offset.
type bytePos struct {
	line   int
	file   string
	offset int
}

func (g *goodLog) positions() []bytePos {
	var all []bytePos
	segment, offset := 1, 0
	for i, line := range g.lines {
		if slices.Contains(segmentsAt, i) {
			segment, offset = segment+1, 0
		}
		for range line {
			all = append(all, bytePos{i, segmentName(segment), offset})
			offset++
		}
	}
	return all
}

func (g *goodLog) check(files map[string][]byte) *audit.Check {
	return &audit.Check{FS: newMemFS(files), Dir: dir, Keys: g.keys.Known}
}

// nearSegmentsEnd says whether an insertion at a line, from 0, may come after all
// lines that count in a segment.
func nearSegmentsEnd(line int) bool {
	return slices.ContainsFunc(segmentsAt, func(end int) bool { return line >= end-2 && line <= end })
}

// isFault says whether err reports a fault of the log, not a read error.
func isFault(err error) bool {
	return errors.Is(err, audit.ErrTampered) || errors.Is(err, audit.ErrDamaged) || errors.Is(err, audit.ErrNotSigned)
}

// inParallel runs f for 0 to n-1 on all processors. Each worker has its own files.
func inParallel(t *testing.T, files map[string][]byte, n int, f func(m *memFS, i int) error) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(1000)) // all memory of a case is garbage afterwards
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			m := newMemFS(files)
			for !t.Failed() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(m, i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func soak() bool { return os.Getenv("PERMESSO_SOAK") != "" }

// sample is every nth number from the first one on. make soak has all numbers.
type sample struct{ first, step int }

// takeSample is a twentieth, or less under the race detector. PERMESSO_SEED repeats it.
func takeSample(t *testing.T, raced int) sample {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("PERMESSO_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	s := sample{step: 20}
	switch {
	case soak():
		s.step = 1
	case raceDetector:
		s.step = raced
	}
	s.first = int(seed % uint64(s.step))
	t.Logf("PERMESSO_SEED=%d, one in %d", seed, s.step)
	return s
}

// of is how many numbers below n the sample has.
func (s sample) of(n int) int { return max(0, n-s.first+s.step-1) / s.step }

// at is its number i, from 0.
func (s sample) at(i int) int { return s.first + i*s.step }

// has reports whether it has a number.
func (s sample) has(i int) bool { return i%s.step == s.first }

// TestEveryChangeIsDetected changes a log of 1,000 entries in all ways that its
// subtests name. Check must detect each. Verification continues from the state one
// line before the change (see Snapshots).
func TestEveryChangeIsDetected(t *testing.T) {
	g := makeGoodLog(t)
	files := g.files(g.lines, g.checkpoints)
	rep, err := g.check(files).Run()
	require.NoError(t, err)
	require.Equal(t, int64(goodEntries), rep.Entries)
	require.Equal(t, int64(goodEntries), rep.Signed)
	require.Empty(t, rep.Notes)
	snaps, err := audit.TakeSnapshots(g.check(files))
	require.NoError(t, err)
	seen := func(what string, line int, m *memFS) error {
		got, err := snaps.Resume(max(0, line-1), m)
		if err == nil && len(got.Notes) > 0 && got.Root == rep.Root && got.Entries == rep.Entries && nearSegmentsEnd(line) {
			return nil // noted, and it does not count: a crash can have the same result
		}
		if err == nil && line == goodEntries-1 && got.Entries == got.Signed+1 && len(got.Notes) > 0 {
			return nil // noted: it comes after the signed entries
		}
		if !isFault(err) {
			return fmt.Errorf("%s in line %d is not detected: %w", what, line+1, err)
		}
		return nil
	}
	spots := g.positions()
	some, lines := takeSample(t, 401), takeSample(t, 41) // of the bytes, and of the lines

	t.Run("every byte flipped", func(t *testing.T) {
		values := 1
		if soak() {
			values = 255
		}
		inParallel(t, files, some.of(len(spots)), func(m *memFS, i int) error {
			s := spots[some.at(i)]
			b := &m.files[s.file][s.offset]
			for v := range values {
				flip := byte(1 << (i % 7))
				if values > 1 {
					flip = byte(v + 1)
				}
				*b ^= flip
				err := seen(fmt.Sprintf("byte %d of %s ^ %#x", s.offset, s.file, flip), s.line, m)
				*b ^= flip
				if err != nil {
					return err
				}
			}
			return nil
		})
		t.Logf("%d bytes, %d values each", some.of(len(spots)), values)
	})

	t.Run("every byte removed, and a byte inserted everywhere", func(t *testing.T) {
		inParallel(t, files, some.of(len(spots)), func(m *memFS, i int) error {
			s := spots[some.at(i)]
			good := m.files[s.file]
			defer func() { m.files[s.file] = good }()
			m.files[s.file] = slices.Concat(good[:s.offset], good[s.offset+1:])
			if err := seen(fmt.Sprintf("byte %d of %s removed", s.offset, s.file), s.line, m); err != nil {
				return err
			}
			more := " \n0x"[i%4]
			m.files[s.file] = slices.Concat(good[:s.offset], []byte{more}, good[s.offset:])
			return seen(fmt.Sprintf("%q inserted before byte %d of %s", more, s.offset, s.file), s.line, m)
		})
	})

	t.Run("every cut", func(t *testing.T) {
		inParallel(t, files, some.of(len(spots)), func(m *memFS, i int) error {
			s := spots[some.at(i)]
			last := m.files
			defer func() { m.files = last }()
			m.files = map[string][]byte{"checkpoints.jsonl": last["checkpoints.jsonl"]}
			for n := 1; ; n++ {
				if name := segmentName(n); name != s.file {
					m.files[name] = last[name]
					continue
				}
				if s.offset > 0 {
					m.files[s.file] = last[s.file][:s.offset]
				}
				break
			}
			return seen(fmt.Sprintf("cut at byte %d of %s", s.offset, s.file), s.line, m)
		})
	})

	t.Run("every entry removed, doubled, and a forged one inserted", func(t *testing.T) {
		forged := []byte(`{"seq":0,"time":"2026-11-21T12:00:00Z","event":"approved"}` + "\n")
		inParallel(t, files, lines.of(len(g.lines)), func(m *memFS, i int) error {
			i = lines.at(i)
			for what, lines := range map[string][][]byte{
				"removed":                   slices.Delete(slices.Clone(g.lines), i, i+1),
				"removed, renumbered":       renumber(slices.Delete(slices.Clone(g.lines), i, i+1)),
				"doubled":                   slices.Insert(slices.Clone(g.lines), i, g.lines[i]),
				"doubled, renumbered":       renumber(slices.Insert(slices.Clone(g.lines), i, g.lines[i])),
				"forged before":             slices.Insert(slices.Clone(g.lines), i, forged),
				"forged before, renumbered": renumber(slices.Insert(slices.Clone(g.lines), i, forged)),
				"replaced by a forged":      renumber(slices.Concat(g.lines[:i], [][]byte{forged}, g.lines[i+1:])),
			} {
				m.files = g.files(lines, g.checkpoints)
				if err := seen(what, i, m); err != nil {
					return err
				}
			}
			return nil
		})
	})

	t.Run("every two entries swapped", func(t *testing.T) {
		inParallel(t, files, len(g.lines)-1, func(m *memFS, i int) error {
			if raceDetector && !lines.has(i) {
				return nil
			}
			for j := i + 1; j < len(g.lines); j++ {
				near := j < i+16 || soak()
				if !near && !lines.has(i+j) { // each with other ones of the others
					continue
				}
				restore := g.put(m, i, g.lines[j], j, g.lines[i])
				err := seen(fmt.Sprintf("swapped with %d", j+1), i, m)
				restore()
				if err == nil && (near || j%97 == i%97) {
					restore = g.put(m, i, numbered(g.lines[j], i+1), j, numbered(g.lines[i], j+1))
					err = seen(fmt.Sprintf("swapped with %d, renumbered", j+1), i, m)
					restore()
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})

	t.Run("every byte of the checkpoints flipped", func(t *testing.T) {
		n := len(files["checkpoints.jsonl"])
		inParallel(t, files, some.of(n), func(m *memFS, i int) error {
			i = some.at(i)
			b := &m.files["checkpoints.jsonl"][i]
			flip := byte(1 << (i % 7))
			*b ^= flip
			defer func() { *b ^= flip }()
			c := &audit.Check{FS: m, Dir: dir, Keys: g.keys.Known}
			if _, err := c.Run(); !isFault(err) {
				return fmt.Errorf("byte %d of the checkpoints ^ %#x is not detected: %w", i, flip, err)
			}
			return nil
		})
		t.Logf("%d bytes", some.of(n))
	})
}

// A process that cuts the log can also cut the checkpoints. A witness must detect
// every cut before its size, and no other.
func TestEveryCutBelowAWitnessIsDetected(t *testing.T) {
	g := makeGoodLog(t)
	newest := len(g.notes) - 2 // the witnesses are not all from the end
	kept, size := g.notes[newest], g.sizes[newest]
	cp, err := audit.ParseCheckpoint(kept, g.keys.Known)
	require.NoError(t, err)
	foot, err := audit.ParseFoot("log " + cp.Foot())
	require.NoError(t, err)
	some := takeSample(t, 61)
	inParallel(t, nil, goodEntries, func(m *memFS, cut int) error {
		if !some.has(cut) && (raceDetector || !g.nearAWitness(cut)) {
			return nil
		}
		marks := 0
		for marks < len(g.sizes) && g.sizes[marks] <= int64(cut) {
			marks++
		}
		m.files = g.files(g.lines[:cut], g.checkpoints[:marks])
		if marks > 0 {
			c := &audit.Check{FS: m, Dir: dir, Keys: g.keys.Known}
			if _, err := c.Run(); err != nil {
				return fmt.Errorf("cut after %d, checkpoints too: must verify without a witness: %w", cut, err)
			}
		}
		for what, c := range map[string]*audit.Check{
			"foot":       {Feet: []audit.Foot{foot}},
			"checkpoint": {Checkpoints: []string{kept}},
		} {
			c.FS, c.Dir, c.Keys = m, dir, g.keys.Known
			if _, err := c.Run(); isFault(err) != (int64(cut) < size) {
				return fmt.Errorf("cut after %d, a kept %s of %d: %w", cut, what, size, err)
			}
		}
		receipts, last := map[string]string{}, int64(0)
		for hash, seq := range g.receipts {
			if seq < goodEntries-receiptEach {
				receipts[hash], last = "x", max(last, seq)
			}
		}
		c := &audit.Check{FS: m, Dir: dir, Keys: g.keys.Known, Facts: audit.Facts{Receipts: receipts}}
		if _, err := c.Run(); isFault(err) != (int64(cut) < last) {
			return fmt.Errorf("cut after %d, receipts up to %d: %w", cut, last, err)
		}
		return nil
	})
}

// nearAWitness says whether a cut is within two entries of a checkpoint, of a
// receipt or of the end of a segment, where the expected result changes.
func (g *goodLog) nearAWitness(cut int) bool {
	for _, every := range []int{signedEach, receiptEach} {
		if (cut+2)%every <= 4 {
			return true
		}
	}
	return nearSegmentsEnd(cut) || cut >= goodEntries-4
}

// Check notes entries after the newest checkpoint.
func TestAppendedEntryIsNotSigned(t *testing.T) {
	g := makeGoodLog(t)
	forged := []byte(`{"seq":1001,"time":"2026-11-21T12:00:00Z","event":"approved"}` + "\n")
	rep, err := g.check(g.files(append(slices.Clone(g.lines), forged), g.checkpoints)).Run()
	require.NoError(t, err)
	require.Equal(t, int64(goodEntries), rep.Signed)
	require.Equal(t, int64(goodEntries+1), rep.Entries)
	require.Equal(t, []string{"no checkpoint covers number 1001 yet"}, rep.Notes)
}

// numbered gives a line another seq.
func numbered(line []byte, seq int) []byte {
	_, rest, _ := bytes.Cut(line, []byte(","))
	return fmt.Appendf(nil, `{"seq":%d,%s`, seq, rest)
}

func renumber(lines [][]byte) [][]byte {
	for i := range lines {
		if !bytes.HasPrefix(lines[i], fmt.Appendf(nil, `{"seq":%d,`, i+1)) {
			lines[i] = numbered(lines[i], i+1)
		}
	}
	return lines
}
