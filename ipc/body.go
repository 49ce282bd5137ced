package ipc

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/permesso-dev/permesso/approval"
)

// The parts of a commit's body in the journal. Each is a byte of its kind, then its fields,
// each as its length (uvarint) and its bytes; FORMAT.md lists them.
const (
	partDocument = 1 // document, workspace, id, bytes
	partLarge    = 2 // document, workspace, id, SHA-256 of the bytes, which have their own file
	partEntry    = 3 // a line of the audit log
	partHead     = 4 // the head of the audit log: audit.Recover reads it
)

// maxInJournal is the size in bytes of the largest document whose bytes are in the journal,
// unless its segments are small.
const maxInJournal = 256 << 10

// isLarge reports whether a document has its own file when it is committed.
func (s *Store) isLarge(b []byte) bool { return len(b) > s.maxInJournal() }

func (s *Store) maxInJournal() int { return min(maxInJournal, s.writer().MaxBody()/3) }

// journaled are the documents that replay restores.
var journaled = []approval.Doc{
	approval.DocPending, approval.DocDecision, approval.DocClaim, approval.DocAgain, approval.DocTask, approval.DocRecord, approval.DocGrant,
}

// docKey names one document.
type docKey struct {
	doc approval.Doc
	key approval.Key
}

func appendPart(b []byte, kind byte, fields ...[]byte) []byte {
	b = append(b, kind)
	for _, f := range fields {
		b = binary.AppendUvarint(b, uint64(len(f)))
		b = append(b, f...)
	}
	return b
}

func (s *Store) appendDocument(b []byte, d docKey, content []byte) []byte {
	kind := byte(partDocument)
	if s.isLarge(content) {
		sum := sha256.Sum256(content)
		kind, content = partLarge, sum[:]
	}
	return appendPart(b, kind, []byte(d.doc), []byte(d.key.Workspace), []byte(d.key.ID), content)
}

// part is one decoded part of a body.
type part struct {
	kind    byte
	key     docKey
	content []byte // bytes, digest or line
}

var errBody = errors.New("a commit in the journal cannot be read: it comes from a later version of permesso")

// eachPart decodes a body, whose checksum is right.
func eachPart(b []byte, visit func(part) error) error {
	for len(b) > 0 {
		p := part{kind: b[0]}
		n := 4
		if p.kind == partEntry || p.kind == partHead {
			n = 1
		}
		var fields [4][]byte
		b = b[1:]
		for i := range n {
			size, used := binary.Uvarint(b)
			if used <= 0 || size > uint64(len(b)-used) {
				return errBody
			}
			fields[i], b = b[used:used+int(size)], b[used+int(size):]
		}
		switch p.kind {
		case partDocument, partLarge:
			p.key = docKey{approval.Doc(fields[0]), approval.Key{Workspace: string(fields[1]), ID: string(fields[2])}}
			p.content = fields[3]
			if p.key.check() != nil || !slices.Contains(journaled, p.key.doc) {
				return errBody
			}
		case partEntry, partHead:
			p.content = fields[0]
		default:
			return errBody
		}
		if err := visit(p); err != nil {
			return err
		}
	}
	return nil
}

// check refuses a key that would name a file elsewhere.
func (d docKey) check() error {
	if !ValidWorkspace(d.key.Workspace) || !approval.ValidDocument(d.key.ID) {
		return fmt.Errorf("commit %s of %s: invalid key", d.doc, d.key)
	}
	return nil
}
