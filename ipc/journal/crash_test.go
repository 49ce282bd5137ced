package journal

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc/crashfs"
)

const dir = "/home/journal"

func disk(t testing.TB) *crashfs.Disk {
	d := crashfs.New()
	p := d.Process("setup")
	require.NoError(t, p.MkdirAll("/home", 0o700))
	require.NoError(t, p.SyncFS("/"))
	return d
}

// life opens the journal, begins a life, commits n bodies with checkpoints in between, and
// returns what was found and what was acknowledged. done is what the checkpoints dropped.
type life struct {
	found, acknowledged []string
	dropped             int // of found and acknowledged, by a mark that was tried
	begun               bool
}

func (l *life) run(p *crashfs.Proc, name string, n, size int) error {
	j, err := Open(p, dir, Options{Size: minSize})
	if err != nil {
		return err
	}
	defer j.Close()
	if err := j.Records(func(_ uint64, b []byte) error { l.found = append(l.found, text(b)); return nil }); err != nil {
		return err
	}
	if err := j.Begin(); err != nil {
		return err
	}
	l.begun = true
	for i := range n {
		body := fmt.Sprintf("%s-%d", name, i)
		if err := j.Commit(append([]byte(body), make([]byte, size)...)); err != nil {
			return err
		}
		l.acknowledged = append(l.acknowledged, body)
		if i%5 != 4 {
			continue
		}
		l.dropped = len(l.acknowledged)
		if err := j.Checkpoint(func() error { return nil }, func() uint64 { return 0 }); err != nil {
			return err
		}
	}
	return nil
}

func text(b []byte) string { return strings.TrimRight(string(b), "\x00") }

// point is a disk before an operation, and what was acknowledged by then.
type point struct {
	disk *crashfs.Disk
	life life
	op   string
}

// points runs a life and returns every point on its way.
func points(t *testing.T, d *crashfs.Disk, name string, n, size int) (list []point) {
	l := &life{}
	d.Before = func(op crashfs.Op) {
		c := *l
		c.acknowledged = slices.Clone(l.acknowledged)
		list = append(list, point{d.Snapshot(), c, op.String()})
	}
	require.NoError(t, l.run(d.Process("p"), name, n, size))
	d.Before = nil
	return append(list, point{d.Snapshot(), *l, "end"})
}

// after are the disks that a crash at a point leaves.
func (p *point) after(seeds int) map[string]*crashfs.Disk {
	disks := map[string]*crashfs.Disk{"kill": p.disk.Kill()}
	for _, way := range crashfs.Ways() {
		disks[way.String()] = p.disk.Cut(way)
	}
	for seed := range seeds {
		way := crashfs.Seeded(uint64(seed))
		disks[way.String()] = p.disk.Cut(way)
	}
	return disks
}

// check says what is wrong with the bodies that were found after a crash: the acknowledged
// ones must be there, from some mark on, and at most one that was not acknowledged.
func (p *point) check(found []string) error {
	l := &p.life
	if !l.begun {
		if len(found) != 0 && !slices.Equal(found, l.found) {
			return fmt.Errorf("found %v, before it was %v", found, l.found)
		}
		return nil
	}
	for from := 0; from <= l.dropped; from++ {
		rest := l.acknowledged[from:]
		if len(found) >= len(rest) && len(found) <= len(rest)+1 && slices.Equal(found[:len(rest)], rest) {
			return nil
		}
	}
	return fmt.Errorf("found %v, acknowledged %v, %d before a mark", found, l.acknowledged, l.dropped)
}

// TestEveryCrash crashes before every operation of a life, then at every operation of the
// next start, and reads what is left, twice.
func TestEveryCrash(t *testing.T) {
	states := 0
	for _, tt := range []struct{ n, size, seeds int }{{12, 100, 2}, {25, 9000, 0}} {
		first := points(t, disk(t), "a", tt.n, tt.size)
		for i := range first {
			p := &first[i]
			for how, d := range p.after(tt.seeds) {
				states++
				again := points(t, d, "b", 2, 100)
				found := again[len(again)-1].life.found
				require.NoError(t, p.check(found), "%s at %s", how, p.op)
				for k := range again {
					if again[k].life.begun && i%7 != 0 || i%3 != 0 {
						continue // the crash of a second life: a sample
					}
					q := &again[k]
					for way, d := range q.after(1) {
						states++
						l := &life{}
						require.NoError(t, l.run(d.Process("p"), "c", 0, 0), "%s, then %s", p.op, q.op)
						if !q.life.begun && len(q.life.found) > 0 && len(l.found) > 0 {
							require.Equal(t, found, l.found, "%s at %s, then %s at %s", how, p.op, way, q.op)
						}
						if q.life.begun {
							require.NoError(t, q.check(l.found), "%s at %s, then %s at %s", how, p.op, way, q.op)
						}
					}
				}
			}
		}
	}
	t.Logf("%d states", states)
	require.Greater(t, states, 5000)
}

