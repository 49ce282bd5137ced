package audit_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/security/audit"
)

// This file verifies a log by FORMAT.md, with the standard library only: without the
// package's parser, tree and notes. It reads everything into memory and implements
// each sentence of the text in the simplest way.

// specKey is a public key by FORMAT.md, "Keys".
type specKey struct {
	name string
	id   [4]byte
	key  ed25519.PublicKey
}

func specParseKey(s string) (k specKey, err error) {
	parts := strings.SplitN(s, "+", 3)
	if len(parts) != 3 {
		return k, errors.New("key: not three parts")
	}
	data, err := base64.StdEncoding.Strict().DecodeString(parts[2])
	if err != nil || len(data) != 33 || data[0] != 1 {
		return k, errors.New("key: not Ed25519")
	}
	sum := sha256.Sum256(slices.Concat([]byte(parts[0]+"\n"), data))
	if hex.EncodeToString(sum[:4]) != parts[1] {
		return k, errors.New("key: another id")
	}
	return specKey{parts[0], [4]byte(sum[:4]), data[1:]}, nil
}

// specNote opens a note, "Signed notes", and returns its text and how many
// signature lines it has.
func specNote(msg string, keys []specKey) (text, name string, sigs int, err error) {
	cut := strings.LastIndex(msg, "\n\n")
	if cut < 0 || !strings.HasSuffix(msg, "\n") {
		return "", "", 0, errors.New("note: no empty line")
	}
	text = msg[:cut+1]
	for line := range strings.Lines(msg[cut+2:]) {
		sigs++
		f := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		if len(f) != 3 || f[0] != "—" {
			return "", "", 0, errors.New("note: a line that is not a signature")
		}
		sig, err := base64.StdEncoding.Strict().DecodeString(f[2])
		if err != nil || len(sig) < 5 {
			return "", "", 0, errors.New("note: an invalid signature")
		}
		for _, k := range keys {
			if k.name == f[1] && bytes.Equal(sig[:4], k.id[:]) && ed25519.Verify(k.key, []byte(text), sig[4:]) {
				name = k.name
			}
		}
	}
	if name == "" {
		return "", "", 0, errors.New("note: not signed by a known key")
	}
	return text, name, sigs, nil
}

// specCheckpoint reads a checkpoint, "Checkpoints".
func specCheckpoint(msg string, keys []specKey) (size int, root []byte, sigs int, err error) {
	text, name, sigs, err := specNote(msg, keys)
	if err != nil {
		return 0, nil, 0, err
	}
	f := strings.Split(text, "\n")
	if len(f) != 4 || f[0] != name {
		return 0, nil, 0, errors.New("checkpoint: not three lines of this gate")
	}
	size, err = strconv.Atoi(f[1])
	if err != nil || size < 1 || strconv.Itoa(size) != f[1] {
		return 0, nil, 0, errors.New("checkpoint: no size")
	}
	root, err = base64.StdEncoding.Strict().DecodeString(f[2])
	if err != nil || len(root) != 32 {
		return 0, nil, 0, errors.New("checkpoint: no root")
	}
	return size, root, sigs, nil
}

func specLeaf(line []byte) []byte {
	h := sha256.Sum256(append([]byte{0}, line...))
	return h[:]
}

func specNode(left, right []byte) []byte {
	h := sha256.Sum256(slices.Concat([]byte{1}, left, right))
	return h[:]
}

// specTree is "Tree", as defined in RFC 6962. known caches complete subtrees.
type specTree struct {
	leaves [][]byte
	known  map[[2]int][]byte
}

func (t *specTree) root(lo, hi int) []byte {
	n := hi - lo
	switch n {
	case 0:
		h := sha256.Sum256(nil)
		return h[:]
	case 1:
		return t.leaves[lo]
	}
	if h, ok := t.known[[2]int{lo, hi}]; ok {
		return h
	}
	k := 1 << (bits.Len(uint(n-1)) - 1)
	h := specNode(t.root(lo, lo+k), t.root(lo+k, hi))
	if n&(n-1) == 0 {
		t.known[[2]int{lo, hi}] = h
	}
	return h
}

var specStrings = []string{
	"event", "workspace", "tool", "capability", "target", "action_type", "request_id", "client_id", "session_id", "by", "by_id",
	"via", "rule", "reason", "receipt_sha256", "detail",
}

type specEntry struct {
	seq            int
	event, receipt string
}

