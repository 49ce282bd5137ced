package crashtest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path"
	"slices"

	"github.com/permesso-dev/permesso/ipc/crashfs"
)

// # The journal in hashes
//
// A journal has random nonces, numbers that grow with every start, and the remains of earlier
// lives. None of them changes what happens next. So the hash of a simulation has the journal as
// a start would read it: once as programs see it, and once as a power cut would leave it without
// anything unsynced. This reader follows the format, not the code.

const journalBlock = 4 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// withoutSegments is crashfs.Disk.NormalData.
func withoutSegments(b []byte) []byte {
	if len(b) == segmentSize {
		return nil
	}
	return b
}

// segment is one segment as it can be read.
type segment struct {
	first, place, next uint64
	groups             [][]byte // bodies
	stray              int      // whole groups behind a bad one
}

// appendJournal appends what matters of the journal, if it is readable.
func appendJournal(b []byte, d *crashfs.Disk, readable bool) []byte {
	if !readable {
		return b
	}
	var visible, durable []*segment
	same := true
	for i := range 4 {
		v, s := d.Blocks(path.Join(layout.Journal(), fmt.Sprintf("segment-%d", i+1)))
		visible = append(visible, readSegment(v))
		if !sameBlocks(v, s) {
			same = false
			durable = append(durable, readSegment(s))
		} else {
			durable = append(durable, visible[i])
		}
	}
	b = appendSegments(b, visible)
	if same {
		return b
	}
	return appendSegments(append(b, "durable"...), durable)
}

func sameBlocks(a, b [][]byte) bool {
	return slices.EqualFunc(a, b, func(x, y []byte) bool { return &x[0] == &y[0] })
}

// readSegment returns nil for a segment that was never used, or whose header is torn.
func readSegment(blocks [][]byte) *segment {
	if len(blocks) < 2 {
		return nil
	}
	h := blocks[0]
	const size = 8 + 4 + 16 + 8 + 8
	if string(h[:8]) != "permesso" || crc32.Checksum(h[:size], castagnoli) != binary.LittleEndian.Uint32(h[size:]) {
		return nil
	}
	nonce := h[12:28]
	s := &segment{first: binary.LittleEndian.Uint64(h[28:]), place: binary.LittleEndian.Uint64(h[36:])}
	s.next = s.first
	for i := 1; i < len(blocks); i++ {
		number, place, bodies := readGroup(nonce, blocks[i:])
		switch {
		case bodies == nil:
			continue
		case number != s.next:
			s.stray++
			continue
		}
		s.groups, s.place, s.next = append(s.groups, bodies), place, number+1
		i += (24+len(bodies)+journalBlock-1)/journalBlock - 1
	}
	return s
}

// readGroup reads the group at the beginning of blocks. bodies is nil if there is none.
func readGroup(nonce []byte, blocks [][]byte) (number, place uint64, bodies []byte) {
	b := blocks[0]
	number, place = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	length := int(binary.LittleEndian.Uint32(b[16:]))
	if number == 0 || length > (len(blocks)*journalBlock)-24 {
		return 0, 0, nil
	}
	if n := 24 + length; n > journalBlock {
		b = slices.Concat(blocks[:(n+journalBlock-1)/journalBlock]...)
	}
	bodies = b[24 : 24+length : 24+length]
	sum := crc32.Update(crc32.Checksum(nonce, castagnoli), castagnoli, b[:20])
	if crc32.Update(sum, castagnoli, bodies) != binary.LittleEndian.Uint32(b[20:]) {
		return 0, 0, nil
	}
	return number, place, bodies
}

// appendSegments appends what a start would read, with numbers from the mark on.
func appendSegments(b []byte, all []*segment) []byte {
	used := slices.DeleteFunc(slices.Clone(all), func(s *segment) bool { return s == nil })
	for range len(all) - len(used) {
		b = append(b, "free"...)
	}
	all = used
	slices.SortFunc(all, func(x, y *segment) int { return int(int64(x.first - y.first)) })
	if len(all) == 0 {
		return append(b, "no segment"...)
	}
	mark := all[len(all)-1].place
	for _, s := range all {
		if s.next <= mark && s != all[len(all)-1] {
			b = append(b, "free"...)
			continue
		}
		b = fmt.Appendln(b, int64(s.first-mark), int64(s.next-mark), s.stray)
		for i, g := range s.groups {
			if s.first+uint64(i) >= mark {
				b = append(b, g...)
			} else {
				b = fmt.Appendln(b, (24+len(g)+journalBlock-1)/journalBlock) // it takes room
			}
		}
	}
	return b
}