// TestEveryFault lets each operation fail: nothing is acknowledged after a failed one, and
// what was acknowledged is found.
func TestEveryFault(t *testing.T) {
	for at := 1; ; at++ {
		d, ops := disk(t), 0
		d.Fail = func(op crashfs.Op) error {
			if ops++; ops == at && op.Kind.Mutates() {
				return syscall.EIO
			}
			return nil
		}
		l := &life{}
		err := l.run(d.Process("p"), "a", 12, 9000)
		d.Fail = nil
		if ops < at {
			require.NoError(t, err)
			require.Greater(t, at, 30)
			return
		}
		for _, way := range crashfs.Ways() {
			p := &point{disk: d, life: *l}
			again := &life{}
			require.NoError(t, again.run(d.Cut(way).Process("p"), "b", 1, 0), "operation %d", at)
			require.NoError(t, p.check(again.found), "operation %d, %s", at, way)
		}
	}
}

// TestEndsAfterAFailedSync checks that a failed sync is not repeated.
func TestEndsAfterAFailedSync(t *testing.T) {
	d := disk(t)
	j, err := Open(d.Process("p"), dir, Options{Size: minSize})
	require.NoError(t, err)
	require.NoError(t, j.Begin())
	d.Fail = func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync {
			return syscall.EIO
		}
		return nil
	}
	wait := j.Add([]byte("a"))
	require.ErrorIs(t, j.Commit([]byte("b")), ErrEnded)
	require.ErrorIs(t, wait(), syscall.EIO)
	d.Fail = nil
	require.ErrorIs(t, j.Commit([]byte("c")), ErrEnded)
	require.ErrorIs(t, j.Flush(), ErrEnded)
	require.ErrorIs(t, j.Room(1, false), ErrEnded)
	require.ErrorIs(t, j.Checkpoint(func() error { return nil }, func() uint64 { return 0 }), ErrEnded)
	_, err = j.Reserve(1)
	require.ErrorIs(t, err, ErrEnded)
	require.ErrorIs(t, j.Err(), syscall.EIO)
}

// TestDamagedBytes flips each byte of a small journal: wrong bodies are never read.
func TestDamagedBytes(t *testing.T) {
	d := disk(t)
	l := &life{}
	require.NoError(t, l.run(d.Process("p"), "a", 4, 10))
	p := d.Process("p")
	whole := map[string][]byte{}
	for name, b := range d.Files() {
		if strings.HasPrefix(name, dir) {
			whole[name] = b
		}
	}
	dropped, refused := 0, 0
	for name, b := range whole {
		for at := 0; at < len(b); at++ {
			if b[at] == 0 && at%blockSize > 100 {
				continue // padding
			}
			f, err := p.OpenFile(name, 2, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte{b[at] ^ 0x40}, int64(at))
			require.NoError(t, err)
			var found []string
			j, err := Open(p, dir, Options{})
			if err == nil {
				found = records(t, j)
				require.NoError(t, j.Close())
				for i, body := range found {
					found[i] = text([]byte(body))
				}
				require.LessOrEqual(t, len(l.acknowledged)-1, len(found), "%s at %d: more than the tail", name, at)
				require.Equal(t, l.acknowledged[:len(found)], found, "%s at %d", name, at)
			}
			switch {
			case err != nil:
				require.ErrorIs(t, err, ErrDamaged)
				refused++
			case len(found) < len(l.acknowledged):
				dropped++
			}
			_, err = f.WriteAt(b[at:at+1], int64(at))
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
	}
	t.Logf("%d refused, %d dropped the tail", refused, dropped)
	require.NotZero(t, refused)
	require.NotZero(t, dropped)
	require.ErrorIs(t, damaged("x"), ErrDamaged)
}