// specParse reads an entry, "Entries".
func specParse(line []byte) (e specEntry, err error) {
	for _, c := range line {
		if c < 0x20 || c > 0x7e {
			return e, errors.New("entry: not printable ASCII")
		}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		return e, errors.New("entry: not an object")
	}
	names, err := specNames(line)
	if err != nil || len(names) != len(fields) {
		return e, errors.New("entry: a duplicate name")
	}
	for name, value := range fields {
		var s string
		switch {
		case name == "seq":
			if e.seq, err = strconv.Atoi(string(value)); err != nil {
				return e, errors.New("entry: no number")
			}
		case name == "taints":
			var all []string
			err = json.Unmarshal(value, &all)
		case name == "time":
			if err = json.Unmarshal(value, &s); err == nil {
				_, err = time.Parse(time.RFC3339Nano, s)
			}
		case slices.Contains(specStrings, name):
			if err = json.Unmarshal(value, &s); name == "event" {
				e.event = s
			} else if name == "receipt_sha256" {
				e.receipt = s
			}
		default:
			err = errors.New("an unknown name")
		}
		if err != nil {
			return e, fmt.Errorf("entry: %s: %w", name, err)
		}
	}
	return e, nil
}

// specNames lists the names of an object, including duplicates.
func specNames(object []byte) (names []string, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := t.(string)
		names = append(names, name)
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			return nil, err
		}
	}
	return names, nil
}

type specLine struct {
	specEntry
	raw []byte
}

// specWhole splits off complete lines while their numbers continue from want.
func specWhole(b []byte, want int) (lines []specLine, rest []byte) {
	for {
		raw, after, ok := bytes.Cut(b, []byte("\n"))
		if !ok {
			return lines, b
		}
		e, err := specParse(raw)
		if err != nil || e.seq != want {
			return lines, b
		}
		lines, b, want = append(lines, specLine{e, raw}), after, want+1
	}
}

// specRead is "Which lines count".
func specRead(files map[string][]byte) (count []specLine, err error) {
	var repeated []specLine
	for n := 1; ; n++ {
		b, ok := files[segmentName(n)]
		if !ok {
			break
		}
		next, more := files[segmentName(n+1)]
		lines, rest := specWhole(b, len(count)+1)
		if !more {
			if bytes.Contains(rest, []byte("\n")) {
				return nil, errors.New("the last segment is damaged")
			}
			count = append(count, lines...)
			break
		}
		raw, _, _ := bytes.Cut(next, []byte("\n"))
		first, err := specParse(raw)
		if err != nil || first.seq < 1 {
			return nil, errors.New("a segment does not begin with an entry")
		}
		keep := first.seq - 1 - len(count)
		if keep < 0 || keep > len(lines) {
			return nil, errors.New("numbers are missing")
		}
		count = append(count, lines[:keep]...)
		repeated = append(repeated, lines[keep:]...)
	}
	for name := range files { // no gaps
		if n, ok := strings.CutPrefix(name, "log-"); ok {
			i, _ := strconv.Atoi(strings.TrimSuffix(n, ".jsonl"))
			if _, ok := files[segmentName(i-1)]; !ok {
				return nil, errors.New("a segment is missing")
			}
		}
	}
	for _, r := range repeated {
		if r.seq > len(count) || !bytes.Equal(count[r.seq-1].raw, r.raw) {
			return nil, errors.New("a repeated entry differs")
		}
	}
	return count, nil
}

