package audit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// head is what the journal knows of the log: the newest line, the tree up to it, and how
// many entries a durable checkpoint covers.
//
// Its bytes are the line, with the line feed; the hashes of the tree's edge, the largest
// subtree first; and the number, as 8 bytes, big-endian. Of a log that is not signed there is only
// the line. A line feed alone is the head of an empty log.
type head struct {
	line   []byte
	size   int64 // number of the line
	tree   tree
	known  bool // the tree is
	signed int64
}

const emptyHead = "\n"

var errHead = errors.New("the head of the audit log in the journal cannot be read: it comes from a later version of permesso")

func parseHead(b []byte) (h head, err error) {
	if len(b) == 0 || string(b) == emptyHead {
		return head{}, nil
	}
	n := bytes.IndexByte(b, '\n') + 1
	size, ok := seqOf(b)
	if n == 0 || !ok {
		return head{}, errHead
	}
	h, b = head{line: b[:n], size: size}, b[n:]
	if len(b) == 0 {
		return h, nil
	}
	edge := bits.OnesCount64(uint64(size))
	if len(b) != edge*tlog.HashSize+8 {
		return head{}, errHead
	}
	h.known, h.tree.size = true, size
	for ; edge > 0; edge-- {
		h.tree.edge = append(h.tree.edge, tlog.Hash(b[:tlog.HashSize]))
		b = b[tlog.HashSize:]
	}
	h.signed = int64(binary.BigEndian.Uint64(b))
	return h, nil
}

func (h *head) encode() []byte {
	b := bytes.Clone(h.line)
	if !h.known || h.size == 0 {
		return b
	}
	for _, hash := range h.tree.edge {
		b = append(b, hash[:]...)
	}
	return binary.BigEndian.AppendUint64(b, uint64(h.signed))
}

// after is the head after lines, some of which may be before it.
func (h head) after(lines [][]byte) head {
	h.tree = tree{h.tree.size, append([]tlog.Hash(nil), h.tree.edge...)}
	for _, line := range lines {
		seq, ok := seqOf(line)
		if !ok || seq <= h.size {
			continue
		}
		h.known = seq == h.size+1 && (h.known || h.size == 0)
		if h.known {
			h.tree.add(leafHash(bytes.TrimSuffix(line, []byte("\n"))))
		}
		h.size, h.line = seq, line
	}
	return h
}

// Head describes the log up to the last line that is whole in the files, for Recover. The
// newest checkpoint counts as durable: the caller syncs the files before it commits the head.
func (l *Log) Head() []byte {
	l.files.Lock()
	defer l.files.Unlock()
	if l.appended == 0 {
		return []byte(emptyHead)
	}
	h := head{line: l.last, size: l.appended, tree: l.tree, known: l.checkpoints != nil && l.tree.size == l.appended}
	if c := l.newest.Load(); c != nil {
		h.signed = c.Size
	}
	return h.encode()
}

// Recover brings the log to the state of the journal, before a start: head is what Head
// returned at the journal's last mark, and lines are all that were committed since, or also
// some from before. It returns the head after them.
//
// What the log lacks of the lines, Recover writes. If the log lacks what was durable before,
// or has other entries, Recover raises an Alarm.
func Recover(fsys FS, dir string, before []byte, lines [][]byte) (after []byte, err error) {
	h, err := parseHead(before)
	if err != nil {
		return nil, fmt.Errorf("recover audit log: %w", err)
	}
	now := h.after(lines)
	if len(lines) > 0 {
		err = complete(fsys, dir, lines, now)
	} else if len(h.line) > 0 {
		err = compare(fsys, dir, h)
	}
	return now.encode(), err
}