// specCheckpoints reads the file of checkpoints.
func specCheckpoints(b []byte, keys []specKey) (sizes []int, roots [][]byte, err error) {
	for len(b) > 0 {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		b = rest
		if !ended && !json.Valid(line) {
			if json.Valid(line[:len(line)-1]) {
				return nil, nil, errors.New("checkpoints: the end was changed")
			}
			break // a power cut
		}
		var m struct {
			Note string   `json:"note"`
			Edge []string `json:"edge"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, nil, err
		}
		again := `{"note":"` + strings.NewReplacer("\n", `\n`, "—", `\u2014`).Replace(m.Note) + `","edge":["` + strings.Join(m.Edge, `","`) + `"]}`
		if again != string(line) {
			return nil, nil, errors.New("checkpoints: a line that is not in canonical form")
		}
		size, root, sigs, err := specCheckpoint(m.Note, keys)
		if err != nil {
			return nil, nil, err
		}
		var fold []byte
		for i, text := range slices.Backward(m.Edge) {
			h, err := base64.StdEncoding.Strict().DecodeString(text)
			if err != nil || len(h) != 32 {
				return nil, nil, errors.New("checkpoints: no hash")
			}
			if i == len(m.Edge)-1 {
				fold = h
			} else {
				fold = specNode(h, fold)
			}
		}
		if sigs != 1 || len(m.Edge) != bits.OnesCount(uint(size)) || !bytes.Equal(fold, root) {
			return nil, nil, errors.New("checkpoints: more signatures, or a wrong edge")
		}
		if len(sizes) > 0 && size < sizes[len(sizes)-1] {
			return nil, nil, errors.New("checkpoints: a size decreases")
		}
		sizes, roots = append(sizes, size), append(roots, root)
	}
	return sizes, roots, nil
}

// kept are witnesses kept elsewhere.
type kept struct {
	feet        []string
	checkpoints []string
	receipts    []string
}

// specVerify is "Verifying".
func specVerify(files map[string][]byte, public string, k kept) error {
	key, err := specParseKey(public)
	if err != nil {
		return err
	}
	keys := []specKey{key}
	if _, alarm := files["alarm.json"]; alarm {
		return errors.New("the alarm is not acknowledged")
	}
	sizes, roots, err := specCheckpoints(files["checkpoints.jsonl"], keys)
	if err != nil {
		return err
	}
	lines, err := specRead(files)
	if err != nil {
		return err
	}
	t := specTree{known: map[[2]int][]byte{}}
	for _, l := range lines {
		t.leaves = append(t.leaves, specLeaf(l.raw))
	}
	for _, msg := range k.checkpoints {
		size, root, _, err := specCheckpoint(msg, keys)
		if err != nil {
			return err
		}
		sizes, roots = append(sizes, size), append(roots, root)
	}
	for i, size := range sizes {
		if size > len(lines) || !bytes.Equal(t.root(0, size), roots[i]) {
			return fmt.Errorf("checkpoint %d does not match", size)
		}
	}
	for _, foot := range k.feet {
		f := strings.Fields(foot)
		size, err := strconv.Atoi(f[0])
		if err != nil || size > len(lines) || !strings.HasPrefix(hex.EncodeToString(t.root(0, size)), f[1]) {
			return fmt.Errorf("foot %s does not match", foot)
		}
	}
	for _, receipt := range k.receipts {
		if !slices.ContainsFunc(lines, func(l specLine) bool {
			return (l.event == "approved" || l.event == "auto_approved") && l.receipt == receipt
		}) {
			return errors.New("the entry of a receipt is missing")
		}
	}
	if len(lines) > 0 && len(sizes)+len(k.feet) == 0 {
		return errors.New("no checkpoint or foot")
	}
	return nil
}

// agree verifies with both and requires the same result.
func agree(t testing.TB, files map[string][]byte, k kept, what string) (good bool) {
	t.Helper()
	c := &audit.Check{FS: newMemFS(files), Dir: dir, Keys: testKeys(t).Known, Checkpoints: k.checkpoints, Facts: audit.Facts{Receipts: map[string]string{}}}
	for _, f := range k.feet {
		foot, err := audit.ParseFoot(f)
		require.NoError(t, err)
		c.Feet = append(c.Feet, foot)
	}
	for _, r := range k.receipts {
		c.Facts.Receipts[r] = r
	}
	_, packageErr := c.Run()
	specErr := specVerify(files, testPublic, k)
	require.Equal(t, specErr == nil, packageErr == nil, "%s: by FORMAT.md: %v, by the package: %v", what, specErr, packageErr)
	if packageErr != nil {
		require.True(t, isFault(packageErr), "%s: %v", what, packageErr)
	}
	return packageErr == nil
}

// A verifier made from FORMAT.md and the package agree, on good logs and on logs
// changed in all the ways of TestEveryChangeIsDetected.
func TestAVerifierFromTheFormatAgrees(t *testing.T) {
	g := makeGoodLog(t)
	files := g.files(g.lines, g.checkpoints)
	require.True(t, agree(t, files, kept{}, "good"))
	cp, err := audit.ParseCheckpoint(g.notes[3], g.keys.Known)
	require.NoError(t, err)
	var receipts []string
	for r := range g.receipts {
		receipts = append(receipts, r)
	}
	all := kept{feet: []string{cp.Foot()}, checkpoints: g.notes[2:4], receipts: receipts}
	require.True(t, agree(t, files, all, "good, with witnesses"))

	step, cases, goods := 2003, 0, 0
	switch {
	case soak():
		step = 53
	case raceDetector:
		return // there is no concurrency here: make test runs it without the race detector
	}
	judge := func(files map[string][]byte, what string, v ...any) {
		cases++
		if agree(t, files, kept{}, fmt.Sprintf(what, v...)) {
			goods++
		}
	}
	change := func(name string, b []byte) map[string][]byte {
		m := newMemFS(files).files
		m[name] = b
		return m
	}
	for name, b := range files {
		each := step
		if name == "checkpoints.jsonl" {
			each = step / 10
		}
		for i := 0; i < len(b); i += each {
			flipped := slices.Clone(b)
			flipped[i] ^= 1 << (i % 7)
			judge(change(name, flipped), "byte %d of %s flipped", i, name)
			judge(change(name, slices.Delete(slices.Clone(b), i, i+1)), "byte %d of %s removed", i, name)
			judge(change(name, slices.Insert(slices.Clone(b), i, " \n0x"[i%4])), "a byte inserted at %d of %s", i, name)
			judge(change(name, b[:i]), "%s cut at %d", name, i)
		}
		judge(change(name, append(slices.Clone(b), 'x')), "a byte after %s", name)
		judge(change(name, append(slices.Clone(b), "x\n"...)), "a line after %s", name)
		judge(change(name, b[:len(b)-1]), "%s without its last line feed", name)
		gone := newMemFS(files).files
		delete(gone, name)
		judge(gone, "%s removed", name)
	}
	for i := range g.lines {
		if i%(step/20+1) != 0 && !slices.Contains(segmentsAt, i) && !slices.Contains(segmentsAt, i+1) {
			continue
		}
		judge(g.files(slices.Delete(slices.Clone(g.lines), i, i+1), g.checkpoints), "line %d removed", i)
		judge(g.files(renumber(slices.Delete(slices.Clone(g.lines), i, i+1)), g.checkpoints), "line %d removed, renumbered", i)
		judge(g.files(slices.Insert(slices.Clone(g.lines), i, g.lines[i]), g.checkpoints), "line %d doubled", i)
		cut := g.files(g.lines[:i], g.checkpoints[:i/signedEach])
		require.Equal(t, int64(i) >= cp.Size, agree(t, cut, kept{feet: []string{cp.Foot()}}, "cut, with a foot"))
		require.Equal(t, int64(i) >= cp.Size, agree(t, cut, kept{checkpoints: []string{cp.Note}}, "cut, with a checkpoint"))
		agree(t, cut, kept{receipts: receipts[:1]}, "cut, with a receipt")
	}
	overlap := func(change func(last []byte) []byte, suffix string) map[string][]byte {
		m := newMemFS(files).files
		last := change(slices.Clone(g.lines[segmentsAt[0]]))
		m["log.jsonl"] = slices.Concat(m["log.jsonl"], last, []byte(suffix))
		return m
	}
	same := func(b []byte) []byte { return b }
	require.True(t, agree(t, overlap(same, ""), kept{}, "the next segment repeats the last line"))
	require.True(t, agree(t, overlap(same, "\x00\x00{"), kept{}, "and a crash left something"))
	require.True(t, agree(t, overlap(same, "zz\nzz\n"), kept{}, "and lines of it"))
	require.False(t, agree(t, overlap(func(b []byte) []byte { return bytes.Replace(b, []byte("executed"), []byte("released"), 1) }, ""), kept{},
		"a repeated line differs"))
	alarm := newMemFS(files).files
	alarm["alarm.json"] = []byte("{}")
	require.False(t, agree(t, alarm, kept{}, "an alarm"))
	for why, line := range map[string]string{
		"a duplicate name": `{"seq":1001,"time":"2026-11-21T12:00:00Z","event":"a","event":"b"}`,
		"an unknown name":  `{"seq":1001,"time":"2026-11-21T12:00:00Z","event":"a","x":1}`,
		"not ASCII":        `{"seq":1001,"time":"2026-11-21T12:00:00Z","event":"é"}`,
		"another number":   `{"seq":1002,"time":"2026-11-21T12:00:00Z","event":"a"}`,
		"a wrong type":     `{"seq":1001,"time":"2026-11-21T12:00:00Z","event":1}`,
		"an invalid time":  `{"seq":1001,"time":"yesterday","event":"a"}`,
	} {
		require.False(t, agree(t, g.files(append(slices.Clone(g.lines), []byte(line+"\n")), g.checkpoints), kept{}, why), why)
	}
	t.Logf("%d cases, of which %d are good", cases, goods)
	require.Less(t, goods, cases/5, "only results of a crash, and changes where nothing counts")
}

// specProof checks a proof, "Proofs", with only the public key.
func specProof(b []byte, public string) error {
	var p struct {
		Version    int
		Index      int
		Entry      string
		Hashes     []string
		Checkpoint string
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	key, err := specParseKey(public)
	if err != nil {
		return err
	}
	size, root, _, err := specCheckpoint(p.Checkpoint, []specKey{key})
	if err != nil {
		return err
	}
	e, err := specParse([]byte(p.Entry))
	if err != nil || e.seq != p.Index+1 || p.Version != 1 || p.Index < 0 || p.Index >= size {
		return errors.New("proof: not that entry")
	}
	h, rest, err := specPath(specLeaf([]byte(p.Entry)), p.Index, size, p.Hashes)
	if err != nil || len(rest) != 0 || !bytes.Equal(h, root) {
		return errors.New("proof: another root")
	}
	return nil
}

// specPath computes the root from a leaf of n, with the nearest hashes first.
func specPath(leaf []byte, index, n int, hashes []string) (root []byte, rest []string, err error) {
	if n == 1 {
		return leaf, hashes, nil
	}
	k := 1 << (bits.Len(uint(n-1)) - 1)
	left := index < k
	if left {
		root, rest, err = specPath(leaf, index, k, hashes)
	} else {
		root, rest, err = specPath(leaf, index-k, n-k, hashes)
	}
	if err != nil || len(rest) == 0 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	sibling, err := base64.StdEncoding.Strict().DecodeString(rest[0])
	if err != nil {
		return nil, nil, err
	}
	if left {
		return specNode(root, sibling), rest[1:], nil
	}
	return specNode(sibling, root), rest[1:], nil
}

func TestProofs(t *testing.T) {
	g := makeGoodLog(t)
	fsys := newMemFS(g.files(g.lines, g.checkpoints))
	proofs, err := audit.Prove(fsys, dir, g.keys.Known, func(e event.Entry) bool { return e.Seq%83 == 1 || e.Seq >= 999 })
	require.NoError(t, err)
	require.Len(t, proofs, 15)
	other, err := specParseKey(testPublic)
	require.NoError(t, err)
	require.Equal(t, uint32(0x3bc3b73a), binary.BigEndian.Uint32(other.id[:]))
	for _, p := range proofs {
		b, err := p.Encode()
		require.NoError(t, err)
		require.NoError(t, specProof(b, testPublic), "by FORMAT.md")
		again, err := audit.ParseProof(b)
		require.NoError(t, err)
		require.Equal(t, p, again)
		e, c, err := again.Verify(g.keys.Known)
		require.NoError(t, err)
		require.Equal(t, p.Index+1, e.Seq)
		require.Equal(t, int64(goodEntries), c.Size)
		require.Equal(t, string(bytes.TrimSuffix(g.lines[p.Index], []byte("\n"))), p.Entry)
	}
	b, err := proofs[3].Encode()
	require.NoError(t, err)
	for i := range b {
		changed := slices.Clone(b)
		changed[i] ^= 1 << (i % 7)
		if p, err := audit.ParseProof(changed); err == nil {
			e, _, err := p.Verify(g.keys.Known)
			// White space, an escaped character, an unused bit of base64: another form
			// of a proof of the same entry.
			require.True(t, err != nil || p.Entry == proofs[3].Entry && e.Seq == proofs[3].Index+1, "byte %d", i)
		}
	}
	for _, c := range []struct {
		why    string
		change func(p *audit.Proof)
	}{
		{"another entry", func(p *audit.Proof) { p.Entry = proofs[4].Entry }},
		{"another index", func(p *audit.Proof) { p.Index++ }},
		{"beyond the log", func(p *audit.Proof) { p.Index = goodEntries }},
		{"before it", func(p *audit.Proof) { p.Index = -1 }},
		{"a hash too few", func(p *audit.Proof) { p.Hashes = p.Hashes[1:] }},
		{"a hash too many", func(p *audit.Proof) { p.Hashes = append(slices.Clone(p.Hashes), p.Hashes[0]) }},
		{"no checkpoint", func(p *audit.Proof) { p.Checkpoint = "" }},
		{"an older checkpoint", func(p *audit.Proof) { p.Checkpoint = g.notes[6] }},
	} {
		p := *proofs[3]
		c.change(&p)
		_, _, err := p.Verify(g.keys.Known)
		require.ErrorIs(t, err, audit.ErrNotProven, c.why)
	}
	fsys.files["log.jsonl"] = bytes.Replace(fsys.files["log.jsonl"], []byte("executed"), []byte("released"), 1)
	_, err = audit.Prove(fsys, dir, g.keys.Known, func(e event.Entry) bool { return e.Seq == 900 })
	require.ErrorIs(t, err, audit.ErrNotProven, "Prove returns no invalid proof")
}
